//! [`MemoryStore`]: locks in the memory of this process. It specifies what every other store must
//! do.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::{
    Acquired, Asked, Capability, Claim, Grant, Hint, Line, LockInfo, MAX_SKEW, Member, Origin,
    Raised, Released, Renewed, Revoke, Revoked, Store, Tombstones, Vote, Waiters, Wakes, Woken,
    not_held,
};
use crate::clock::{Clock, Stamp};
use crate::model::error::Error;
use crate::model::key::Key;
use crate::model::token::FencingToken;

/// With fewer entries than this there is no sweep.
const SWEEP_FLOOR: usize = 2_000;

/// Locks in the memory of this process: for tests, for examples, and for work within one process.
///
/// Cloning is cheap. All clones are the same store, so several managers can contend as if over a
/// network.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    clock: Clock,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    lines: HashMap<Key, Line>,
    withdrawn: Tombstones,
    waiting: HashMap<Key, Waiters>,
    last_token: u64,
    /// After a restart: nothing is granted before this.
    quarantine: Option<Duration>,
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
    /// Tokens still grow, if the store's clock has advanced by at least a microsecond for each
    /// grant. Exclusion is lost with the locks.
    pub fn forget(&self) {
        *self.state.lock() = State::default();
    }

    /// [Forgets](Self::forget) and then grants nothing for `quarantine`: a delayed restart. If
    /// `quarantine` is at least the longest TTL of any client, no forgotten lock is granted before
    /// its time is over. For a member of a quorum add [`MAX_SKEW`], so that its tokens are larger
    /// than every token that it confirmed before.
    pub fn restart(&self, quarantine: Duration) {
        let mut state = self.state.lock();
        *state = State::default();
        state.quarantine = Some(self.now().saturating_add(quarantine));
    }

    /// The time since the zero of the store's clock.
    fn now(&self) -> Duration {
        self.clock.stamp().since(&Stamp::from_nanos([0; 3]))
    }

    fn grant(
        &self,
        claim: &Claim,
        mut token: impl FnMut(&mut u64, Duration) -> Result<FencingToken, Error>,
    ) -> Result<Acquired, Error> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let now = self.now();
        state.sweep(now);
        state.withdrawn.check(claim)?;
        let retry_after = state.quarantine_left(now);
        if !retry_after.is_zero() {
            return Ok(Acquired::NotReady { retry_after });
        }
        let line = state.lines.entry(claim.key.clone()).or_default();
        let asked = Asked {
            claim,
            origin: Origin::default(),
            now,
        };
        let last_token = &mut state.last_token;
        let (acquired, wakes) = line.acquire(asked, &mut || token(last_token, now))?;
        let woken = state.take_hints(&claim.key, &wakes);
        drop(guard);
        drop(woken);
        Ok(acquired)
    }

    /// One request to the line of a key, which then wakes whoever the line names. `None` if the
    /// store knows nothing of the key.
    fn request<T>(
        &self,
        key: &Key,
        request: impl FnOnce(
            &mut Line,
            Duration,
            &mut dyn FnMut() -> Result<FencingToken, Error>,
        ) -> (T, Wakes),
    ) -> Option<T> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let now = self.now();
        let line = state.lines.get_mut(key)?;
        let last_token = &mut state.last_token;
        let (answer, wakes) = request(line, now, &mut || next_token(last_token, now));
        if wakes.is_free && line.is_idle(now) {
            state.lines.remove(key);
        }
        let woken = state.take_hints(key, &wakes);
        drop(guard);
        drop(woken);
        Some(answer)
    }
}

impl State {
    /// For how long the store grants nothing after a restart.
    fn quarantine_left(&self, now: Duration) -> Duration {
        self.quarantine
            .map_or(Duration::ZERO, |until| until.saturating_sub(now))
    }

    /// The hints of the claims that a request wakes.
    fn take_hints(&mut self, key: &Key, wakes: &Wakes) -> Vec<Woken> {
        let waiting = self.waiting.get_mut(key);
        waiting.map_or_else(Vec::new, |waiting| waiting.take(wakes))
    }

    /// Removes what is over each time the store has doubled. So an operation costs O(1) on average,
    /// and the store keeps at most twice its live entries plus [`SWEEP_FLOOR`].
    fn sweep(&mut self, now: Duration) {
        if self.lines.len() + self.waiting.len() < self.sweep_at.max(SWEEP_FLOOR) {
            return;
        }
        self.lines.retain(|_, line| !line.is_idle(now));
        self.waiting.retain(|_, waiting| !waiting.is_empty());
        self.sweep_at = SWEEP_FLOOR.max(2 * (self.lines.len() + self.waiting.len()));
    }
}

