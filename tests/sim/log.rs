//! [`Log`]: every event of a world, as a digest, and as lines when somebody reads them.

/// The digest of all events in their order: two runs of one seed must have the same.
pub(crate) struct Log {
    digest: u64,
    pub(crate) lines: Option<Vec<String>>,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self {
            digest: 0xcbf2_9ce4_8422_2325,
            lines: None,
        }
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    pub(crate) fn note(&mut self, now: u64, what: &'static str, numbers: [u64; 3]) {
        let bytes = what.bytes().map(u64::from);
        for part in bytes.chain([now]).chain(numbers) {
            self.digest = (self.digest ^ part).wrapping_mul(0x0100_0000_01b3);
        }
        let [a, b, c] = numbers;
        self.say(now, || format!("{what} {a} {b} {c}"));
    }

    pub(crate) fn say(&mut self, now: u64, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>12.6} {}", now as f64 / 1e9, line()));
        }
    }
}
