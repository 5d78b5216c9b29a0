//! [`ObservedStore`]: a store over a register.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use parking_lot::Mutex;

use super::record::{Record, State};
use super::register::{Register, Swapped};
use super::sightings::{Seen, Sightings};
use crate::clock::{Clock, Stamp};
use crate::model::error::Error;
use crate::model::key::Key;
use crate::model::token::FencingToken;
use crate::store::{
    Acquired, Capability, Claim, Fencing, Grant, GrantProof, Hint, LockInfo, LockMode,
    READ_WRITE_STORES, Released, Renewed, Revoke, Revoked, Store, Tombstones,
};

/// How often a request is repeated because another client's write came first.
const TRIES: usize = 4;
/// How many renewals of a batch are sent beside each other.
const BESIDE: usize = 64;
/// How much longer than a batch has taken so far its next answer may take.
const LATE: Duration = Duration::from_millis(200);
/// The longest TTL that a record may have. No settings allow a longer one.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Locks in a [`Register`], whose holders are observed.
///
/// A client that finds a dead holder's record waits for a whole TTL from then on, so an attempt
/// that does not wait is refused until this process has seen the record for that long. There is no
/// queue, and there are no read and write modes.
#[derive(Debug)]
pub struct ObservedStore<R: Register> {
    register: R,
    clock: Clock,
    state: Mutex<ClientState<R::Version>>,
}

#[derive(Debug)]
struct ClientState<V> {
    seen: Sightings<V>,
    withdrawn: Tombstones,
}

impl<R: Register> ObservedStore<R> {
    /// Makes a client of a register, which observes by the machine's clocks.
    ///
    /// # Errors
    ///
    /// As [`Clock::system`].
    pub fn new(register: R) -> Result<Self, Error> {
        Ok(Self::with_clock(register, Clock::system()?))
    }

    /// Makes a client that observes by `clock`, which is that of its manager.
    #[must_use]
    pub fn with_clock(register: R, clock: impl Into<Clock>) -> Self {
        Self {
            register,
            clock: clock.into(),
            state: Mutex::new(ClientState {
                seen: Sightings::default(),
                withdrawn: Tombstones::default(),
            }),
        }
    }

    /// What was seen of a key before.
    fn known(&self, key: &Key) -> Option<Seen<R::Version>> {
        self.state.lock().seen.get(key).cloned()
    }

    /// What a watch shows to a waiter that a load has refused before. A first request is answered
    /// by a load, so that it sees each release that was answered before it.
    fn followed(&self, claim: &Claim) -> Option<Seen<R::Version>> {
        let shown = self.register.watched(&claim.key)?;
        let mut state = self.state.lock();
        let is_waiter = state.seen.get(&claim.key)?.refused == Some(claim.owner);
        let now = self.clock.stamp();
        is_waiter.then(|| state.seen.follow(&claim.key, shown, &now))?
    }

    async fn load(&self, key: &Key) -> Result<Option<Seen<R::Version>>, Error> {
        let loaded = self.register.load(key).await?;
        // After the answer: whoever wrote what it shows had sent it by then.
        let now = self.clock.stamp();
        let mut state = self.state.lock();
        let Some((record, version)) = loaded else {
            state.seen.forget(key);
            return Ok(None);
        };
        Ok(Some(state.seen.see(key, record, version, now)))
    }

    /// Replaces what was seen; `None` for a key without a record. True if that was done.
    async fn swap(
        &self,
        key: &Key,
        seen: Option<&Seen<R::Version>>,
        record: Record,
    ) -> Result<bool, Error> {
        let expected = seen.map(|seen| &seen.version);
        match self.register.swap(key, expected, &record).await? {
            Swapped::Swapped(version) => {
                let now = self.clock.stamp();
                self.state.lock().seen.see(key, record, version, now);
                Ok(true)
            }
            Swapped::Moved => Ok(false),
        }
    }

    /// What was seen of a key that this claim holds; loaded if it is not known.
    async fn own(
        &self,
        claim: &Claim,
        known: Option<Seen<R::Version>>,
    ) -> Result<Option<Seen<R::Version>>, Error> {
        let is_own = |seen: &Seen<R::Version>| seen.is_of(claim);
        match known.filter(is_own) {
            Some(seen) => Ok(Some(seen)),
            None => Ok(self.load(&claim.key).await?.filter(is_own)),
        }
    }

    /// What a record without a holder keeps as the last token: the wall clock if there was none.
    fn token_of(&self, seen: Option<&Seen<R::Version>>) -> u64 {
        seen.map_or_else(|| self.clock.wall_micros(), |seen| seen.record.token)
    }

