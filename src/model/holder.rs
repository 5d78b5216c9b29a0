//! The names of a holder: [`OwnerToken`] for stores, [`Label`] for people.

use std::fmt;
use std::sync::Arc;

use crate::model::error::Error;
use crate::model::random::random_bytes;

/// The secret by which a store distinguishes each attempt to hold: 128 random bits. All tokens of
/// one manager end with the same 32 of them, so that a store can wake that manager alone.
///
/// Each attempt has its own token, so an attempt whose outcome is unknown can be withdrawn without
/// affecting a later one. Whoever knows the token can release the lock: `Debug` and `Display` do
/// not show it, and only stores call [`expose`](Self::expose).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[doc(alias = "lock value")]
pub struct OwnerToken([u8; 16]);

impl OwnerToken {
    /// A new token from the operating system's generator.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the system gives no random
    /// bytes. No weaker source is used.
    pub fn generate() -> Result<Self, Error> {
        Ok(Self(random_bytes()?))
    }

    /// As [`generate`](Self::generate), with the end that all tokens of one manager have.
    pub(crate) fn generate_for(manager: ManagerMark) -> Result<Self, Error> {
        let mut token = Self::generate()?;
        let (_, end) = token.0.split_at_mut(16 - manager.0.len());
        end.copy_from_slice(&manager.0);
        Ok(token)
    }

    /// A token from bytes that a store kept.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The token's bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The token as 32 hexadecimal digits, for a store to keep. It is a secret: never log it.
    #[must_use]
    pub fn expose(&self) -> String {
        hex(self.0)
    }

    /// Reads what [`expose`](Self::expose) gave.
    #[cfg(any(feature = "kubernetes", feature = "object-store"))]
    pub(crate) fn from_digits(digits: &str) -> Option<Self> {
        let is_owner = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(digits, 16).ok().filter(|_| is_owner)?;
        Some(Self::from_bytes(number.to_be_bytes()))
    }

    /// As [`expose`](Self::expose), without an allocation.
    #[cfg(feature = "redis")]
    pub(crate) fn digits(&self) -> [u8; 32] {
        digits(self.0)
    }
}

/// The end of all owner tokens of one manager. Two managers may have the same: no decision depends
/// on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ManagerMark(pub(crate) [u8; 4]);

/// How many digits at the end of an owner token's text are those of its manager.
#[cfg(feature = "redis")]
pub(crate) const MARK_DIGITS: usize = 8;

impl fmt::Debug for OwnerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnerToken(redacted)")
    }
}

impl fmt::Display for OwnerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("redacted")
    }
}

pub(crate) fn hex(bytes: [u8; 16]) -> String {
    digits(bytes).into_iter().map(char::from).collect()
}

fn digits(bytes: [u8; 16]) -> [u8; 32] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let half = |index: usize| bytes[index / 2] >> (4 * (1 - index % 2)) & 15;
    std::array::from_fn(|index| DIGITS[usize::from(half(index))])
}

/// A holder's name for people, and what it holds the lock for: in inspection, logs and messages. No
/// decision depends on it.
///
/// The name has 1 to 100 characters without control characters, and so has the purpose, if there is
/// one. It is shown as `NAME` or as `NAME (PURPOSE)`. Cloning is cheap.
///
/// ```
/// use leasehold::store::Label;
///
/// let label = Label::parse("host-a")?.with_purpose("nightly backup")?;
/// assert_eq!(label.as_str(), "host-a");
/// assert_eq!(label.purpose(), Some("nightly backup"));
/// assert_eq!(label.to_string(), "host-a (nightly backup)");
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Label(Arc<str>);

/// Between the name and the purpose. Neither can contain it.
const SEPARATOR: char = '\u{1f}';

impl Label {
    /// The longest name and the longest purpose, in characters.
    pub const MAX_LEN: usize = 100;

    /// Parses a name. The label has no purpose.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if it is empty, too long, or has a control
    /// character.
    pub fn parse(text: &str) -> Result<Self, Error> {
        ensure_short("label", text)?;
        Ok(Self(Arc::from(text)))
    }

    /// The same name with this purpose, instead of the one that it had.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the purpose is empty, too long, or has
    /// a control character.
    pub fn with_purpose(&self, purpose: &str) -> Result<Self, Error> {
        ensure_short("purpose", purpose)?;
        Ok(Self::joined(self.as_str(), purpose))
    }

