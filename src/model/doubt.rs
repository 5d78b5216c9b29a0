//! [`Doubt`] and [`Resolution`]: a commit whose outcome is unknown, and what became of it.

use crate::model::commit::{HeldKey, is_of, keys, tokens};
use crate::model::error::Error;
use crate::model::txn::TxnId;

/// A commit that was sent and not answered: what [`Resolve`](crate::fence::Resolve) needs to find
/// out what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Doubt {
    /// All locks of the run, as the commit was given them: in order of key.
    pub locks: Vec<HeldKey>,
    /// The run's name, as the commit was given it.
    pub txn_id: TxnId,
}

impl Doubt {
    /// The doubt about a commit whose locks and name come from the log or from another process.
    #[must_use]
    pub fn new(locks: Vec<HeldKey>, txn_id: TxnId) -> Self {
        let mut locks = locks;
        locks.sort_unstable();
        Self { locks, txn_id }
    }

    /// Checks that these are all locks of the run, with its tokens. With others the name of the
    /// commit would be looked for in the wrong place, and a commit that was applied would be
    /// reported as not applied. Every fence checks it before it resolves.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the locks are not those of the run.
    pub fn check(&self) -> Result<(), Error> {
        self.first().map(drop)
    }

    /// The lock beside which a fence keeps the name of a commit: the first in order of key. An
    /// error as of [`check`](Self::check).
    pub(crate) fn first(&self) -> Result<&HeldKey, Error> {
        let first = self.locks.iter().min();
        let first = first.filter(|_| is_of(self.txn_id, &self.locks));
        first.ok_or_else(|| {
            Error::invalid(format!(
                "these are not the locks of the run: txn_id={} keys={} tokens={}; name every lock of the run, with its token",
                self.txn_id,
                keys(&self.locks),
                tokens(&self.locks)
            ))
        })
    }
}

/// What became of a commit in doubt. Both are final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// It is applied.
    Applied,
    /// It is not applied, and never will be: a copy of it that arrives later is refused.
    NotApplied,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::commit::mark;

    fn lock(key: &str, token: u64) -> HeldKey {
        HeldKey {
            key: key.parse().unwrap(),
            token: crate::FencingToken::new(token).unwrap(),
        }
    }

    #[test]
    fn a_doubt_has_all_locks_of_its_run_and_no_others_in_any_order() {
        let run = [lock("a", 7), lock("b", 8), lock("c", 7)];
        let name = TxnId::generate(mark(&run)).unwrap();
        let check = |locks: &[&HeldKey]| {
            let locks = locks.iter().copied().cloned().collect();
            let mut doubt = Doubt::new(locks, name);
            let sorted = doubt.check().is_ok();
            doubt.locks.reverse();
            assert_eq!(doubt.check().is_ok(), sorted);
            sorted
        };
        let [a, b, c] = &run;
        assert!(check(&[a, b, c]));
        for some in [&[][..], &[a], &[c], &[b, c], &[a, c], &[a, b]] {
            assert!(!check(some), "{some:?}");
        }
        for other in [lock("a", 8), lock("d", 7), lock("a/b", 7)] {
            assert!(!check(&[&other, b, c]), "{other:?}");
            assert!(!check(&[a, b, c, &other]), "{other:?}");
        }
        assert!(!check(&[&lock("a", 8), &lock("b", 7), c]));
    }
}