    /// The next token of a key. It is at least the wall clock. So tokens grow although somebody
    /// deleted the record, or what it says of the last token, unless this clock is behind the one
    /// that the last token came from.
    fn next_token(&self, seen: Option<&Seen<R::Version>>) -> u64 {
        let last = seen.map_or(0, |seen| seen.record.token);
        (last.saturating_add(1)).max(self.clock.wall_micros())
    }

    fn refuse_withdrawn(&self, claim: &Claim) -> Result<(), Error> {
        self.state.lock().withdrawn.check(claim)
    }

    fn note_withdrawn(&self, claim: &Claim) {
        let now = self.clock.stamp().since(&Stamp::from_nanos([0; 3]));
        self.state.lock().withdrawn.add(claim, now);
    }

    async fn renew_one(&self, claim: &Claim) -> Result<Renewed, Error> {
        let mut known = self.known(&claim.key);
        for _ in 0..TRIES {
            let Some(seen) = self.own(claim, known.take()).await? else {
                // It was revoked, or it lapsed and another claim was granted the key.
                self.note_withdrawn(claim);
                return Ok(Renewed::Gone);
            };
            if seen.is_open(&self.clock.stamp()) {
                self.note_withdrawn(claim);
                return Ok(Renewed::Gone);
            }
            let record = Record::held(claim, seen.record.token)?;
            if self.swap(&claim.key, Some(&seen), record).await? {
                return Ok(Renewed::Extended(GrantProof::of(claim.ttl)));
            }
        }
        Err(moved_on(&claim.key))
    }

    async fn free(&self, claim: &Claim) -> Result<Released, Error> {
        let mut known = self.known(&claim.key);
        for _ in 0..TRIES {
            let Some(seen) = self.own(claim, known.take()).await? else {
                return Ok(Released::AlreadyGone);
            };
            let record = Record::free(seen.record.token)?;
            if self.swap(&claim.key, Some(&seen), record).await? {
                return Ok(Released::Released);
            }
        }
        Err(moved_on(&claim.key))
    }
}

