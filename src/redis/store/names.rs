//! The keys and channels of a lock: all in one slot, all under the prefix.

use std::sync::Arc;

use super::cluster::Slot;
use crate::model::error::Error;
use crate::model::holder::MARK_DIGITS;
use crate::model::key::Key;

/// The keys beside a lock.
const BESIDE: [&str; 9] = [
    "raised", "applied", "order", "line", "queue", "places", "readers", "grants", "watchers",
];
/// Before the owner token of a claim that ended.
const GONE: &str = "gone:";
/// The keys of a prefix, or of a slot in a cluster.
const OF_PREFIX: [&str; 2] = ["marker", "token"];

/// Builds key names under one prefix. Cloning is cheap.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    /// Empty, or the prefix with its `:`.
    prefix: Arc<str>,
}

impl Names {
    /// Parses a prefix by the rules of a [`Key`]; empty for none.
    pub(crate) fn parse(prefix: &str) -> Result<Self, Error> {
        if prefix.is_empty() {
            return Ok(Self { prefix: "".into() });
        }
        // A brace or a glob in the prefix would move the slot or widen a scan: a key has neither.
        let prefix = Key::parse(prefix)?;
        Ok(Self {
            prefix: format!("{prefix}:").into(),
        })
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The lock itself.
    pub(crate) fn lock(&self, key: &Key) -> String {
        joined(&self.lock_parts(key))
    }

    /// The parts of the lock's own name.
    pub(crate) fn lock_parts<'a>(&'a self, key: &'a Key) -> [&'a str; 2] {
        [&self.prefix, key.as_str()]
    }

    /// A key beside the lock, in its slot: the hash tag is the lock's whole name. No [`Key`] has a
    /// brace, so no lock has such a name. It depends on that whole name only, and so begins with
    /// every prefix under which the lock can be named: the lock `b:x` under `a` is the lock `x`
    /// under `a:b`, and there is one of each key beside it.
    pub(crate) fn beside(&self, key: &Key, what: &str) -> String {
        joined(&self.beside_parts(key, what))
    }

    /// The parts of the name of a key beside the lock.
    pub(super) fn beside_parts<'a>(&'a self, key: &'a Key, what: &'a str) -> [&'a str; 7] {
        let [prefix, key] = self.lock_parts(key);
        [prefix, key, "{", prefix, key, "}:", what]
    }

    /// The parts of the name of the key by which late requests of a claim are refused.
    pub(super) fn gone_parts<'a>(&'a self, key: &'a Key, owner: &'a [u8; 32]) -> [&'a [u8]; 8] {
        let parts = self.beside_parts(key, GONE).map(str::as_bytes);
        let [a, b, c, d, e, f, g] = parts;
        [a, b, c, d, e, f, g, owner]
    }

    /// One for all; in a cluster one for each slot.
    pub(super) fn marker(&self, slot: Option<Slot>) -> String {
        self.of_prefix(slot, "marker")
    }

    /// The last token: one for all; in a cluster one for each slot.
    pub(super) fn token(&self, slot: Option<Slot>) -> String {
        self.of_prefix(slot, "token")
    }

    /// The channel of a manager, by the end that all its owner tokens have. It begins with the
    /// prefix, so that whoever has no right to the prefix neither hears nor sends a message: a
    /// message may grant.
    pub(super) fn channel(&self, owner: &[u8; 32]) -> String {
        let mark = &owner[owner.len() - MARK_DIGITS..];
        let mark = String::from_utf8_lossy(mark);
        joined(&[&self.prefix, "{leasehold}:wake:", &mark])
    }

    fn of_prefix(&self, slot: Option<Slot>, what: &str) -> String {
        match slot {
            None => joined(&[&self.prefix, "{leasehold}:", what]),
            Some(slot) => format!("{}{{{}}}:leasehold:{what}", self.prefix, slot.tag()),
        }
    }

    /// Whether a name is the lock itself, or a key that this library keeps for it, its fence, its
    /// slot or the prefix.
    pub(crate) fn is_reserved(&self, key: &Key, name: &[u8]) -> bool {
        let Ok(name) = std::str::from_utf8(name) else {
            return false;
        };
        if let Some(what) = name.strip_prefix(&self.beside(key, "")) {
            return BESIDE.contains(&what) || what.starts_with(GONE);
        }
        let is_of_prefix = |what: &&str| {
            name == self.of_prefix(None, what)
                || (name.starts_with(&*self.prefix)
                    && name.ends_with(&format!("}}:leasehold:{what}")))
        };
        name == self.lock(key) || OF_PREFIX.iter().any(is_of_prefix)
    }

    /// The key of a lock by its name in the server; `None` for the keys beside locks and for those
    /// of others.
    pub(crate) fn key_of(&self, name: &str) -> Option<Key> {
        Key::parse(name.strip_prefix(&*self.prefix)?).ok()
    }
}

