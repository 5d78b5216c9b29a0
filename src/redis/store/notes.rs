//! The notes: texts in the script cache of a server, which say that this run of it has known a
//! prefix. No text of them is ever run.
//! [Why](crate::redis#a-server-that-may-have-forgotten).

use std::collections::HashMap;

use parking_lot::Mutex;

use super::cluster::Slot;
use super::connection::Server;
use super::options::RedisOptions;
use super::script::Script;

/// The notes of a prefix, in one run of a server, for one slot of a cluster.
pub(super) struct Notes {
    /// What is looked for: whether anybody has used this prefix, one that it begins with, or one
    /// that begins with it.
    pub(super) sought: Vec<Script>,
    /// What is left for others.
    pub(super) left: Vec<Script>,
}

impl Notes {
    pub(super) fn of(options: &RedisOptions, slot: Option<Slot>, server: &Server) -> Self {
        let run = server.run();
        let slot = slot.map_or_else(String::new, |slot| slot.tag().to_string());
        let database = options.database();
        Self::of_prefix(options.names.prefix(), |word, prefix| {
            Script::new(format!(
                "--leasehold {word} {prefix} {slot} {database} {run}"
            ))
        })
    }

    fn of_prefix(prefix: &str, note: impl Fn(&str, &str) -> Script) -> Self {
        let ends = prefix.match_indices(':').map(|(at, _)| at + 1);
        let begins = [0].into_iter().chain(ends).map(|end| &prefix[..end]);
        let shorter = begins.clone().filter(|begin| *begin != prefix);
        let sought = begins.map(|begin| note("uses", begin));
        let left = shorter.map(|begin| note("below", begin));
        Self {
            sought: sought.chain([note("below", prefix)]).collect(),
            left: [note("uses", prefix)].into_iter().chain(left).collect(),
        }
    }
}

/// After so long (ns) the notes are left again: somebody may have removed the scripts, and clients
/// of another prefix may have loaded ours.
const NOTED: u64 = 60_000_000_000;

/// In which run of a server the notes of a slot were left last, and when, in nanoseconds of the
/// clock that counts a suspend. A slot that moves, and a server that starts again, lack them.
#[derive(Debug, Default)]
pub(super) struct Noted(Mutex<HashMap<Option<Slot>, (String, u64)>>);

impl Noted {
    /// Whether they were left so long ago that they are due again, or never.
    pub(super) fn lacks(&self, run: &str, slot: Option<Slot>, now: u64) -> bool {
        let all = self.0.lock();
        (all.get(&slot)).is_none_or(|(of, at)| of != run || now.saturating_sub(*at) >= NOTED)
    }

    /// They were sent at `sent`, and answered.
    pub(super) fn left(&self, run: &str, slot: Option<Slot>, sent: u64) {
        self.0.lock().insert(slot, (run.to_owned(), sent));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_due_a_minute_after_they_were_left_and_in_another_run_and_slot() {
        let (noted, slot) = (Noted::default(), Some(Slot::of(b"a")));
        assert!(noted.lacks("a", slot, 5));
        noted.left("a", slot, 5);
        assert!(!noted.lacks("a", slot, 4 + NOTED));
        assert!(noted.lacks("a", slot, 5 + NOTED));
        assert!(noted.lacks("b", slot, 6));
        assert!(noted.lacks("a", None, 6));
    }

    fn notes(prefix: &str) -> [Vec<String>; 2] {
        let note = |word: &str, prefix: &str| Script::new(format!("{word} {prefix}"));
        let Notes { sought, left } = Notes::of_prefix(prefix, note);
        [sought, left].map(|all| all.iter().map(|one| one.text().to_owned()).collect())
    }

    #[test]
    fn a_prefix_looks_for_what_it_shares_locks_with_and_for_nothing_else() {
        let prefixes = ["", "a:", "ab:", "a:b:", "a:b:c:", "a:c:"];
        for ours in prefixes {
            let [sought, _] = notes(ours);
            for theirs in prefixes {
                let [_, left] = notes(theirs);
                let is_shared = ours.starts_with(theirs) || theirs.starts_with(ours);
                let is_found = left.iter().any(|note| sought.contains(note));
                assert_eq!(is_found, is_shared, "{ours} {theirs}");
            }
        }
    }
}
