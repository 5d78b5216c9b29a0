//! [`SimStore`]: a member of the store, or the only one, at the far end of the network.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use futures_util::FutureExt;
use leasehold::store::quorum::{Member, Raised, Vote};
use leasehold::store::{
    Acquired, Capability, Claim, Grant, Hint, LockInfo, LockMode, MemoryStore, Released, Renewed,
    Revoke, Revoked, Store,
};
use leasehold::{Error, FencingToken, Key};
use parking_lot::Mutex;
use tokio::sync::oneshot::Receiver;

use crate::net::{Net, Op, To};
use crate::state::{Shared, State};
use crate::truth::Owner;

/// One server as one life of one node sees it.
#[derive(Clone)]
pub(crate) struct SimStore {
    pub(crate) net: Net,
    pub(crate) server: usize,
    /// Whether it is the only server, so that its tokens are those of the holds.
    pub(crate) is_alone: bool,
    pub(crate) hints: Hints,
}

/// The subscriptions at all servers: they live there, and their wake-ups are messages.
#[derive(Clone, Default)]
pub(crate) struct Hints(Arc<Mutex<Vec<Subscribed>>>);

struct Subscribed {
    node: usize,
    life: u64,
    hint: Hint,
    woken: Arc<Woken>,
    wake: Option<Box<dyn FnOnce() + Send>>,
}

/// Whether a subscription has something to say since it was last looked at.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Hints {
    /// Sends a message for each subscription that has come true.
    pub(crate) fn look(&self, shared: &Shared) {
        let mut woken = Vec::new();
        self.0.lock().retain_mut(|subscribed| {
            if !subscribed.woken.0.swap(false, Ordering::Relaxed) {
                return true;
            }
            let waker = Waker::from(Arc::clone(&subscribed.woken));
            let mut cx = Context::from_waker(&waker);
            let is_ready = subscribed.hint.poll_unpin(&mut cx).is_ready();
            if is_ready && let Some(wake) = subscribed.wake.take() {
                woken.push((subscribed.node, subscribed.life, wake));
            }
            !is_ready
        });
        for (node, life, wake) in woken {
            shared.lock().wake(node, life, wake);
        }
    }

    /// A subscription of one life of one node, and how it learns of its wake-up.
    pub(crate) fn subscribed(&self, node: usize, life: u64, hint: Hint) -> Receiver<()> {
        let (wake, woken) = tokio::sync::oneshot::channel::<()>();
        self.0.lock().push(Subscribed {
            node,
            life,
            hint,
            woken: Arc::new(Woken(AtomicBool::new(true))),
            wake: Some(Box::new(move || {
                let _ = wake.send(());
            })),
        });
        woken
    }

    pub(crate) fn forget(&self, node: usize) {
        self.0.lock().retain(|subscribed| subscribed.node != node);
    }
}

fn at_once<T>(answer: impl Future<Output = T>) -> T {
    answer
        .now_or_never()
        .expect("a store in memory answers at once")
}

impl SimStore {
    /// One request, executed by the server when it arrives.
    async fn ask<T: Send + 'static>(
        &self,
        op: Op,
        execute: impl Fn(&mut State, &MemoryStore) -> T + Send + Sync + 'static,
    ) -> T {
        let server = self.server;
        let asked = self.net.ask(To::Server(server), op, move |state| {
            let store = state.truth.servers[server].store.clone();
            execute(state, &store)
        });
        asked.await
    }

    fn note_grant(&self) -> impl Fn(&mut State, &Acquired) + Send + Sync + 'static {
        let (server, is_alone, node) = (self.server, self.is_alone, self.net.node);
        move |state, acquired| {
            let Acquired::Granted(grant) = acquired else {
                return;
            };
            let owner = *grant.claim.owner.as_bytes();
            let key = &grant.claim.key;
            state.truth.promised(server, owner, key, grant.proof.ttl);
            state.log.note(
                state.now,
                "grant",
                [node as u64, grant.token.number(), server as u64],
            );
            if is_alone {
                let judged = state.truth.granted(owner, key, grant.token);
                // Several readers may be granted at once, and learn of it in any order.
                if let Err(why) = judged
                    && grant.claim.mode == LockMode::Exclusive
                {
                    state.fail("O9 tokens grow", || why);
                }
            }
        }
    }

    fn gives_back(&self, claim: &Claim) {
        let mut state = self.net.shared.lock();
        if state.lives[self.net.node] == self.net.life {
            // The tokens of single votes do not name a hold, so of a quorum it is not known what is
            // given back.
            if self.is_alone {
                let now = state.now;
                state.truth.gives_back(*claim.owner.as_bytes(), now);
                crate::judge::given_back(&mut state, self.net.node, claim);
            }
        }
    }

    fn looks(&self, claim: &Claim) {
        let mut state = self.net.shared.lock();
        *state.looks.entry(*claim.owner.as_bytes()).or_default() += 1;
    }

    /// O11: what happens between a look and a subscription wakes nobody, so a caller looks again
    /// before it waits. To be called when the caller begins to wait for what it has just subscribed
    /// to.
    fn must_look(&self, owner: Owner) -> impl FnOnce() + Send + 'static {
        let looks = move |state: &State| state.looks.get(&owner).copied();
        let before = looks(&self.net.shared.lock());
        let (net, is_alone) = (self.net.clone(), self.is_alone);
        move || {
            let mut state = net.shared.lock();
            let is_current = is_alone && state.lives[net.node] == net.life;
            if is_current && looks(&state) == before {
                state.fail("O11 wake-ups", || {
                    "a caller waits for a message, and has not looked since it subscribed"
                        .to_owned()
                });
            }
        }
    }

    fn releases(&self, claim: &Claim) {
        let mut state = self.net.shared.lock();
        if self.is_alone && state.lives[self.net.node] == self.net.life {
            crate::judge::released(&mut state, self.net.node, claim);
        }
    }
}

