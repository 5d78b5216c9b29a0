//! [`Case`]: one small test of a store. [`Bench`]: its two clients, and the steps that cases are
//! made of.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::harness::Harness;
use super::report::Verdict;
use crate::clock::Stamp;
use crate::model::error::Error;
use crate::model::holder::{Label, OwnerToken};
use crate::model::key::Key;
use crate::store::{
    Acquired, Capability, Claim, Fencing, Grant, GrantProof, Hint, LockMode, Released, Renewed,
    Store,
};

/// How often a case is run when the machine was too slow for it.
const TRIES: usize = 3;
/// How many pieces a wait for something is cut into.
const LOOKS: u32 = 48;
/// How many TTLs something may take that the store does when a TTL is over.
const PATIENCE: u32 = 6;

type Run<H> = for<'a> fn(&'a Bench<'a, H>) -> BoxFuture<'a, CaseResult>;

/// Lists the cases of a clause: what each needs, and the sentence that says what it shows.
macro_rules! cases {
    ($([$store:path])? $($name:ident, $needs:expr, $shows:literal;)*) => {
        pub(super) fn cases<H: Harness>() -> Vec<Case<H>>
        $(where H::Store: $store)?
        {
            vec![$(Case {
                name: stringify!($name),
                shows: $shows,
                needs: $needs,
                run: |bench| Box::pin($name(bench)),
            }),*]
        }
    };
}
pub(super) use cases;

pub(super) struct Case<H: Harness> {
    pub(super) name: &'static str,
    pub(super) shows: &'static str,
    /// Why the case does not apply to a store with this capability.
    pub(super) needs: fn(&Capability) -> Option<&'static str>,
    pub(super) run: Run<H>,
}

/// Why a case did not pass.
#[derive(Debug)]
pub(super) enum CaseError {
    /// The store broke the clause.
    Broken(String),
    /// The machine was too slow for the case.
    TooSlow,
}

impl From<Error> for CaseError {
    fn from(e: Error) -> Self {
        Self::Broken(format!("the store answered with an error: {e}"))
    }
}

pub(super) fn broken(message: impl Into<String>) -> CaseError {
    CaseError::Broken(message.into())
}

fn not_ready() -> CaseError {
    broken(
        "expected an answer about the key, got NotReady: the store grants nothing yet; run the suite later",
    )
}

pub(super) fn ensure(holds: bool, message: impl FnOnce() -> String) -> CaseResult {
    if holds {
        return Ok(());
    }
    Err(CaseError::Broken(message()))
}

pub(super) fn always(_: &Capability) -> Option<&'static str> {
    None
}

pub(super) type CaseResult = Result<(), CaseError>;

pub(super) fn own_ttl(capability: &Capability) -> Option<&'static str> {
    (!capability.ttl_per_lock).then_some("the store has one ttl for all locks of a client")
}

/// Two clients of one store, and keys that no other case uses.
pub(super) struct Bench<'a, H: Harness> {
    pub(super) harness: &'a H,
    pub(super) a: H::Store,
    pub(super) b: H::Store,
    prefix: String,
    keys: AtomicU32,
}

/// A grant, and what its time counts from.
pub(super) struct TimedGrant {
    pub(super) grant: Grant,
    pub(super) counts_from: Stamp,
}

impl TimedGrant {
    /// The count starts at the reading before the request, or where the store proves it from.
    fn new(grant: Grant, asked_at: Stamp) -> Self {
        let counts_from = grant.proof.sent_at.unwrap_or(asked_at);
        Self { grant, counts_from }
    }
}

impl<'a, H: Harness> Bench<'a, H> {
    pub(super) async fn new(harness: &'a H) -> Result<Self, Error> {
        let run = OwnerToken::generate()?.expose();
        Ok(Self {
            harness,
            a: harness.client().await?,
            b: harness.client().await?,
            // It ends in a letter: some stores keep names that end in digits to themselves.
            prefix: format!("conformance/{run}r"),
            keys: AtomicU32::new(0),
        })
    }

    /// Runs the case, and closes the clients.
    pub(super) async fn judge(&self, case: &Case<H>) -> Verdict {
        let verdict = self.run(case).await;
        for client in [&self.a, &self.b] {
            if let (Verdict::Passed, Err(e)) = (&verdict, client.close().await) {
                return Verdict::Failed(format!("a client could not be closed: {e}"));
            }
        }
        verdict
    }

