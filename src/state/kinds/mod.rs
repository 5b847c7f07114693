//! Kinds of keyed state: values, lists, maps, folded values, each with a time to live if it is to
//! have one. A process declares what its state is made of by typed descriptors, which it owns, and
//! looks at each part through a view that hides what has expired. A part is found by a field of the
//! state, so an access looks nothing up and allocates nothing.
//!
//! It does not know operators. What time it is, it is told.
//!
//! ```
//! use std::time::Duration;
//!
//! use cofferdam::state::kinds::{Kinds, MapCell, MapDescriptor, Times, Ttl};
//! use cofferdam::time::{EventTime, ProcessingTime};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
//! struct Visitor {
//!     pages: MapCell<String, u64>,
//! }
//!
//! let pages = MapDescriptor::new("pages", |visitor: &mut Visitor| &mut visitor.pages)
//!     .ttl(Ttl::event_time(Duration::from_secs(600)));
//! let at = |seconds: i64| Times {
//!     event: EventTime::from_millis(seconds * 1000),
//!     processing: ProcessingTime::MIN,
//! };
//! let mut visitor = Visitor::default();
//! pages.view(&mut visitor, at(0)).insert("start".to_owned(), 1);
//! assert_eq!(pages.view(&mut visitor, at(599)).get(&"start".to_owned()), Some(&1));
//! assert_eq!(pages.view(&mut visitor, at(600)).get(&"start".to_owned()), None);
//! ```

mod list;
mod map;
mod sweep;
#[cfg(test)]
mod tests;
mod ttl;
mod value;

pub use list::{ListCell, ListDescriptor, ListView};
pub use map::{MapCell, MapDescriptor, MapView};
pub use sweep::{Kind, Kinds, Sweeper, Work};
pub use ttl::{Times, Ttl};
pub use value::{
    AggregatingDescriptor, AggregatingView, ReducingDescriptor, ReducingView, ValueCell,
    ValueDescriptor, ValueView,
};
