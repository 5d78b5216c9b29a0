//! [`Key`]: a lock's identity in a store.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::model::error::Error;

#[cfg(feature = "config")]
crate::model::serde::by_conversion!(Key, String, |key: Key| key.as_str().to_owned());

/// The identity of a lock in a store.
///
/// A key is 1 to 200 bytes of ASCII letters, digits and `. _ - : /`, in segments that `/`
/// separates. No segment is empty, `.` or `..`. It is parsed once and never normalised: two keys
/// are the same lock if and only if their text is the same, byte for byte. So a key cannot move a
/// Redis key to another slot (`{}`), walk a ZooKeeper tree (`..`), or put a control character into
/// a log.
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
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid), with the rule that the text breaks and
    /// where.
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

    /// The key for any text, as one segment: for names that users choose.
    ///
    /// Letters, digits and `. - :` stay. Every other byte of the text, `_` and `/` included, is
    /// written as `_` and two hexadecimal digits. Two texts are the same key if and only if they
    /// are the same, byte for byte.
    ///
    /// ```
    /// use leasehold::Key;
    ///
    /// let key = Key::escaped("user:müller")?;
    /// assert_eq!(key.as_str(), "user:m_C3_BCller");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the text is empty, or longer than a key
    /// when it is escaped.
    pub fn escaped(text: &str) -> Result<Self, Error> {
        let is_dots = matches!(text, "." | "..");
        let mut escaped = String::with_capacity(text.len());
        for byte in text.bytes() {
            let stays = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b':' | b'.');
            if stays && !is_dots {
                escaped.push(char::from(byte));
            } else {
                escaped.push_str(&format!("_{byte:02X}"));
            }
        }
        Self::parse(&escaped)
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

// So `TryInto<Key>` accepts a parsed key as well as a text.
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
    fn an_escaped_text_is_a_key_of_its_own() {
        let texts = [
            "a", "a/b", "a_b", "a_2Fb", "..", ".", "_2E_2E", "...", "{a}", "ä", "a\n", "Ä", "/",
        ];
        let keys: std::collections::HashSet<Key> = texts
            .iter()
            .map(|text| Key::escaped(text).unwrap())
            .collect();
        assert_eq!(keys.len(), texts.len());
        assert!(keys.iter().all(|key| !key.as_str().contains('/')));
        assert!(Key::escaped("").is_err());
        assert!(Key::escaped(&"ä".repeat(40)).is_err());
    }

    #[test]
    fn a_refusal_shows_a_bounded_part_of_the_text() {
        let message = Key::parse(&"x\n".repeat(10_000)).unwrap_err().to_string();
        assert!(message.len() < 300 && !message.contains('\n'), "{message}");
    }
}
