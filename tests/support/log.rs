//! Everything that is logged in this test's process, whatever thread it comes from.

use std::io::Write;
use std::sync::OnceLock;

use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;

use super::canary;

static LINES: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Memory;

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        canary::judge(bytes);
        LINES.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct Maker;

impl<'a> MakeWriter<'a> for Maker {
    type Writer = Memory;

    fn make_writer(&'a self) -> Memory {
        Memory
    }
}

/// Keeps every line from now on, of every level.
pub(crate) fn keep() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .without_time()
            .with_writer(Maker)
            .init();
    });
}

/// All that was kept so far.
pub(crate) fn text() -> String {
    String::from_utf8_lossy(&LINES.lock()).into_owned()
}

/// The lines that hold every one of these words.
pub(crate) fn lines(words: &[&str]) -> Vec<String> {
    let is_meant = |line: &&str| words.iter().all(|word| line.contains(word));
    text().lines().filter(is_meant).map(str::to_owned).collect()
}
