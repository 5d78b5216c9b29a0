//! A process in which no thread can be started.

use std::process::{Command, Output};

const WORD: &str = "LEASEHOLD_TEST_NO_THREADS";
/// The stack of a thread, in bytes. What is left of the address space is less.
const STACK: u64 = 1 << 32;
const LEFT: u64 = 1 << 30;

/// Whether this is the process of [`run`]. From then on no thread can be started in it.
pub(crate) fn begin() -> bool {
    if std::env::var_os(WORD).is_none() {
        return false;
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let size = size.unwrap().trim().trim_end_matches(" kB");
    let limit = size.parse::<u64>().unwrap() * 1024 + LEFT;
    let pid = std::process::id().to_string();
    let limited = Command::new("prlimit")
        .args(["--pid", &pid, &format!("--as={limit}")])
        .status();
    assert!(limited.unwrap().success());
    assert!(std::thread::Builder::new().spawn(|| ()).is_err());
    true
}

/// Runs a test of this program again, in such a process.
pub(crate) fn run(test: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(WORD, "1")
        .env("RUST_MIN_STACK", STACK.to_string())
        .output()
        .unwrap()
}