impl fmt::Debug for SimStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimStore({} at {})", self.net.node, self.server)
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for SimStore {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn capability(&self) -> Capability {
        self.net.shared.lock().truth.servers[self.server]
            .store
            .capability()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Acquired, Error> {
        let (claim, note) = (claim.clone(), self.note_grant());
        self.looks(&claim);
        let asked = self.ask(Op::Acquire, move |state, store| {
            let answer = at_once(store.acquire(&claim));
            if let Ok(acquired) = &answer {
                note(state, acquired);
            }
            answer
        });
        asked.await
    }

    async fn renew(&self, grants: &[Grant]) -> Vec<Renewed> {
        let (grants, server) = (grants.to_vec(), self.server);
        let asked = self.ask(Op::Renew, move |state, store| {
            let answers = at_once(store.renew(&grants));
            for (grant, answer) in grants.iter().zip(&answers) {
                let (owner, key) = (*grant.claim.owner.as_bytes(), &grant.claim.key);
                if let Renewed::Extended(proof) = answer {
                    state.truth.promised(server, owner, key, proof.ttl);
                }
            }
            answers
        });
        asked.await
    }

    async fn release(&self, grant: &Grant) -> Released {
        self.rest(grant, Duration::ZERO).await
    }

    async fn rest(&self, grant: &Grant, rest: Duration) -> Released {
        self.gives_back(&grant.claim);
        self.releases(&grant.claim);
        let (grant, server) = (grant.clone(), self.server);
        let asked = self.ask(Op::Release, move |state, store| {
            let released = if rest.is_zero() {
                at_once(store.release(&grant))
            } else {
                at_once(store.rest(&grant, rest))
            };
            if matches!(released, Released::Released) {
                state.truth.gone(server, grant.claim.owner.as_bytes());
            }
            released
        });
        asked.await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), Error> {
        self.gives_back(claim);
        let (claim, server) = (claim.clone(), self.server);
        let asked = self.ask(Op::Withdraw, move |state, store| {
            let withdrawn = at_once(store.withdraw(&claim));
            state.truth.gone(server, claim.owner.as_bytes());
            withdrawn
        });
        asked.await
    }

    async fn subscribe(&self, claim: &Claim) -> Result<Hint, Error> {
        let (claim, hints, owner) = (claim.clone(), self.hints.clone(), claim.owner);
        let (node, life) = (self.net.node, self.net.life);
        let asked = self.ask(Op::Subscribe, move |_, store| {
            let hint = at_once(store.subscribe(&claim))?;
            Ok::<_, Error>(hints.subscribed(node, life, hint))
        });
        let woken = asked.await?;
        let look = self.must_look(*owner.as_bytes());
        Ok(Hint::new(async move {
            look();
            // A lost wake-up: nobody learns of it.
            if woken.await.is_err() {
                pending().await
            }
        }))
    }

    fn listen(&self, _: &Claim) -> Option<Hint> {
        None
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant, Error> {
        self.net.downgrades(grant);
        let grant = grant.clone();
        let asked = self.ask(Op::Downgrade, move |_, store| {
            at_once(store.downgrade(&grant))
        });
        asked.await
    }

    async fn revoke(&self, key: &Key, how: Revoke) -> Result<Revoked, Error> {
        let key = key.clone();
        let asked = self.ask(Op::Revoke, move |_, store| at_once(store.revoke(&key, how)));
        asked.await
    }

    async fn inspect(&self, key: &Key) -> Result<Option<LockInfo>, Error> {
        let key = key.clone();
        let asked = self.ask(Op::Inspect, move |_, store| at_once(store.inspect(&key)));
        asked.await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>, Error> {
        let prefix = prefix.to_owned();
        let asked = self.ask(Op::Inspect, move |_, store| at_once(store.list(&prefix)));
        asked.await
    }

    async fn close(&self) -> Result<(), Error> {
        Ok(())
    }
}

#[deny(clippy::missing_trait_methods)]
impl Member for SimStore {
    async fn ready(&self) -> Result<(), Error> {
        Ok(())
    }

    async fn vote(&self, claim: &Claim, floor: Option<FencingToken>) -> Result<Vote, Error> {
        let (claim, note) = (claim.clone(), self.note_grant());
        let asked = self.ask(Op::Acquire, move |state, store| {
            let vote = at_once(store.vote(&claim, floor));
            if let Ok(vote) = &vote {
                note(state, &vote.acquired);
                if let Acquired::Granted(grant) = &vote.acquired {
                    let owner = *claim.owner.as_bytes();
                    state.truth.named(owner, &claim.key, grant.token.number());
                }
            }
            vote
        });
        asked.await
    }

    async fn raise(&self, claim: &Claim, token: FencingToken) -> Result<Raised, Error> {
        let claim = claim.clone();
        let asked = self.ask(Op::Raise, move |state, store| {
            let raised = at_once(store.raise(&claim, token));
            if matches!(raised, Ok(Raised::Raised)) {
                let owner = *claim.owner.as_bytes();
                state.truth.named(owner, &claim.key, token.number());
            }
            raised
        });
        asked.await
    }
}
