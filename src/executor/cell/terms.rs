//! [`CellTerms`]: who may write to a cell.

use crate::executor::outcome::{Cause, Refusal};
use crate::model::commit::HeldKey;
use crate::model::error::Error;
use crate::model::key::Key;
use crate::model::token::FencingToken;

#[derive(Default)]
pub(crate) struct CellTerms {
    pub(crate) key: Option<Key>,
    token: Option<FencingToken>,
    reserved: Option<Reservation>,
}

/// A run is between its commit call and its publishing.
#[derive(Clone, Copy)]
struct Reservation {
    token: FencingToken,
    by: usize,
}

impl CellTerms {
    pub(crate) fn bound_to(key: Option<Key>) -> Self {
        Self {
            key,
            ..Self::default()
        }
    }

    /// A run under `locks` asks to write: one of them must have the cell's key, and no newer holder
    /// may have written. Returns the token that the run writes the cell under.
    pub(crate) fn admit(&mut self, locks: &[HeldKey]) -> Result<FencingToken, Refusal> {
        let token = self.lock_of(locks)?.token;
        match self.token {
            Some(seen) if seen > token => Err(Refusal::Fenced { seen: Some(seen) }),
            _ => {
                self.token = Some(token);
                Ok(token)
            }
        }
    }

    /// `locks` are sorted by key.
    fn lock_of<'a>(&mut self, locks: &'a [HeldKey]) -> Result<&'a HeldKey, Refusal> {
        let misuse = |message| Err(Refusal::Misuse(Error::invalid(message)));
        let Some(key) = &self.key else {
            let [only] = locks else {
                return misuse(format!(
                    "a cell without a key was written by a run under several locks: {}; make the cell with GuardedCell::for_key",
                    keys(locks)
                ));
            };
            self.key = Some(only.key.clone());
            return Ok(only);
        };
        match locks.binary_search_by(|lock| lock.key.cmp(key)) {
            Ok(at) => Ok(&locks[at]),
            Err(_) => misuse(format!(
                "a cell was written under another key than its own: cell_key={key} {}; hold the cell's own lock to write it",
                keys(locks)
            )),
        }
    }

    /// A run that was admitted asks to commit. `by` identifies the run.
    pub(crate) fn may_publish<E>(&self, token: FencingToken, by: usize) -> Result<(), Cause<E>> {
        if let Some(seen) = self.token.filter(|seen| *seen > token) {
            return Err(Cause::Fenced { seen: Some(seen) });
        }
        match self.reserved {
            Some(other) if other.by != by && other.token == token => Err(Cause::Conflict),
            _ => Ok(()),
        }
    }

    /// Takes over the reservation of an older holder, whose publishing will find it gone.
    pub(crate) fn reserve(&mut self, token: FencingToken, by: usize) {
        self.reserved = Some(Reservation { token, by });
    }

    /// Whether a reservation is still valid: no newer holder has written.
    pub(crate) fn is_reserved(&self, token: FencingToken, by: usize) -> bool {
        self.token == Some(token) && self.reserved.is_some_and(|r| r.by == by)
    }

    pub(crate) fn free(&mut self, by: usize) {
        if self.reserved.is_some_and(|r| r.by == by) {
            self.reserved = None;
        }
    }
}

fn keys(locks: &[HeldKey]) -> String {
    let keys: Vec<String> = locks
        .iter()
        .map(|lock| format!("key={}", lock.key))
        .collect();
    keys.join(" ")
}
