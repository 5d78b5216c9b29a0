//! [`MemoryStore`]: locks in the memory of this process. It specifies what every other store must do.

mod line;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use self::line::{Held, Line};
use super::{
    Acquired, Capability, Claim, Fencing, Grant, GrantProof, Hint, LockInfo, LockMode, MAX_SKEW,
    Member, Raised, Released, Renewed, Revoke, Revoked, Store, Vote,
};
use crate::clock::{Clock, Stamp};
use crate::model::error::{Error, ErrorKind, LostReason};
use crate::model::holder::OwnerToken;
use crate::model::key::Key;
use crate::model::token::FencingToken;

/// With fewer entries than this there is no sweep.
const SWEEP_FLOOR: usize = 2_000;

/// Locks in the memory of this process: for tests, for examples, and for work within one process.
///
/// Cloning is cheap. All clones are the same store, so several managers can contend as if over a network.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    clock: Clock,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    lines: HashMap<Key, Line>,
    /// Withdrawn claims, and until when each is remembered: an acquire that is executed after its withdrawal is refused.
    withdrawn: HashMap<OwnerToken, Stamp>,
    waiting: HashMap<Key, Arc<Notify>>,
    last_token: u64,
    /// After a restart: nothing is granted before this.
    quarantine: Option<Stamp>,
    sweep_at: usize,
}

impl MemoryStore {
    /// Makes a store that uses the machine's clocks.
    ///
    /// # Errors
    ///
    /// As [`Clock::system`].
    pub fn new() -> Result<Self, Error> {
        Ok(Self::with_clock(Clock::system()?))
    }

    /// Makes a store that uses `clock` as the server's clock, which may differ from the client's.
    #[must_use]
    pub fn with_clock(clock: impl Into<Clock>) -> Self {
        Self {
            clock: clock.into(),
            state: Arc::default(),
        }
    }

    /// Loses every lock, queue and counter, like a server that restarts without persistence.
    ///
    /// Tokens still grow, if the store's clock has advanced by at least a microsecond for each grant. Exclusion is lost with
    /// the locks.
    pub fn forget(&self) {
        *self.state.lock() = State::default();
    }

    /// [Forgets](Self::forget) and then grants nothing for `quarantine`: a delayed restart. If `quarantine` is at least the
    /// longest TTL of any client, no forgotten lock is granted before its time is over. For a member of a quorum add
    /// [`MAX_SKEW`], so that its tokens are larger than every token that it confirmed before.
    pub fn restart(&self, quarantine: Duration) {
        let mut state = self.state.lock();
        *state = State::default();
        state.quarantine = Some(self.clock.stamp().plus(quarantine));
    }

    fn grant(
        &self,
        claim: &Claim,
        token: impl FnOnce(&mut State, &Stamp) -> Result<FencingToken, Error>,
    ) -> Result<Acquired, Error> {
        let mut state = self.state.lock();
        let now = self.clock.stamp();
        state.sweep(&now);
        if state.withdrawn.contains_key(&claim.owner) {
            return Err(Error::invalid(format!(
                "this claim was withdrawn: key={}; make a new claim",
                claim.key
            )));
        }
        if let Some(held) = state.held_by(claim, &now) {
            let proof = GrantProof::of(remaining(held, &now));
            return Ok(Acquired::Granted(Grant::new(
                claim.clone(),
                held.token,
                proof,
            )));
        }
        state.ensure_trusted(&now)?;
        let line = state.lines.entry(claim.key.clone()).or_default();
        if let Err(busy) = line.may_enter(claim, &now) {
            let remaining = Some(busy.remaining);
            return Ok(Acquired::Busy { remaining });
        }
        let token = token(&mut state, &now)?;
        let held = Held {
            claim: claim.clone(),
            token,
            ends: now.plus(claim.ttl),
        };
        let line = state.lines.entry(claim.key.clone()).or_default();
        line.enter(held);
        Ok(Acquired::Granted(Grant::new(
            claim.clone(),
            token,
            GrantProof::of(claim.ttl),
        )))
    }
}

impl State {
    /// The live hold of a claim.
    fn held_by(&mut self, claim: &Claim, now: &Stamp) -> Option<&mut Held> {
        self.lines.get_mut(&claim.key)?.held_by(&claim.owner, now)
    }

