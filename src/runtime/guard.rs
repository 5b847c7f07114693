//! Catching what user code panics with, so that it becomes a task failure that is reported once.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::Once;

use crate::message::TaskError;

/// Runs `step`; a panic in it becomes an error with its message and place.
pub(super) fn catch<T>(step: impl FnOnce() -> Result<T, TaskError>) -> Result<T, TaskError> {
    INSTALLED.call_once(install);
    GUARDED.set(true);
    // Whatever `step` left half done belongs to a task, and the error ends that task.
    let outcome = panic::catch_unwind(AssertUnwindSafe(step));
    GUARDED.set(false);
    outcome.unwrap_or_else(|payload| {
        let place = PLACE.take();
        Err(TaskError::Crashed(format!("panicked{place}: {}", text_of(payload.as_ref()))))
    })
}

/// Puts a hook before the one that is there: it stays silent where [`catch`] reports.
fn install() {
    let next = panic::take_hook();
    panic::set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
        if GUARDED.get() {
            PLACE.set(info.location().map(|place| format!(" at {place}")).unwrap_or_default());
        } else {
            next(info);
        }
    }));
}

fn text_of(payload: &(dyn Any + Send)) -> &str {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text,
        (None, None) => "with a value that is no text",
    }
}

static INSTALLED: Once = Once::new();

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_with_message_and_place() {
        let error = catch::<()>(|| panic!("no {}", "way")).unwrap_err().to_string();
        assert!(error.contains("guard.rs") && error.ends_with("no way"), "{error}");
        assert_eq!(catch(|| Ok(1)), Ok(1));
    }
}
