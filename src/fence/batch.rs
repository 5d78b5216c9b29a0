//! [`RedisBatch`]: Redis commands that are applied together under a token.

use crate::model::error::Error;

/// One command: its words (name, key, arguments) and the type of key that it needs.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) needs: &'static str,
    pub(super) words: Vec<Vec<u8>>,
}

/// Redis commands that a [`RedisFence`](super::RedisFence) applies all together, or not at all.
///
/// ```
/// use leasehold::fence::RedisBatch;
///
/// let batch = RedisBatch::new()
///     .set("greeting", "hello")
///     .increment_by("greetings", 1)
///     .command("ZADD", &["by-time", "17.5", "hello"])?;
/// assert_eq!(batch.len(), 3);
/// # Ok::<(), leasehold::Error>(())
/// ```
///
/// `Debug` shows the commands' names and keys, not their values.
#[derive(Clone, PartialEq, Eq, Default)]
#[must_use = "nothing is changed until a fence applies it"]
pub struct RedisBatch {
    commands: Vec<Command>,
}

/// The arguments after the key.
#[derive(Clone, Copy)]
enum Shape {
    Nothing,
    One,
    Some,
    Pairs,
    /// A whole number of milliseconds.
    Span,
    /// A whole number.
    Step,
    /// A field and a whole number.
    FieldStep,
    /// Pairs of a finite number and a text.
    Scores,
}

/// The commands, the kind of key that each needs, and the arguments after the key. Only commands that can be checked before
/// they run.
const KNOWN: [(&str, &str, Shape); 15] = [
    ("DEL", "any", Shape::Nothing),
    ("HDEL", "hash", Shape::Some),
    ("HINCRBY", "hash", Shape::FieldStep),
    ("HSET", "hash", Shape::Pairs),
    ("INCRBY", "string", Shape::Step),
    ("LPUSH", "list", Shape::Some),
    ("PERSIST", "any", Shape::Nothing),
    ("PEXPIRE", "any", Shape::Span),
    ("RPUSH", "list", Shape::Some),
    ("SADD", "set", Shape::Some),
    ("SET", "any", Shape::One),
    ("SREM", "set", Shape::Some),
    ("UNLINK", "any", Shape::Nothing),
    ("ZADD", "zset", Shape::Scores),
    ("ZREM", "zset", Shape::Some),
];

