//! The keys and channels of a lock: all in one slot, all under the prefix.

use std::sync::Arc;

use super::cluster::Slot;
use crate::model::error::Error;
use crate::model::holder::{MARK_DIGITS, OwnerToken};
use crate::model::key::Key;

/// The keys beside a lock.
const BESIDE: [&str; 10] = [
    "raised", "applied", "order", "queue", "alone", "places", "readers", "grants", "gap", "offers",
];
/// The keys of a prefix, or of a slot in a cluster.
const OF_PREFIX: [&str; 3] = ["marker", "witness", "tokens"];

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

    /// A key beside the lock, in its slot: the hash tag is the lock's whole name. No [`Key`] has a brace, so no lock has such
    /// a name. It depends on that whole name only, and so begins with every prefix under which the lock can be named: the lock `b:x`
    /// under `a` is the lock `x` under `a:b`, and there is one of each key beside it.
    pub(crate) fn beside(&self, key: &Key, what: &str) -> String {
        joined(&self.beside_parts(key, what))
    }

    /// The parts of the name of a key beside the lock.
    pub(super) fn beside_parts<'a>(&'a self, key: &'a Key, what: &'a str) -> [&'a str; 7] {
        let [prefix, key] = self.lock_parts(key);
        [prefix, key, "{", prefix, key, "}:", what]
    }

    /// The channel of what everybody is to know who waits for the lock. Its name begins those of the managers' own channels.
    pub(crate) fn channel(&self, key: &Key) -> String {
        self.beside(key, "free")
    }

    /// The channel of what only the manager of this claim is to know, by the end that all its owner tokens have. The script of
    /// the queue makes the same name.
    pub(crate) fn own_channel(&self, key: &Key, owner: &OwnerToken) -> String {
        let digits = owner.digits();
        let mark = &digits[digits.len() - MARK_DIGITS..];
        let mark = str::from_utf8(mark).unwrap_or_default();
        let [prefix, key] = self.lock_parts(key);
        joined(&[prefix, key, "{", prefix, key, "}:free:", mark])
    }

    /// Who waits, by arrival.
    pub(crate) fn queue(&self, key: &Key) -> String {
        self.beside(key, "queue")
    }

    /// Those of the queue that share with nobody.
    pub(crate) fn alone(&self, key: &Key) -> String {
        self.beside(key, "alone")
    }

    /// Until when each place in the queue is kept.
    pub(crate) fn places(&self, key: &Key) -> String {
        self.beside(key, "places")
    }

    /// Until when each reader holds.
    pub(crate) fn readers(&self, key: &Key) -> String {
        self.beside(key, "readers")
    }

    /// Token and label of each reader.
    pub(crate) fn grants(&self, key: &Key) -> String {
        self.beside(key, "grants")
    }

    /// Present while the lock is left free for clients that know nothing of the queue.
    pub(crate) fn gap(&self, key: &Key) -> String {
        self.beside(key, "gap")
    }

    /// How the places that may be granted by message are.
    pub(crate) fn offers(&self, key: &Key) -> String {
        self.beside(key, "offers")
    }

    /// One for all; in a cluster one for each slot.
    pub(super) fn marker(&self, slot: Option<Slot>) -> String {
        self.of_prefix(slot, "marker")
    }

    /// The counter of tokens: one for all; in a cluster one for each slot.
    pub(super) fn tokens(&self, slot: Option<Slot>) -> String {
        self.of_prefix(slot, "tokens")
    }

    /// When the node of this slot became what it is.
    pub(super) fn witness(&self, slot: Slot) -> String {
        self.of_prefix(Some(slot), "witness")
    }

    fn of_prefix(&self, slot: Option<Slot>, what: &str) -> String {
        match slot {
            None => joined(&[&self.prefix, "{leasehold}:", what]),
            Some(slot) => format!("{}{{{}}}:leasehold:{what}", self.prefix, slot.tag()),
        }
    }

    /// Whether a name is the lock itself, or a key that this library keeps for it, its fence, its slot or the prefix.
    pub(crate) fn is_reserved(&self, key: &Key, name: &[u8]) -> bool {
        let Ok(name) = std::str::from_utf8(name) else {
            return false;
        };
        if let Some(what) = name.strip_prefix(&self.beside(key, "")) {
            return BESIDE.contains(&what);
        }
        let is_of_prefix = |what: &&str| {
            name == self.of_prefix(None, what)
                || (name.starts_with(&*self.prefix)
                    && name.ends_with(&format!("}}:leasehold:{what}")))
        };
        name == self.lock(key) || OF_PREFIX.iter().any(is_of_prefix)
    }

    /// The key of a lock by its name in the server; `None` for the keys beside locks and for those of others.
    pub(crate) fn key_of(&self, name: &str) -> Option<Key> {
        Key::parse(name.strip_prefix(&*self.prefix)?).ok()
    }
}

/// The channel of what everybody is to know, by a manager's own one.
pub(super) fn channel_of_all(own: &str) -> &str {
    own.rsplit_once(':').map_or(own, |(all, _)| all)
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
        assert_eq!(names.queue(&key), "app:accounts/7{app:accounts/7}:queue");
        assert_eq!(names.key_of("app:accounts/7"), Some(key.clone()));
        assert_eq!(names.key_of(&names.queue(&key)), None);
        assert_eq!(names.key_of(&names.marker(None)), None);
        assert_eq!(names.key_of("other:accounts/7"), None);

        let bare = Names::parse("").unwrap();
        assert_eq!(bare.lock(&key), "accounts/7");
        assert_eq!(bare.queue(&key), "accounts/7{accounts/7}:queue");
    }

    #[test]
    fn the_keys_of_a_lock_and_its_fence_are_reserved_and_data_beside_them_are_not() {
        let key = Key::parse("accounts/7").unwrap();
        for prefix in ["app", ""] {
            let names = Names::parse(prefix).unwrap();
            let slot = Slot::of(names.lock(&key));
            let ours = [
                names.lock(&key),
                names.queue(&key),
                names.alone(&key),
                names.places(&key),
                names.readers(&key),
                names.grants(&key),
                names.offers(&key),
                names.beside(&key, "raised"),
                names.beside(&key, "applied"),
                names.beside(&key, "order"),
                names.marker(None),
                names.marker(Some(slot)),
                names.tokens(None),
                names.tokens(Some(slot)),
                names.witness(slot),
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
        let witness = names.witness(slot);
        assert_eq!((Slot::of(&witness), names.key_of(&witness)), (slot, None));
        assert_eq!(names.marker(None), "app:{leasehold}:marker");
    }

    #[test]
    fn a_manager_has_a_channel_of_its_own_for_each_lock() {
        let names = Names::parse("app").unwrap();
        let key = Key::parse("accounts/7").unwrap();
        let owner = OwnerToken::from_bytes([0xab; 16]);
        let own = names.own_channel(&key, &owner);
        assert_eq!(own, "app:accounts/7{app:accounts/7}:free:abababab");
        assert_eq!(channel_of_all(&own), names.channel(&key));
    }

    #[test]
    fn a_prefix_that_moves_the_slot_is_refused() {
        assert!(Names::parse("{x}").is_err());
        assert!(Names::parse("a*").is_err());
    }
}
