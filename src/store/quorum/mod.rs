//! [`Quorum`]: a majority of stores as one store. Redlock, mended.
//!
//! # Durable state
//!
//! None of its own. Each [member](Member) keeps what any store keeps: who holds a key until when, tombstones of what was
//! withdrawn, and a token counter. This side keeps a book of the attempts that it makes; when its process dies, their
//! TTLs end them.
//!
//! # The protocol
//!
//! 1. **Acquire.** All members are asked at once, under an owner token that is new for each attempt. Votes count while the
//!    members' clocks are within [`MAX_SKEW`] of each other. It is decided as soon as a majority of *all*
//!    members voted for us or no longer can, so that a minority that is down, slow or stopped costs no time.
//! 2. **Token.** The largest token of the majority is the token. Before it is handed out, a majority of members that hold
//!    our vote has it as their counter's floor: by the vote itself, when all gave the same token, or by a second round,
//!    which is waited for like the first. (Attiya, Bar-Noy, Dolev 1995 write back before they return for the same reason.)
//!    The next majority has a member in common with that one; the member votes for another only after it is done with us; so
//!    it gives a larger token (I8). To save the second round, members are asked for a token of at least what the fastest
//!    clock among them shows, as far as we know; they then give the same.
//! 3. **Lost.** Every member is asked to withdraw the attempt, also those that have not answered: the tombstone refuses what
//!    is still on its way.
//! 4. **Won.** The lease counts from before the first request, and lasts as long as a majority lasts. Late votes join.
//! 5. **Renewal.** Every member is asked; it is proven by a majority of *all* of them, not of those that voted first. A hold
//!    that ran out by our clock is not renewed (I2). A member that lost its data is planted again: asked for its vote under
//!    the same owner token, while the hold is proven. A vote that comes when it is over is taken back.
//! 6. **Release.** From here on the hold is neither renewed nor planted. Goes to every member. Whoever did not hold our vote
//!    gets a tombstone, since a vote may still be on its way.
//!
//! # What it cannot
//!
//! There is no queue and there are no readers: each member would have an order of its own, and to agree on one takes rounds
//! of which a lock with one store has none. Nor is a lock taken away: a member that did not hold the vote does not learn
//! whom to refuse, and would be planted with it by the holder's next renewal.
//!
//! # Safety
//!
//! Two majorities have a member in common, and a member holds one vote. So no two holds are proven at one time, as long as
//! no member forgets a vote and gives it to another: hence the delayed restart in the [contract](Member) of a member. Clocks
//! matter for safety only by their rate (I1), and by [`MAX_SKEW`] for tokens over a loss of data.
//!
//! # Further reading
//!
//! S. Sanfilippo, "Distributed locks with Redis"; M. Kleppmann, "How to do distributed locking", 2016 (Redlock has no
//! fencing token); H. Attiya, A. Bar-Noy, D. Dolev, "Sharing memory robustly in message-passing systems", 1995.

mod acquire;
mod book;
mod election;
mod floor;
mod look;
mod release;
mod renew;
mod round;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use parking_lot::Mutex;

pub use super::member::{MAX_SKEW, Member, Raised, Vote};

use self::book::Book;
use self::election::majority;
use self::floor::Estimate;
use super::{
    Acquired, Capability, Claim, Fencing, Grant, Hint, LockInfo, Released, Renewed, Store,
};
use crate::clock::Clock;
use crate::model::error::Error;
use crate::model::holder::OwnerToken;
use crate::model::key::Key;

/// More members make a lock slower, not safer.
const MAX_MEMBERS: usize = 15;

/// A majority of stores as one store: it grants while a majority of its members does. Cloning is cheap; all clones are the
/// same client.
///
/// Three members bear the loss of one, five of two. An even number bears no more than the odd one below it. What it does
/// stands on the [module's page](self). It must be used within a tokio runtime: answers that nobody waits for any more are
/// driven to their end there.
#[derive(Debug)]
#[doc(alias = "Redlock")]
pub struct Quorum<M> {
    shared: Arc<Shared<M>>,
}

#[derive(Debug)]
struct Shared<M> {
    members: Vec<Arc<M>>,
    clock: Clock,
    book: Mutex<Book>,
    estimate: Mutex<Estimate>,
}

impl<M: Member> Quorum<M> {
    /// A quorum of these members, which counts by the machine's clocks. No two may be the same store.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for no members or more than 15; else as [`Clock::system`].
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
            shared: Arc::new(Shared {
                members,
                clock: clock.into(),
                book: Mutex::default(),
                estimate: Mutex::default(),
            }),
        })
    }

    /// The members, in the order in which they were named.
    pub fn members(&self) -> impl Iterator<Item = &M> {
        self.shared.members.iter().map(|member| &**member)
    }
}

impl<M> Clone for Quorum<M> {
    fn clone(&self) -> Self {
        let shared = Arc::clone(&self.shared);
        Self { shared }
    }
}

impl<M: Member> Shared<M> {
    fn need(&self) -> usize {
        majority(self.members.len())
    }
}

/// The claim as the members know it.
fn as_attempt(claim: &Claim, owner: OwnerToken) -> Claim {
    Claim {
        owner,
        ..claim.clone()
    }
}

impl<M: Member> Store for Quorum<M> {
    fn name(&self) -> &'static str {
        "quorum"
    }

    /// What every member claims.
    fn capability(&self) -> Capability {
        let claims = || self.shared.members.iter().map(|member| member.capability());
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
            tells_holder: claims().all(|claim| claim.tells_holder),
            ..Capability::least()
        }
    }

    async fn acquire(&self, claim: &Claim) -> Result<Acquired, Error> {
        acquire::acquire(&self.shared, claim).await
    }

    async fn renew(&self, grants: &[Grant]) -> Vec<Renewed> {
        renew::renew(&self.shared, grants).await
    }

    async fn release(&self, grant: &Grant) -> Released {
        release::release(&self.shared, grant).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), Error> {
        release::withdraw(&self.shared, claim).await
    }

    async fn subscribe(&self, claim: &Claim) -> Result<Hint, Error> {
        look::subscribe(&self.shared, claim).await
    }

    async fn inspect(&self, key: &Key) -> Result<Option<LockInfo>, Error> {
        look::inspect(&self.shared, key).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>, Error> {
        look::list(&self.shared, prefix).await
    }

    async fn close(&self) -> Result<(), Error> {
        let closes = self.shared.members.iter().map(|member| member.close());
        let closed = futures_util::future::join_all(closes).await;
        closed.into_iter().collect()
    }
}
