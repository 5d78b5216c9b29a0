//! The one password of all tests, and what ends a test program that logs it.
//!
//! Whatever the library and its drivers log in a program that starts a server is read, at every
//! level. A program that logs the password is aborted: a panic might be caught on its way.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::io::Write;

/// Part of every password that a test gives to a server or to a client.
pub(crate) const CANARY: &str = "c4nary-s3same";

/// Whether a text holds it, as it is or as a list of bytes.
pub(crate) fn is_in(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let bytes = format!("{:?}", CANARY.as_bytes());
    text.contains(CANARY) || text.contains(bytes.trim_matches(['[', ']']))
}

/// Ends the program if the text holds it.
pub(crate) fn judge(text: &[u8]) {
    if is_in(text) {
        let text = String::from_utf8_lossy(text).replace(CANARY, "<CANARY>");
        // Past the harness, which keeps what a test prints until the test ends.
        let _ = writeln!(std::io::stderr(), "a password was logged: {text}");
        std::process::abort();
    }
}

/// Reads all that is logged in this test program from now on, unless somebody does so already.
/// Examples have logs of their own, and benches, which are optimized, measure without it.
pub(crate) fn watch() {
    if !cfg!(all(test, debug_assertions)) {
        return;
    }
    let _ = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_ansi(false)
        .without_time()
        .with_writer(|| Judge)
        .try_init();
}

struct Judge;

impl Write for Judge {
    /// A line comes as one.
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        judge(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