    async fn run(&self, case: &Case<H>) -> Verdict {
        for _ in 0..TRIES {
            match (case.run)(self).await {
                Ok(()) => return Verdict::Passed,
                Err(CaseError::Broken(message)) => return Verdict::Failed(message),
                Err(CaseError::TooSlow) => {}
            }
        }
        Verdict::Failed(format!(
            "the machine was too slow for the case, {TRIES} times; use a longer ttl than {:?}",
            self.harness.ttl()
        ))
    }

    pub(super) fn ttl(&self) -> Duration {
        self.harness.ttl()
    }

    /// What every key of this case begins with.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(super) fn key(&self) -> Result<Key, Error> {
        let number = self.keys.fetch_add(1, Ordering::Relaxed);
        Key::parse(&format!("{}/{number}", self.prefix))
    }

    pub(super) fn claim(&self, key: &Key) -> Result<Claim, Error> {
        self.claim_for(key, self.ttl())
    }

    pub(super) fn claim_for(&self, key: &Key, ttl: Duration) -> Result<Claim, Error> {
        let label = Label::parse("conformance")?.with_purpose("a case")?;
        Ok(Claim::new(key.clone(), OwnerToken::generate()?, label, ttl))
    }

    /// A claim in this mode.
    pub(super) fn claim_in(&self, mode: LockMode, key: &Key) -> Result<Claim, Error> {
        let mut claim = self.claim(key)?;
        claim.mode = mode;
        Ok(claim)
    }

    /// A claim of every kind that the store supports, each of a key of its own.
    pub(super) fn claims_of_every_kind(&self) -> Result<Vec<Claim>, Error> {
        let capability = self.a.capability();
        let mut claims = vec![self.claim(&self.key()?)?];
        if capability.read_write {
            claims.push(self.claim_in(LockMode::Read, &self.key()?)?);
            claims.push(self.claim_in(LockMode::Write, &self.key()?)?);
        }
        Ok(claims)
    }

    /// A grant of the same key with another owner token: what a confused client might send.
    pub(super) fn forged(&self, grant: &Grant) -> Result<Grant, Error> {
        let claim = self.claim(&grant.claim.key)?;
        Ok(Grant::new(claim, grant.token, GrantProof::of(self.ttl())))
    }

    /// A new claim of a key is granted.
    pub(super) async fn hold(&self, store: &H::Store, key: &Key) -> Result<TimedGrant, CaseError> {
        self.granted(store, &self.claim(key)?).await
    }

    /// A new claim of a key whose hold ran out is granted: at once, or where the store's clients
    /// observe the holder, within [`PATIENCE`] TTLs.
    pub(super) async fn hold_lapsed(
        &self,
        store: &H::Store,
        key: &Key,
    ) -> Result<TimedGrant, CaseError> {
        match self.a.capability().observes_expiry {
            true => self.granted_soon(store, key).await,
            false => self.hold(store, key).await,
        }
    }

    /// A claim is granted at once.
    pub(super) async fn granted(
        &self,
        store: &H::Store,
        claim: &Claim,
    ) -> Result<TimedGrant, CaseError> {
        let asked_at = self.harness.clock().stamp();
        match store.acquire(claim).await? {
            Acquired::Granted(grant) => Ok(TimedGrant::new(grant, asked_at)),
            Acquired::Busy { .. } => Err(broken("expected a grant of a free key, got busy")),
            Acquired::NotReady { .. } => Err(not_ready()),
        }
    }

    /// A new claim of a key finds it busy.
    pub(super) async fn busy(&self, store: &H::Store, key: &Key) -> CaseResult {
        let claim = self.claim(key)?;
        match store.acquire(&claim).await? {
            // A store that queues keeps a place for the claim, and the next one would be behind it.
            Acquired::Busy { .. } => Ok(store.withdraw(&claim).await?),
            Acquired::Granted(_) => Err(broken("expected busy, got a grant of a held key")),
            Acquired::NotReady { .. } => Err(not_ready()),
        }
    }

    /// This claim has to wait. If the store keeps a queue, it keeps a place.
    pub(super) async fn waits(&self, store: &H::Store, claim: &Claim) -> CaseResult {
        match store.acquire(claim).await? {
            Acquired::Busy { .. } => Ok(()),
            Acquired::NotReady { .. } => Err(not_ready()),
            Acquired::Granted(_) => Err(broken(format!(
                "expected a claim to wait, got a grant: mode={}",
                claim.mode
            ))),
        }
    }

    /// This claim, which had to wait until now, is granted within [`PATIENCE`] TTLs.
    pub(super) async fn served_soon(
        &self,
        store: &H::Store,
        claim: &Claim,
    ) -> Result<TimedGrant, CaseError> {
        for _ in 0..LOOKS {
            let asked_at = self.harness.clock().stamp();
            if let Acquired::Granted(grant) = store.acquire(claim).await? {
                return Ok(TimedGrant::new(grant, asked_at));
            }
            self.harness.pass(self.ttl() * PATIENCE / LOOKS).await;
        }
        Err(broken(format!("still waits after {PATIENCE} ttls")))
    }

    /// A new claim of a key that is held now is granted within [`PATIENCE`] TTLs.
    pub(super) async fn granted_soon(
        &self,
        store: &H::Store,
        key: &Key,
    ) -> Result<TimedGrant, CaseError> {
        self.served_soon(store, &self.claim(key)?).await
    }

    /// The client dies. Another claim is granted, and not before the time is over that the hold was
    /// proven for.
    pub(super) async fn lasts_as_proven(&self, client: H::Store, held: &TimedGrant) -> CaseResult {
        self.harness.crash(client).await;
        self.ends_as_proven(held).await
    }

    /// Another claim is granted, and not before the time is over that the hold, whose client has
    /// ended, was proven for.
    pub(super) async fn ends_as_proven(&self, held: &TimedGrant) -> CaseResult {
        let next = self.granted_soon(&self.b, &held.grant.claim.key).await?;
        let answered = self.harness.clock().stamp().since(&held.counts_from);
        let (ttl, drift) = (held.grant.proof.ttl, held.grant.proof.ttl / 12);
        ensure(answered >= ttl - drift, || {
            format!("granted to another after {answered:?} of a proven ttl of {ttl:?}")
        })?;
        self.release(&self.b, &next).await
    }

    /// A hint resolves within [`PATIENCE`] TTLs.
    pub(super) async fn resolves(&self, mut hint: Hint) -> CaseResult {
        for _ in 0..LOOKS {
            if (&mut hint).now_or_never().is_some() {
                return Ok(());
            }
            self.harness.pass(self.ttl() * PATIENCE / LOOKS).await;
        }
        Err(broken("the hint never resolved"))
    }

    /// Whether the store promises growing tokens.
    pub(super) fn fences(&self) -> bool {
        self.a.capability().fencing == Fencing::Monotonic
    }

    /// The hold cannot have lapsed yet. Otherwise the case proves nothing: the machine was too
    /// slow.
    pub(super) fn still_fresh(&self, held: &TimedGrant) -> CaseResult {
        self.outlived(&held.grant, &held.counts_from)
    }

    /// What was done since `counts_from` was done within the time of the grant.
    pub(super) fn outlived(&self, grant: &Grant, counts_from: &Stamp) -> CaseResult {
        let age = self.harness.clock().stamp().since(counts_from);
        if age < grant.proof.ttl * 9 / 10 {
            return Ok(());
        }
        Err(CaseError::TooSlow)
    }

    /// A renewal is proven; the hold counts from it.
    pub(super) async fn renew(&self, store: &H::Store, held: &mut TimedGrant) -> CaseResult {
        self.still_fresh(held)?;
        let asked_at = self.harness.clock().stamp();
        let answers = store.renew(std::slice::from_ref(&held.grant)).await;
        match answers.as_slice() {
            [Renewed::Extended(proof)] => {
                held.grant.proof = *proof;
                held.counts_from = proof.sent_at.unwrap_or(asked_at);
                Ok(())
            }
            other => {
                self.still_fresh(held)?;
                Err(unexpected("[Extended]", other))
            }
        }
    }

    pub(super) async fn not_renewed(&self, store: &H::Store, grant: &Grant) -> CaseResult {
        let answers = store.renew(std::slice::from_ref(grant)).await;
        match answers.as_slice() {
            [Renewed::Gone] => Ok(()),
            other => Err(unexpected("[Gone]", other)),
        }
    }

    pub(super) async fn release(&self, store: &H::Store, held: &TimedGrant) -> CaseResult {
        match store.release(&held.grant).await {
            Released::Released => Ok(()),
            other => Err(unexpected("Released", &other)),
        }
    }

    pub(super) async fn not_released(&self, store: &H::Store, grant: &Grant) -> CaseResult {
        match store.release(grant).await {
            Released::AlreadyGone => Ok(()),
            other => Err(unexpected("AlreadyGone", &other)),
        }
    }
}

pub(super) fn unexpected(expected: &str, got: &(impl Debug + ?Sized)) -> CaseError {
    CaseError::Broken(format!("expected {expected}, got {got:?}"))
}
