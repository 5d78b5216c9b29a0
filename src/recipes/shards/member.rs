//! [`Member`]: a process that takes part, as its label says it.
//!
//! A member holds the members' key for reading, under the label `NAME~ID~wWEIGHT~nSHARDS`: its
//! manager's label, 32 hexadecimal digits, its weight, and into how many shards it divides the
//! work. A label that is anything else belongs to no member.

use crate::model::error::Error;
use crate::model::holder::Label;
use crate::model::random::random_bytes;

/// The largest weight of a member.
pub const MAX_WEIGHT: u32 = 1000;
/// The largest number of shards.
pub const MAX_SHARDS: u32 = 10_000;

/// A process that takes part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Member {
    /// No other member has it.
    pub(super) label: Label,
    pub(super) weight: u32,
    /// How many shards there are, as it says.
    pub(super) shards: u32,
}

impl Member {
    pub(super) fn new(name: &str, id: u128, weight: u32, shards: u32) -> Self {
        let suffix = format!("~{id:032x}~w{weight}~n{shards}");
        let name: String = name.chars().take(Label::MAX_LEN - suffix.len()).collect();
        let label = Label::parse(&format!("{name}{suffix}"));
        Self {
            // Only what a label already had is in it.
            label: label.unwrap_or_else(|_| Label::of_this_process()),
            weight,
            shards,
        }
    }

    /// A new member of this name.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the system gives no random bytes.
    pub(super) fn named(name: &Label, weight: u32, shards: u32) -> Result<Self, Error> {
        let id = u128::from_be_bytes(random_bytes()?);
        Ok(Self::new(name.as_str(), id, weight, shards))
    }

    /// The member that a label names; `None` if it names none.
    pub(super) fn of(label: &Label) -> Option<Self> {
        let name = label.as_str();
        let mut parts = name.rsplitn(4, '~');
        let shards = number(parts.next()?.strip_prefix('n')?, MAX_SHARDS)?;
        let weight = number(parts.next()?.strip_prefix('w')?, MAX_WEIGHT)?;
        let id = parts.next()?;
        let is_id = id.len() == 32 && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let has_name = parts.next().is_some_and(|name| !name.is_empty());
        (is_id && has_name).then_some(Self {
            // Without a purpose that its manager may have.
            label: Label::parse(name).ok()?,
            weight,
            shards,
        })
    }
}

/// A number from 1 as this file writes it.
fn number(text: &str, most: u32) -> Option<u32> {
    let number: u32 = text.parse().ok()?;
    ((1..=most).contains(&number) && number.to_string() == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_says_which_member_it_is() {
        for name in ["host:1", "a~b~w2", &"ä".repeat(100)] {
            let name = Label::parse(name).unwrap();
            let member = Member::named(&name, MAX_WEIGHT, MAX_SHARDS).unwrap();
            assert_eq!(Member::of(&member.label), Some(member.clone()));
            let busy = member.label.with_purpose("ingest").unwrap();
            assert_eq!(Member::of(&busy), Some(member.clone()));
            assert_eq!((member.weight, member.shards), (MAX_WEIGHT, MAX_SHARDS));
            let again = Member::named(&name, MAX_WEIGHT, MAX_SHARDS).unwrap();
            assert_ne!(member.label, again.label);
        }
    }

    #[test]
    fn the_label_of_anybody_else_is_no_member() {
        let id = "0123456789abcdef0123456789abcdef";
        assert!(Member::of(&Label::parse(&format!("a~{id}~w1~n1")).unwrap()).is_some());
        for label in [
            "host:1".to_owned(),
            format!("~{id}~w1~n1"),
            format!("a~{id}~w0~n1"),
            format!("a~{id}~w01~n1"),
            format!("a~{id}~w+1~n1"),
            format!("a~{id}~w1001~n1"),
            format!("a~{id}~w1~n10001"),
            format!("a~{id}~w1"),
            format!("a~{}~w1~n1", id.to_uppercase()),
            format!("a~{}~w1~n1", &id[1..]),
            format!("a~{id}~n1~w1"),
            format!("a~{id}~w1~n1 "),
        ] {
            let label = Label::parse(&label).unwrap();
            assert_eq!(Member::of(&label), None, "{label}");
        }
    }
}
