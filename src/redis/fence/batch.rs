//! [`RedisBatch`]: Redis commands that are applied together under a token.

use std::time::Duration;

/// How long a key that a batch creates is kept at most.
const LONGEST_KEEP: Duration = Duration::from_secs(100 * 365 * 86_400);

/// One command: its words (name, key, arguments) and the type of key that it needs: `any`, or
/// `none` for a key that must not exist.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) needs: &'static str,
    pub(super) words: Vec<Vec<u8>>,
}

/// Redis commands that a [`RedisFence`](super::RedisFence) applies all together, or not at all.
///
/// Only commands that can be checked before they run, since a server takes nothing back.
///
/// ```
/// use leasehold::redis::RedisBatch;
///
/// let batch = RedisBatch::new()
///     .set("greeting", "hello")
///     .increment_by("greetings", 1)
///     .hash_set("by-language", "en", "hello");
/// assert_eq!(batch.len(), 3);
/// ```
///
/// `Debug` shows the commands' names and keys, not their values.
#[derive(Clone, PartialEq, Eq, Default)]
#[must_use = "nothing is changed until a fence applies it"]
pub struct RedisBatch {
    commands: Vec<Command>,
}

impl RedisBatch {
    /// The largest number of commands: more would block the server for too long.
    pub const MAX_LEN: usize = 1_000;

    /// Makes an empty batch. It changes nothing, but still raises the fence.
    pub fn new() -> Self {
        Self::default()
    }

    /// `SET key value`.
    pub fn set(self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        self.add("any", &[b"SET", key.as_ref(), value.as_ref()])
    }

    /// `SET key value PX keep`, and nothing of the batch is applied if the key exists. For what is
    /// done once: name the key after it (the fire time of a schedule, the number of an order), and
    /// it is done once for `keep`, whoever repeats it. A batch that finds the key is
    /// [`Written::AlreadyApplied`](super::Written::AlreadyApplied), and a commit is not applied, by
    /// [`AlreadyApplied`](crate::fence::AlreadyApplied). The server's clock ends `keep` (100 years
    /// at most): then the key is deleted, and the next batch is applied.
    pub fn create(self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, keep: Duration) -> Self {
        let keep = keep.min(LONGEST_KEEP).as_millis().max(1).to_string();
        let words: [&[u8]; 5] = [b"SET", key.as_ref(), value.as_ref(), b"PX", keep.as_bytes()];
        self.add("none", &words)
    }

    /// `DEL key`.
    pub fn delete(self, key: impl AsRef<[u8]>) -> Self {
        self.add("any", &[b"DEL", key.as_ref()])
    }

    /// `INCRBY key step`. The result must stay below 2^53.
    pub fn increment_by(self, key: impl AsRef<[u8]>, step: i64) -> Self {
        self.add(
            "string",
            &[b"INCRBY", key.as_ref(), step.to_string().as_bytes()],
        )
    }

    /// `HSET key field value`.
    pub fn hash_set(
        self,
        key: impl AsRef<[u8]>,
        field: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Self {
        self.add(
            "hash",
            &[b"HSET", key.as_ref(), field.as_ref(), value.as_ref()],
        )
    }

    /// `HINCRBY key field step`. The result must stay below 2^53.
    pub fn hash_increment_by(
        self,
        key: impl AsRef<[u8]>,
        field: impl AsRef<[u8]>,
        step: i64,
    ) -> Self {
        let step = step.to_string();
        self.add(
            "hash",
            &[b"HINCRBY", key.as_ref(), field.as_ref(), step.as_bytes()],
        )
    }

    /// Appends the commands of another batch.
    pub fn and(mut self, other: Self) -> Self {
        self.commands.extend(other.commands);
        self
    }

    /// The number of commands.
    #[must_use]
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Whether there are no commands.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    pub(super) fn commands(&self) -> &[Command] {
        &self.commands
    }

    fn add(mut self, needs: &'static str, words: &[&[u8]]) -> Self {
        let words = words.iter().map(|word| word.to_vec()).collect();
        self.commands.push(Command { needs, words });
        self
    }
}

impl std::fmt::Debug for RedisBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = self.commands.iter().map(|command| {
            let words = command.words.iter().take(2);
            words
                .map(|word| String::from_utf8_lossy(word))
                .collect::<Vec<_>>()
                .join(" ")
        });
        f.debug_list().entries(shown).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_not_shown() {
        let batch = RedisBatch::new().set("k", "secret");
        assert_eq!(format!("{batch:?}"), r#"["SET k"]"#);
    }
}
