//! What comes from outside or goes wrong inside: Ctrl-C and panics.

use std::panic::{self, PanicHookInfo};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cli::exit::{Exit, Failure};
use crate::cli::output::{complain, own_command_line};

/// A flag that the first Ctrl-C sets; the second one ends the process at once.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    let set = ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            process::exit(Exit::Interrupted as i32);
        }
    });
    match set {
        Ok(()) => Ok(stop),
        Err(error) => Err(Failure::input(format!("Ctrl-C can not be listened for: {error}"))),
    }
}

/// A panic that nobody catches is a bug, whatever thread it is in.
pub(crate) fn exit_on_panic() {
    panic::set_hook(Box::new(|info: &PanicHookInfo<'_>| {
        complain(&format!(
            "error: an internal invariant broke, this is a bug of cofferdam: {info}\n\
             please report it with this command, version {}:\n{}",
            env!("CARGO_PKG_VERSION"),
            own_command_line()
        ));
        process::exit(Exit::Bug as i32);
    }));
}
