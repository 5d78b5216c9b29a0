//! Other programs that tests start on free loopback ports, and wait for.

#![allow(dead_code, reason = "each test file uses its own part")]

#[path = "ports.rs"]
mod ports;
#[path = "waiting.rs"]
mod waiting;

use std::process::Child;

pub(crate) use ports::free_port;
pub(crate) use waiting::{breathe, pause};

/// How often a test looks for what has to happen: for a minute at least.
pub(crate) const LOOKS: u32 = 12_000;

/// Whether a program answers before it ends. One that does not is ended.
pub(crate) fn answers(child: &mut Child, is_there: impl Fn() -> bool) -> bool {
    for _ in 0..LOOKS {
        if child.try_wait().expect("its state").is_some() {
            return false;
        }
        if is_there() {
            return true;
        }
        pause();
    }
    child.kill().expect("SIGKILL");
    child.wait().expect("its end");
    false
}

/// Waits until a condition of another program holds.
pub(crate) async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    for _ in 0..LOOKS {
        if condition().await {
            return;
        }
        breathe().await;
    }
    panic!("it never happened: {what}");
}