    fn ensure_trusted(&self, now: &Stamp) -> Result<(), Error> {
        let left = self
            .quarantine
            .map_or(Duration::ZERO, |until| until.since(now));
        if left.is_zero() {
            return Ok(());
        }
        Err(Error::unavailable(format!(
            "the store restarted and forgot its locks: it grants nothing for another {left:?}; try later"
        )))
    }

    /// Larger than every earlier token, also after the store forgot its counter, because the clock does not go back (I8).
    fn next_token(&mut self, now: &Stamp) -> Result<FencingToken, Error> {
        let token = FencingToken::new((self.last_token + 1).max(micros(now)))?;
        self.last_token = token.number();
        Ok(token)
    }

    /// Removes a claim that holds or waits, and then wakes the waiters.
    fn leave(&mut self, claim: &Claim) {
        let line = self.lines.get_mut(&claim.key);
        if line.is_some_and(|line| line.leave(&claim.owner)) {
            self.wake(&claim.key);
        }
    }

    fn wake(&mut self, key: &Key) {
        if let Some(waiting) = self.waiting.remove(key) {
            waiting.notify_waiters();
        }
    }

    /// Leaves a tombstone: a request of this claim that arrives later is refused.
    fn bury(&mut self, claim: &Claim, now: &Stamp) {
        self.withdrawn.insert(claim.owner, now.plus(claim.ttl));
    }

    /// Removes expired entries each time the store has doubled. So an operation costs O(1) on average, and the store keeps at
    /// most twice its live entries plus [`SWEEP_FLOOR`].
    fn sweep(&mut self, now: &Stamp) {
        let entries = self.lines.len() + self.withdrawn.len() + self.waiting.len();
        if entries < self.sweep_at.max(SWEEP_FLOOR) {
            return;
        }
        let Self {
            lines,
            withdrawn,
            waiting,
            ..
        } = self;
        lines.retain(|_, line| !line.is_idle(now));
        withdrawn.retain(|_, until| !until.since(now).is_zero());
        waiting.retain(|key, waiters| lines.contains_key(key) || Arc::strong_count(waiters) > 1);
        let alive = self.lines.len() + self.withdrawn.len() + self.waiting.len();
        self.sweep_at = SWEEP_FLOOR.max(2 * alive);
    }
}

/// The store's time in the unit of its tokens.
fn micros(now: &Stamp) -> u64 {
    let since_zero = now.since(&Stamp::from_nanos([0; 3]));
    u64::try_from(since_zero.as_micros()).unwrap_or(u64::MAX)
}

fn remaining(held: &Held, now: &Stamp) -> Duration {
    held.ends.since(now)
}

#[deny(clippy::missing_trait_methods)]
impl Store for MemoryStore {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn capability(&self) -> Capability {
        Capability {
            fencing: Fencing::Monotonic,
            wakes: true,
            ttl_per_lock: true,
            fair: true,
            read_write: true,
            revokes: true,
            tells_holder: true,
            ..Capability::least()
        }
    }

    async fn acquire(&self, claim: &Claim) -> Result<Acquired, Error> {
        self.grant(claim, State::next_token)
    }

    async fn renew(&self, grants: &[Grant]) -> Vec<Renewed> {
        let mut state = self.state.lock();
        let now = self.clock.stamp();
        let renew_one = |grant: &Grant| match state.held_by(&grant.claim, &now) {
            Some(held) => {
                held.ends = now.plus(grant.claim.ttl);
                Renewed::Extended(GrantProof::of(grant.claim.ttl))
            }
            None => Renewed::Gone,
        };
        grants.iter().map(renew_one).collect()
    }

    async fn release(&self, grant: &Grant) -> Released {
        let mut state = self.state.lock();
        let now = self.clock.stamp();
        match state.held_by(&grant.claim, &now) {
            Some(_) => {
                state.leave(&grant.claim);
                Released::Released
            }
            None => Released::AlreadyGone,
        }
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), Error> {
        let mut state = self.state.lock();
        let now = self.clock.stamp();
        state.sweep(&now);
        state.bury(claim, &now);
        state.leave(claim);
        Ok(())
    }