/// Larger than every earlier token, also after the store forgot its counter, because the clock does
/// not go back (I8).
fn next_token(last: &mut u64, now: Duration) -> Result<FencingToken, Error> {
    let token = FencingToken::new((*last + 1).max(Line::micros(now)))?;
    *last = token.number();
    Ok(token)
}

#[deny(clippy::missing_trait_methods)]
impl Store for MemoryStore {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn capability(&self) -> Capability {
        Capability {
            shares: true,
            ..Capability::queued()
        }
    }

    async fn acquire(&self, claim: &Claim) -> Result<Acquired, Error> {
        self.grant(claim, next_token)
    }

    async fn renew(&self, grants: &[Grant]) -> Vec<Renewed> {
        let mut state = self.state.lock();
        let now = self.now();
        let renew_one = |grant: &Grant| match state.lines.get_mut(&grant.claim.key) {
            Some(line) => line.renew(&grant.claim, now),
            None => Renewed::Gone,
        };
        grants.iter().map(renew_one).collect()
    }

    async fn release(&self, grant: &Grant) -> Released {
        let owner = &grant.claim.owner;
        self.request(&grant.claim.key, |line, now, token| {
            line.release(owner, now, token)
        })
        .unwrap_or(Released::AlreadyGone)
    }

    async fn rest(&self, grant: &Grant, rest: Duration) -> Released {
        let owner = &grant.claim.owner;
        self.request(&grant.claim.key, |line, now, token| {
            line.rest(owner, rest, now, token)
        })
        .unwrap_or(Released::AlreadyGone)
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), Error> {
        self.state.lock().withdrawn.add(claim, self.now());
        self.request(&claim.key, |line, now, token| {
            ((), line.withdraw(&claim.owner, now, token))
        });
        Ok(())
    }

    async fn subscribe(&self, claim: &Claim) -> Result<Hint, Error> {
        let mut state = self.state.lock();
        let now = self.now();
        state.sweep(now);
        let waiting = state.waiting.entry(claim.key.clone()).or_default();
        Ok(waiting.subscribe(claim.owner, now))
    }

    /// A subscription is no request here, and neither is the look after it.
    fn listen(&self, _: &Claim) -> Option<Hint> {
        None
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant, Error> {
        let claim = &grant.claim;
        self.request(&claim.key, |line, now, token| {
            match line.downgrade(claim, now, token) {
                Ok((grant, wakes)) => (Ok(grant), wakes),
                Err(error) => (Err(error), Wakes::default()),
            }
        })
        .unwrap_or_else(|| Err(not_held(&claim.key)))
    }

    async fn revoke(&self, key: &Key, how: Revoke) -> Result<Revoked, Error> {
        let revoked = self.request(key, |line, now, token| line.revoke(how, now, token));
        Ok(revoked.unwrap_or(Revoked::NotHeld))
    }

    async fn inspect(&self, key: &Key) -> Result<Option<LockInfo>, Error> {
        let state = self.state.lock();
        let line = state.lines.get(key);
        Ok(line.and_then(|line| line.info(key, self.now())))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>, Error> {
        let state = self.state.lock();
        let now = self.now();
        let mut records: Vec<_> = (state.lines.iter())
            .filter(|(key, _)| key.as_str().starts_with(prefix))
            .filter_map(|(key, line)| line.info(key, now).map(LockInfo::in_list))
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
    async fn ready(&self) -> Result<(), Error> {
        Ok(())
    }

    /// A quorum's claim takes no place: its client asks all members again.
    async fn vote(&self, claim: &Claim, floor: Option<FencingToken>) -> Result<Vote, Error> {
        let once = Claim {
            place_ttl: Duration::ZERO,
            ..claim.clone()
        };
        let mut acquired = self.grant(&once, |last, now| {
            let most = Line::micros(now).saturating_add(MAX_SKEW.as_micros() as u64);
            let floor = floor
                .map(FencingToken::number)
                .filter(|&floor| floor <= most);
            // The next token is one above the counter.
            *last = (*last).max(floor.map_or(0, |floor| floor.saturating_sub(1)));
            next_token(last, now)
        })?;
        if let Acquired::Granted(grant) = &mut acquired {
            grant.claim = claim.clone();
        }
        let micros = Line::micros(self.now());
        Ok(Vote { acquired, micros })
    }

    async fn raise(&self, claim: &Claim, token: FencingToken) -> Result<Raised, Error> {
        let mut state = self.state.lock();
        let now = self.now();
        // After its clock was set back, the last token is ahead of it, and tokens go on.
        let most = Line::micros(now).max(state.last_token);
        if token.number() > most.saturating_add(MAX_SKEW.as_micros() as u64) {
            return Err(ahead(token.number(), Line::micros(now)));
        }
        let line = state.lines.get_mut(&claim.key);
        let Some(held) = line.and_then(|line| line.held_by(&claim.owner, now)) else {
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

#[cfg(test)]
mod tests;