#[deny(clippy::missing_trait_methods)]
impl<R: Register> Store for ObservedStore<R> {
    fn name(&self) -> &'static str {
        self.register.name()
    }

    fn capability(&self) -> Capability {
        Capability {
            fencing: Fencing::Monotonic,
            wakes: self.register.watches(),
            ttl_per_lock: true,
            revokes: true,
            reports_holder: true,
            observes_expiry: true,
            ..Capability::least()
        }
    }

    async fn acquire(&self, claim: &Claim) -> Result<Acquired, Error> {
        let key = &claim.key;
        if claim.mode != LockMode::Exclusive {
            return Err(unsupported(self.name(), "read and write", key));
        }
        // What this process freed itself, or saw a dead holder's, needs no load.
        let is_open = |seen: &Seen<_>| seen.is_open(&self.clock.stamp());
        let mut known = (self.known(key).filter(is_open)).or_else(|| self.followed(claim));
        for _ in 0..TRIES {
            let seen = match known.take() {
                Some(seen) => Some(seen),
                None => self.load(key).await?,
            };
            // Nothing is awaited from here to the swap, so a claim that is withdrawn later has
            // seen this version before.
            self.refuse_withdrawn(claim)?;
            let now = self.clock.stamp();
            let token = match &seen {
                Some(seen) if seen.record.ttl > LONGEST => return Err(too_long(key)),
                Some(seen) if seen.is_open(&now) => self.next_token(Some(seen)),
                Some(seen) if seen.is_of(claim) => seen.record.token,
                Some(seen) => {
                    let remaining = Some(seen.remaining(&now));
                    self.state.lock().seen.refuse(claim);
                    return Ok(Acquired::Busy { remaining });
                }
                None => self.next_token(None),
            };
            let granted = FencingToken::new(token)?;
            let record = Record::held(claim, token)?;
            if self.swap(key, seen.as_ref(), record).await? {
                let proof = GrantProof::of(claim.ttl);
                return Ok(Acquired::Granted(Grant::new(claim.clone(), granted, proof)));
            }
        }
        Ok(Acquired::Busy { remaining: None })
    }

    /// One write for each grant. A write that hangs does not cost the others their answers.
    async fn renew(&self, grants: &[Grant]) -> Vec<Renewed> {
        let mut asked = Vec::with_capacity(grants.len());
        for (place, grant) in grants.iter().enumerate() {
            asked.push(async move {
                let renewed = self.renew_one(&grant.claim).await;
                (place, renewed.unwrap_or_else(Renewed::Unknown))
            });
        }
        let mut asked = stream::iter(asked).buffer_unordered(BESIDE);
        let mut answers: Vec<Option<Renewed>> = grants.iter().map(|_| None).collect();
        let begun = self.clock.stamp();
        let mut next = asked.next().await;
        while let Some((place, renewed)) = next {
            answers[place] = Some(renewed);
            let so_far = self.clock.stamp().since(&begun);
            let limit = so_far.saturating_add(LATE);
            next = self.clock.timeout(limit, asked.next()).await.flatten();
        }
        let late = || Renewed::Unknown(Error::in_doubt("other renewals were answered before"));
        (answers.into_iter())
            .map(|answer| answer.unwrap_or_else(late))
            .collect()
    }

    async fn release(&self, grant: &Grant) -> Released {
        (self.free(&grant.claim).await).unwrap_or_else(Released::Unknown)
    }

    async fn rest(&self, grant: &Grant, _: Duration) -> Released {
        Released::Unknown(unsupported(self.name(), "rests", &grant.claim.key))
    }

    /// Makes sure that the version is gone at which the claim may have asked: a swap that arrives
    /// later matches nothing.
    async fn withdraw(&self, claim: &Claim) -> Result<(), Error> {
        let key = &claim.key;
        self.note_withdrawn(claim);
        let mut has_moved = false;
        for _ in 0..TRIES {
            let seen = self.load(key).await?;
            let is_own = seen.as_ref().is_some_and(|seen| seen.is_of(claim));
            let now = self.clock.stamp();
            // The claim asks for what is open only.
            let is_open = (seen.as_ref()).is_none_or(|seen| seen.is_open(&now));
            if !is_own && (has_moved || !is_open) {
                return Ok(());
            }
            let record = Record::free(self.token_of(seen.as_ref()))?;
            if self.swap(key, seen.as_ref(), record).await? {
                return Ok(());
            }
            has_moved = true;
        }
        Err(moved_on(key))
    }

    async fn subscribe(&self, claim: &Claim) -> Result<Hint, Error> {
        self.register.watch(&claim.key).await
    }

    fn listen(&self, _: &Claim) -> Option<Hint> {
        None
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant, Error> {
        let key = &grant.claim.key;
        Err(unsupported(self.name(), "read and write", key))
    }

    async fn revoke(&self, key: &Key, how: Revoke) -> Result<Revoked, Error> {
        for _ in 0..TRIES {
            let Some(seen) = self.load(key).await? else {
                return Ok(Revoked::NotHeld);
            };
            let is_open = seen.is_open(&self.clock.stamp());
            let is_held = seen.record.state == State::Held && !is_open;
            let (record, free_in) = match how {
                Revoke::Now if seen.record.state == State::Free => return Ok(Revoked::NotHeld),
                Revoke::Now => (Record::free(seen.record.token)?, Duration::ZERO),
                Revoke::AfterTtl if !is_held => return Ok(Revoked::NotHeld),
                Revoke::AfterTtl => (Record::barred(&seen.record)?, seen.record.ttl),
            };
            if self.swap(key, Some(&seen), record).await? {
                return Ok(match is_held {
                    true => Revoked::Revoked { free_in },
                    false => Revoked::NotHeld,
                });
            }
        }
        Err(moved_on(key))
    }

    async fn inspect(&self, key: &Key) -> Result<Option<LockInfo>, Error> {
        let seen = self.load(key).await?;
        Ok(seen.and_then(|seen| seen.info(key, &self.clock.stamp())))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>, Error> {
        let listed = self.register.list(prefix).await?;
        let now = self.clock.stamp();
        let state = self.state.lock();
        let mut infos: Vec<_> = (listed.into_iter())
            .filter_map(|listed| {
                let seen = (state.seen).judge(&listed.key, listed.record, listed.version, now);
                seen.info(&listed.key, &now).map(LockInfo::in_list)
            })
            .collect();
        infos.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(infos)
    }

    async fn close(&self) -> Result<(), Error> {
        self.register.close().await
    }
}

fn unsupported(store: &str, what: &str, key: &Key) -> Error {
    Error::unsupported(format!(
        "this store has no {what}: store={store} key={key}; {READ_WRITE_STORES} have"
    ))
}

fn moved_on(key: &Key) -> Error {
    Error::in_doubt(format!(
        "others wrote the record before us, {TRIES} times: key={key}; try again"
    ))
}

fn too_long(key: &Key) -> Error {
    Error::corrupt(format!(
        "a record keeps others out for more than {LONGEST:?}: key={key}; revoke the key"
    ))
}
