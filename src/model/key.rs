//! [`Key`]: a lock's identity in a store.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::model::error::Error;

/// The identity of a lock in a store.
///
/// A key is 1 to 200 bytes of ASCII letters, digits and `. _ - : /`, in segments that `/` parts. No
/// segment is empty, `.` or `..`. It is parsed once and never normalised: two keys are the same lock
/// if and only if their text is the same, byte for byte. So a key can neither move a Redis key to
/// another slot (`{}`), nor walk a ZooKeeper tree (`..`), nor carry a control character into a log.
///
/// Cloning is cheap.
///
/// ```
/// use leasehold::Key;
///
/// let key: Key = "accounts/7".parse()?;
/// assert_eq!(key.as_str(), "accounts/7");
/// assert!("accounts//7".parse::<Key>().is_err());
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[doc(alias = "resource")]
#[doc(alias = "name")]
pub struct Key(Arc<str>);

impl Key {
    /// The longest key, in bytes.
    pub const MAX_LEN: usize = 200;

    /// Parses a key.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid), with the rule that the text breaks and where.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let refuse = |why: &str| {
            let shown: String = text.chars().take(40).collect();
            Err(Error::invalid(format!(
                "{why}: key={shown:?}; use 1 to {} bytes of letters, digits and . _ - : / without empty or dot segments",
                Self::MAX_LEN
            )))
        };
        if text.is_empty() {
            return refuse("a key may not be empty");
        }
        if text.len() > Self::MAX_LEN {
            return refuse(&format!("a key of {} bytes is too long", text.len()));
        }
        if let Some((at, bad)) = text.char_indices().find(|(_, c)| !is_allowed(*c)) {
            return refuse(&format!(
                "character {bad:?} at byte {at} is not allowed in a key"
            ));
        }
        for segment in text.split('/') {
            match segment {
                "" => return refuse("a key may not have an empty segment"),
                "." | ".." => return refuse("a key may not have a dot segment"),
                _ => {}
            }
        }
        Ok(Self(Arc::from(text)))
    }

    /// The key's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':' | '/')
}

impl FromStr for Key {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

impl TryFrom<&str> for Key {
    type Error = Error;

    fn try_from(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

impl TryFrom<String> for Key {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        Self::parse(&text)
    }
}

impl TryFrom<&String> for Key {
    type Error = Error;

    fn try_from(text: &String) -> Result<Self, Error> {
        Self::parse(text)
    }
}

impl From<&Key> for Key {
    fn from(key: &Key) -> Self {
        key.clone()
    }
}

// So that `TryInto<Key>` takes a ready key as well as a text.
impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl AsRef<str> for Key {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_path_is_a_key() {
        for text in [
            "a",
            "accounts/7",
            "A-b_c.d:e/f",
            "...",
            "a/..b",
            &"k".repeat(200),
        ] {
            assert_eq!(Key::parse(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn what_could_walk_or_move_is_refused() {
        let long = "k".repeat(201);
        for text in [
            "", "/", "a/", "/a", "a//b", ".", "..", "a/../b", "a/./b", "{a}", "a b", "ä", "a\n",
            "a\0", &long,
        ] {
            let error = Key::parse(text).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Invalid, "{text:?}");
        }
    }

    #[test]
    fn a_refusal_shows_a_bounded_part_of_the_text() {
        let message = Key::parse(&"x\n".repeat(10_000)).unwrap_err().to_string();
        assert!(message.len() < 300 && !message.contains('\n'), "{message}");
    }
}
