//! [`Quorum`]: the members as one store.

use std::sync::Arc;

use super::electorate::Electorate;
use super::{acquire, look, release, renew};
use crate::clock::Clock;
use crate::model::error::Error;
use crate::model::key::Key;
use crate::store::{
    Acquired, Capability, Claim, Fencing, Grant, Hint, LockInfo, Member, Released, Renewed, Store,
};

/// More members make a lock slower, not safer.
const MAX_MEMBERS: usize = 15;

/// A majority of stores as one store: it grants while a majority of its members does. Cloning is
/// cheap; all clones are the same client.
///
/// Three members survive the loss of one, five of two. An even number survives no more than the odd
/// one below it. The [module's page](super) describes the protocol. It must be used within a tokio
/// runtime, where requests that nobody waits for any longer are driven to their end.
#[derive(Debug)]
#[doc(alias = "Redlock")]
pub struct Quorum<M> {
    electorate: Arc<Electorate<M>>,
}

impl<M: Member> Quorum<M> {
    /// A quorum of these members, which counts by the machine's clocks. No two may be the same
    /// store.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for no members or more than 15; else as
    /// [`Clock::system`].
    pub fn new(members: impl IntoIterator<Item = M>) -> Result<Self, Error> {
        Self::with_clock(members, Clock::system()?)
    }

    /// The same, counting by `clock`: the client's clock, which need not be that of any member.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for no members or more than 15.
    pub fn with_clock(
        members: impl IntoIterator<Item = M>,
        clock: impl Into<Clock>,
    ) -> Result<Self, Error> {
        let members: Vec<_> = members.into_iter().map(Arc::new).collect();
        if members.is_empty() || members.len() > MAX_MEMBERS {
            return Err(Error::invalid(format!(
                "a quorum has 1 to {MAX_MEMBERS} members: members={}; name fewer or more",
                members.len()
            )));
        }
        Ok(Self {
            electorate: Arc::new(Electorate::new(members, clock.into())),
        })
    }

    /// The members, in the order in which they were named.
    pub fn members(&self) -> impl Iterator<Item = &M> {
        self.electorate.members.iter().map(|member| &**member)
    }
}

impl<M> Clone for Quorum<M> {
    fn clone(&self) -> Self {
        let electorate = Arc::clone(&self.electorate);
        Self { electorate }
    }
}

impl<M: Member> Store for Quorum<M> {
    fn name(&self) -> &'static str {
        "quorum"
    }

    /// What every member claims.
    fn capability(&self) -> Capability {
        let claims = || {
            self.electorate
                .members
                .iter()
                .map(|member| member.capability())
        };
        let monotonic = claims().all(|claim| claim.fencing == Fencing::Monotonic);
        Capability {
            fencing: if monotonic {
                Fencing::Monotonic
            } else {
                Fencing::None
            },
            wakes: claims().all(|claim| claim.wakes),
            ttl_per_lock: claims().all(|claim| claim.ttl_per_lock),
            heartbeat: claims().filter_map(|claim| claim.heartbeat).min(),
            reports_holder: claims().all(|claim| claim.reports_holder),
            ..Capability::least()
        }
    }

    async fn acquire(&self, claim: &Claim) -> Result<Acquired, Error> {
        acquire::acquire(&self.electorate, claim).await
    }

    async fn renew(&self, grants: &[Grant]) -> Vec<Renewed> {
        renew::renew(&self.electorate, grants).await
    }

    async fn release(&self, grant: &Grant) -> Released {
        release::release(&self.electorate, grant).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), Error> {
        release::withdraw(&self.electorate, claim).await
    }

    async fn subscribe(&self, claim: &Claim) -> Result<Hint, Error> {
        look::subscribe(&self.electorate, claim).await
    }

    async fn inspect(&self, key: &Key) -> Result<Option<LockInfo>, Error> {
        look::inspect(&self.electorate, key).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>, Error> {
        look::list(&self.electorate, prefix).await
    }

    async fn close(&self) -> Result<(), Error> {
        let closes = self.electorate.members.iter().map(|member| member.close());
        let closed = futures_util::future::join_all(closes).await;
        closed.into_iter().collect()
    }
}