/// One allocation, since names are made for every request.
fn joined(parts: &[&str]) -> String {
    parts.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_keys_of_a_lock_are_in_its_slot_and_under_the_prefix() {
        let names = Names::parse("app").unwrap();
        let key = Key::parse("accounts/7").unwrap();
        assert_eq!(names.lock(&key), "app:accounts/7");
        assert_eq!(
            names.beside(&key, "queue"),
            "app:accounts/7{app:accounts/7}:queue"
        );
        assert_eq!(names.key_of("app:accounts/7"), Some(key.clone()));
        assert_eq!(names.key_of(&names.beside(&key, "queue")), None);
        assert_eq!(names.key_of(&names.marker(None)), None);
        assert_eq!(names.key_of("other:accounts/7"), None);

        let bare = Names::parse("").unwrap();
        assert_eq!(bare.lock(&key), "accounts/7");
        assert_eq!(bare.beside(&key, "queue"), "accounts/7{accounts/7}:queue");
    }

    #[test]
    fn the_keys_of_a_lock_and_its_fence_are_reserved_and_data_beside_them_are_not() {
        let key = Key::parse("accounts/7").unwrap();
        for prefix in ["app", ""] {
            let names = Names::parse(prefix).unwrap();
            let slot = Slot::of(names.lock(&key));
            let ours = [
                names.lock(&key),
                names.beside(&key, "queue"),
                names.beside(&key, "line"),
                names.beside(&key, "places"),
                names.beside(&key, "readers"),
                names.beside(&key, "grants"),
                names.beside(&key, "gone:00ff"),
                names.beside(&key, "raised"),
                names.beside(&key, "applied"),
                names.beside(&key, "order"),
                names.marker(None),
                names.marker(Some(slot)),
                names.token(None),
                names.token(Some(slot)),
            ];
            for name in ours {
                assert!(names.is_reserved(&key, name.as_bytes()), "{name}");
            }
            for name in [
                "balance",
                "app:accounts/7{app:accounts/7}:balance",
                "{accounts/7}:fences",
            ] {
                assert!(!names.is_reserved(&key, name.as_bytes()), "{name}");
            }
        }
    }

    #[test]
    fn a_marker_of_a_slot_is_in_that_slot_and_is_no_lock() {
        let names = Names::parse("app").unwrap();
        let key = Key::parse("accounts/7").unwrap();
        let slot = Slot::of(names.lock(&key));
        let marker = names.marker(Some(slot));
        assert_eq!(Slot::of(&marker), slot);
        assert!(marker.starts_with("app:{") && marker.ends_with("}:leasehold:marker"));
        assert_eq!(names.key_of(&marker), None);
        let token = names.token(Some(slot));
        assert_eq!((Slot::of(&token), names.key_of(&token)), (slot, None));
        assert_eq!(names.marker(None), "app:{leasehold}:marker");
    }

    #[test]
    fn a_manager_has_one_channel_under_the_prefix() {
        for (prefix, channel) in [
            ("app", "app:{leasehold}:wake:aaaaaaaa"),
            ("", "{leasehold}:wake:aaaaaaaa"),
        ] {
            assert_eq!(Names::parse(prefix).unwrap().channel(&[b'a'; 32]), channel);
        }
    }

    #[test]
    fn a_prefix_that_moves_the_slot_is_refused() {
        assert!(Names::parse("{x}").is_err());
        assert!(Names::parse("a*").is_err());
    }
}