/// Beyond ten years the server's arithmetic may overflow.
const LONGEST_SPAN_MILLIS: u64 = 10 * 365 * 24 * 3_600 * 1_000;
/// Lua passes no more words than this to one command.
const MOST_WORDS: usize = 1_000;

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

    /// Adds one of `DEL HDEL HINCRBY HSET INCRBY LPUSH PERSIST PEXPIRE RPUSH SADD SET SREM UNLINK ZADD ZREM`, in its plain
    /// form: one key, no options. Whole numbers have neither a `+` nor leading zeros.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for another command or for invalid arguments.
    pub fn command<W: AsRef<[u8]>>(self, name: &str, words: &[W]) -> Result<Self, Error> {
        let refuse = |why: &str| {
            Err(Error::invalid(format!(
                "a fenced batch cannot hold command={name:?}: {why}"
            )))
        };
        let name_of = name.to_ascii_uppercase();
        let Some(&(known, needs, shape)) = KNOWN.iter().find(|(known, ..)| *known == name_of)
        else {
            return refuse(
                "it is none of those that can be checked before they run; see RedisBatch::command",
            );
        };
        let Some((key, rest)) = words.split_first() else {
            return refuse("it needs a key");
        };
        let rest: Vec<&[u8]> = rest.iter().map(AsRef::as_ref).collect();
        if !shape.fits(&rest) {
            return refuse(
                "its arguments do not have the plain form, or a number is not written as 5000, -7 or 17.5",
            );
        }
        let mut all = vec![known.as_bytes(), key.as_ref()];
        all.extend(rest);
        Ok(self.add(needs, &all))
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

impl Shape {
    fn fits(self, rest: &[&[u8]]) -> bool {
        let is_some = !rest.is_empty() && rest.len() <= MOST_WORDS;
        match (self, rest) {
            (Self::Nothing, []) | (Self::One, [_]) => true,
            (Self::Some, _) => is_some,
            (Self::Pairs, _) => is_some && rest.len().is_multiple_of(2),
            (Self::Span, [span]) => {
                whole::<u64>(span).is_some_and(|millis| (1..=LONGEST_SPAN_MILLIS).contains(&millis))
            }
            (Self::Step, [step]) | (Self::FieldStep, [_, step]) => whole::<i64>(step).is_some(),
            (Self::Scores, _) => {
                let mut scores = rest.iter().step_by(2);
                is_some && rest.len().is_multiple_of(2) && scores.all(|score| is_score(score))
            }
            _ => false,
        }
    }
}

/// A decimal number that the server takes: it refuses one that is too small to differ from 0.
fn is_score(word: &[u8]) -> bool {
    let mut mantissa = word.split(|byte| matches!(byte, b'e' | b'E'));
    let has_digit = |part: &[u8]| part.iter().any(|byte| matches!(byte, b'1'..=b'9'));
    let has_sign = word.first() == Some(&b'+');
    number::<f64>(word)
        .filter(|_| !has_sign)
        .is_some_and(|score| {
            score.is_finite() && (score != 0.0 || !mantissa.next().is_some_and(has_digit))
        })
}

/// A whole number in the only form that every server reads alike: no sign before a positive one, no leading zeros.
fn whole<N: std::str::FromStr + ToString>(word: &[u8]) -> Option<N> {
    number::<N>(word).filter(|number| number.to_string().as_bytes() == word)
}

fn number<N: std::str::FromStr>(word: &[u8]) -> Option<N> {
    std::str::from_utf8(word).ok()?.parse().ok()
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
    fn a_command_that_cannot_be_checked_before_it_runs_is_refused() {
        for (name, words) in [
            ("EVAL", &["return 1", "0"][..]),
            ("FLUSHALL", &[]),
            ("SET", &["k", "v", "NX"]),
            ("SET", &["k"]),
            ("DEL", &["a", "b"]),
            ("DEL", &[]),
            ("HSET", &["k", "field"]),
            ("INCRBY", &["k", "1.5"]),
            ("PEXPIRE", &["k", "-1"]),
            ("PEXPIRE", &["k", "+5000"]),
            ("PEXPIRE", &["k", "05000"]),
            ("INCRBY", &["k", "+5"]),
            ("INCRBY", &["k", "-0"]),
            ("HINCRBY", &["k", "f", "007"]),
            ("ZADD", &["k", "+1.5", "m"]),
            ("ZADD", &["k", "inf", "m"]),
            ("PEXPIRE", &["k", "99999999999999999"]),
            ("ZADD", &["k", "nan", "m"]),
            ("ZADD", &["k", "1", "m", "1e-400", "n"]),
            ("ZADD", &["k", "NX", "1", "m"]),
            ("SADD", &["k"]),
        ] {
            let error = RedisBatch::new().command(name, words).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Invalid, "{name} {words:?}");
        }
        let either_case = RedisBatch::new().command("sadd", &["k", "a", "b"]);
        assert_eq!(either_case.unwrap().len(), 1);
        for score in ["0", "-0.0", "0e5", "5e-324", "1E3", ".5"] {
            let batch = RedisBatch::new().command("ZADD", &["k", score, "m"]);
            assert!(batch.is_ok(), "{score}");
        }
    }

    #[test]
    fn values_are_not_shown() {
        let batch = RedisBatch::new().set("k", "secret");
        assert_eq!(format!("{batch:?}"), r#"["SET k"]"#);
    }
}