    /// This label, with the purpose of another one.
    pub(crate) fn for_the_same_as(self, other: &Self) -> Self {
        match other.purpose() {
            Some(purpose) => Self::joined(self.as_str(), purpose),
            None => self,
        }
    }

    fn joined(name: &str, purpose: &str) -> Self {
        Self(Arc::from(format!("{name}{SEPARATOR}{purpose}")))
    }

    /// `host:process id`, or only `process id` if the host's name is not known.
    #[must_use]
    pub fn of_this_process() -> Self {
        let id = std::process::id();
        let host = host_name();
        Self::parse(&format!("{host}:{id}")).unwrap_or_else(|_| Self(Arc::from(id.to_string())))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.parts().0
    }

    /// What the lock is held for, if the holder says so.
    #[must_use]
    pub fn purpose(&self) -> Option<&str> {
        self.parts().1
    }

    fn parts(&self) -> (&str, Option<&str>) {
        match self.0.split_once(SEPARATOR) {
            Some((name, purpose)) => (name, Some(purpose)),
            None => (&self.0, None),
        }
    }

    /// Name and purpose as one text, for a store to keep: the name, and behind the control
    /// character U+001F the purpose, if there is one. At most 201 characters.
    #[must_use]
    pub fn record(&self) -> &str {
        &self.0
    }

    /// Reads what a store kept of a [`record`](Self::record). A name alone is one too.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if it is no such text.
    pub fn from_record(text: &str) -> Result<Self, Error> {
        match text.split_once(SEPARATOR) {
            Some((name, purpose)) => Self::parse(name)?.with_purpose(purpose),
            None => Self::parse(text),
        }
    }
}

fn ensure_short(what: &str, text: &str) -> Result<(), Error> {
    let len = text.chars().count();
    if len == 0 || len > Label::MAX_LEN || text.chars().any(char::is_control) {
        return Err(Error::invalid(format!(
            "a {what} of {len} characters was refused; \
             use 1 to {} characters without control characters",
            Label::MAX_LEN
        )));
    }
    Ok(())
}

#[cfg(unix)]
fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

#[cfg(not(unix))]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            (name, Some(purpose)) => write!(f, "{name} ({purpose})"),
            (name, None) => f.write_str(name),
        }
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Label({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_token_is_never_shown() {
        let token = OwnerToken::generate().unwrap();
        let secret = token.expose();
        assert_eq!(secret.len(), 32);
        assert!(!format!("{token:?} {token}").contains(&secret));
    }

    #[test]
    fn each_attempt_has_its_own_token() {
        assert_ne!(
            OwnerToken::generate().unwrap(),
            OwnerToken::generate().unwrap()
        );
    }

    #[test]
    fn a_label_may_not_carry_control_characters_into_a_log() {
        assert!(Label::parse("host-a\nroot logged in").is_err());
        assert!(Label::parse("").is_err());
        assert!(Label::parse(&"x".repeat(101)).is_err());
        assert_eq!(Label::parse("host-a").unwrap().as_str(), "host-a");
        assert!(!Label::of_this_process().as_str().is_empty());
        let name = Label::parse("host-a").unwrap();
        for purpose in ["", "x\ny", "x\u{1f}y", &"x".repeat(101)] {
            assert!(name.with_purpose(purpose).is_err(), "{purpose:?}");
        }
    }

    #[test]
    fn what_a_store_kept_is_read_with_and_without_a_purpose() {
        let name = Label::parse("host a (prefer 3)").unwrap();
        let backup = name.with_purpose("nightly (full)").unwrap();
        let again = backup.with_purpose("weekly").unwrap();
        assert_eq!(
            [&name, &backup, &again].map(|label| (label.as_str(), label.purpose())),
            [None, Some("nightly (full)"), Some("weekly")].map(|is| ("host a (prefer 3)", is))
        );
        for label in [&name, &backup, &again] {
            assert_eq!(Label::from_record(label.record()).unwrap(), *label);
        }
        assert_eq!(
            name.record(),
            "host a (prefer 3)",
            "as before there were purposes"
        );
        assert_eq!(backup.to_string(), "host a (prefer 3) (nightly (full))");
        for record in ["", "\u{1f}x", "x\u{1f}", "x\u{1f}y\u{1f}z", "x\ny"] {
            assert!(Label::from_record(record).is_err(), "{record:?}");
        }
    }
}