    async fn subscribe(&self, claim: &Claim) -> Result<Hint, Error> {
        let mut state = self.state.lock();
        state.sweep(&self.clock.stamp());
        let waiting = Arc::clone(state.waiting.entry(claim.key.clone()).or_default());
        Ok(Hint::new(waiting.notified_owned()))
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant, Error> {
        let mut state = self.state.lock();
        let now = self.clock.stamp();
        let claim = &grant.claim;
        let held = state.held_by(claim, &now).ok_or_else(|| gone(&claim.key))?;
        if held.claim.mode == LockMode::Exclusive {
            return Err(Error::invalid(format!(
                "an exclusive hold cannot become a read hold: key={}; take a write lock",
                claim.key
            )));
        }
        held.claim.mode = LockMode::Read;
        let proof = GrantProof::of(remaining(held, &now));
        let downgraded = Grant::new(held.claim.clone(), held.token, proof);
        state.wake(&claim.key);
        Ok(downgraded)
    }

    async fn revoke(&self, key: &Key, how: Revoke) -> Result<Revoked, Error> {
        let mut state = self.state.lock();
        let now = self.clock.stamp();
        let Some(line) = state.lines.get_mut(key) else {
            return Ok(Revoked::NotHeld);
        };
        let revoked = line.revoke(how == Revoke::AfterTtl, &now);
        let free_in = line.barred_for(&now);
        for held in &revoked {
            state.bury(&held.claim, &now);
        }
        state.wake(key);
        if revoked.is_empty() {
            return Ok(Revoked::NotHeld);
        }
        Ok(Revoked::Revoked { free_in })
    }

    async fn inspect(&self, key: &Key) -> Result<Option<LockInfo>, Error> {
        let state = self.state.lock();
        let now = self.clock.stamp();
        let line = state.lines.get(key);
        Ok(line.and_then(|line| record(key, line, &now)))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>, Error> {
        let state = self.state.lock();
        let now = self.clock.stamp();
        let mut records: Vec<_> = (state.lines.iter())
            .filter(|(key, _)| key.as_str().starts_with(prefix))
            .filter_map(|(key, line)| record(key, line, &now))
            .collect();
        records.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(records)
    }

    async fn close(&self) -> Result<(), Error> {
        Ok(())
    }
}

#[deny(clippy::missing_trait_methods)]
impl Member for MemoryStore {
    async fn vote(&self, claim: &Claim, floor: Option<FencingToken>) -> Result<Vote, Error> {
        let acquired = self.grant(claim, |state, now| {
            let most = micros(now).saturating_add(MAX_SKEW.as_micros() as u64);
            if state.last_token >= most {
                return Err(ahead(state.last_token, micros(now)));
            }
            let floor = floor
                .map(FencingToken::number)
                .filter(|&floor| floor <= most);
            // The next token is one above the counter.
            state.last_token = state
                .last_token
                .max(floor.map_or(0, |floor| floor.saturating_sub(1)));
            state.next_token(now)
        })?;
        let micros = micros(&self.clock.stamp());
        Ok(Vote { acquired, micros })
    }

    async fn raise(&self, claim: &Claim, token: FencingToken) -> Result<Raised, Error> {
        let mut state = self.state.lock();
        let now = self.clock.stamp();
        if token.number() > micros(&now).saturating_add(MAX_SKEW.as_micros() as u64) {
            return Err(ahead(token.number(), micros(&now)));
        }
        let Some(held) = state.held_by(claim, &now) else {
            return Ok(Raised::Gone);
        };
        held.token = token;
        state.last_token = state.last_token.max(token.number());
        Ok(Raised::Raised)
    }
}

fn ahead(token: u64, micros: u64) -> Error {
    Error::unavailable(format!(
        "a token is further ahead of this member's clock than {MAX_SKEW:?}: token={token} clock={micros}; set the clocks"
    ))
}

fn gone(key: &Key) -> Error {
    Error::new(
        ErrorKind::Lost(LostReason::Gone),
        format!("the claim does not hold the lock: key={key}; acquire it again"),
    )
}

/// Describes a key; `None` if it is free.
fn record(key: &Key, line: &Line, now: &Stamp) -> Option<LockInfo> {
    let holders = line.holders(now).count();
    let barred_for = line.barred_for(now);
    if holders == 0 && barred_for.is_zero() {
        return None;
    }
    let last = line.holders(now).last();
    Some(LockInfo {
        label: last.map(|held| held.claim.label.clone()),
        token: last.map(|held| held.token),
        remaining: Some(last.map_or(barred_for, |held| remaining(held, now))),
        mode: last.map(|held| held.claim.mode),
        holders,
        queue: Some(line.waiting(now)),
        ..LockInfo::of(key.clone())
    })
}

#[cfg(test)]
mod tests;
