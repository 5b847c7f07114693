//! Tells the program its revision and compiler, for the scenario files that it writes.

use std::process::Command;

fn main() {
    let revision = output("git", &["rev-parse", "--short=12", "HEAD"]);
    let rustc = output(&std::env::var("RUSTC").unwrap_or_default(), &["--version"]);
    println!("cargo::rustc-env=COFFERDAM_REVISION={}", revision.unwrap_or("unknown".to_owned()));
    println!("cargo::rustc-env=COFFERDAM_RUSTC={}", rustc.unwrap_or("unknown".to_owned()));
    println!("cargo::rerun-if-changed=../.git/logs/HEAD");
}

fn output(program: &str, args: &[&str]) -> Option<String> {
    let done =
        Command::new(program).args(args).output().ok().filter(|done| done.status.success())?;
    Some(String::from_utf8(done.stdout).ok()?.trim().to_owned())
}
