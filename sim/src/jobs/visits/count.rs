//! The process of visits.
//!
//! Visits wait in the state until the watermark passes them, and are handled by timers in the order
//! (time, line). So what is forgotten by then follows from the times of the visits alone, and not
//! from the run. That the state is idempotent has the reason that smoke-alarm gives.

use std::time::Duration;

use cofferdam::operator::Emit;
use cofferdam::operator::keyed::{KeyedContext, KeyedProcess};
use cofferdam::state::kinds::{Kinds, MapDescriptor, ReducingDescriptor, Ttl};
use cofferdam::time::EventTime;

use crate::jobs::visits::{Counted, Visit, Visitor};

#[derive(Clone)]
pub(super) struct Count {
    pages: MapDescriptor<Visitor, String, u64>,
    total: ReducingDescriptor<Visitor, u64>,
}

impl Count {
    /// Forgets what has not been visited for this time.
    pub(super) fn new(forget: Duration) -> Self {
        let ttl = Ttl::event_time(forget);
        let sum = |sum: &mut u64, more| *sum += more;
        Self {
            pages: MapDescriptor::new("pages", |of: &mut Visitor| &mut of.pages).ttl(ttl),
            total: ReducingDescriptor::new("total", |of: &mut Visitor| &mut of.total, sum).ttl(ttl),
        }
    }
}

impl KeyedProcess for Count {
    type Key = String;
    type In = Visit;
    type State = Visitor;
    type Out = Counted;

    fn process(
        &mut self,
        visit: Visit,
        context: &mut KeyedContext<'_, String, Visitor>,
        _out: &mut impl Emit<Counted>,
    ) {
        let visitor = context.state().get_or_insert_default();
        if visitor.handled >= Some(visit.at) {
            return;
        }
        visitor.waiting.insert((visit.at, visit.offset), visit.page);
        context.register_timer(visit.at.event_time());
    }

    fn on_timer(
        &mut self,
        time: EventTime,
        context: &mut KeyedContext<'_, String, Visitor>,
        out: &mut impl Emit<Counted>,
    ) {
        while let Some(visitor) = context.state().get_mut()
            && let Some(first) = visitor.waiting.first_entry()
            && first.key().0.event_time() <= time
        {
            let ((at, _), page) = first.remove_entry();
            visitor.handled = Some(at);
            let mut pages = context.map(&self.pages);
            let visits = pages.get(&page).copied().unwrap_or(0) + 1;
            pages.insert(page.clone(), visits);
            let mut all = context.reducing(&self.total);
            all.add(1);
            // Where the time to live is zero, nothing is left of it.
            let total = all.get().copied().unwrap_or(1);
            out.emit(Counted { key: context.key().clone(), at, page, visits, total });
        }
    }

    fn kinds(&self) -> Kinds<Visitor> {
        Kinds::new().with(&self.pages).with(&self.total)
    }

    fn is_idempotent(&self) -> bool {
        true
    }

    /// Only timers emit, and a visit that comes again registers none that is not there already.
    fn absorbs_repeats(&self) -> bool {
        true
    }
}
