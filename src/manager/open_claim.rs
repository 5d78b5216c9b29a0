//! [`OpenClaim`]: one claim and the requests for it.

use std::sync::Arc;
use std::time::Duration;

use super::context::ManagerContext;
use super::wish::Wish;
use crate::model::error::{Error, ErrorKind};
use crate::model::holder::OwnerToken;
use crate::store::{Acquired, Claim, Hint, Queue};

/// A claim that the store may know of. Dropped while it is open, it is withdrawn in the background.
pub(super) struct OpenClaim<'a> {
    context: &'a Arc<ManagerContext>,
    pub(super) claim: Claim,
    /// How long the store keeps its place once it has one; zero for none.
    place_ttl: Duration,
    is_open: bool,
    /// As before the last request.
    was_open: bool,
    /// The store may know of the claim from an earlier wish.
    pub(super) was_asked: bool,
    /// A request was not answered: it may be executed at any time.
    pub(super) was_in_doubt: bool,
    /// The last request was given up when the caller's wait was over, before the time that a
    /// request has.
    pub(super) was_cut_short: bool,
}

impl<'a> OpenClaim<'a> {
    /// `place_ttl` is how long the store keeps the claim's place in its queue; zero for none.
    pub(super) fn new(
        context: &'a Arc<ManagerContext>,
        wish: &Wish,
        place_ttl: Duration,
    ) -> Result<Self, Error> {
        let owner = OwnerToken::generate_for(context.mark)?;
        let label = wish.label.clone();
        let mut claim = Claim::new(
            wish.key.clone(),
            owner,
            label,
            context.asked_ttl(&wish.times),
        );
        (claim.mode, claim.share) = (wish.mode, wish.share);
        claim.place_ttl = place_ttl;
        Ok(Self {
            context,
            claim,
            place_ttl,
            is_open: false,
            was_open: false,
            was_asked: false,
            was_in_doubt: false,
            was_cut_short: false,
        })
    }

    /// The claim, for a request that begins.
    pub(super) fn ask(&mut self) -> &Claim {
        self.was_open = std::mem::replace(&mut self.is_open, true);
        &self.claim
    }

    /// What the request came to; `answer` is `None` if there was none within `limit`.
    pub(super) fn answered(
        &mut self,
        answer: Option<Result<Acquired, Error>>,
        limit: Duration,
    ) -> Result<Acquired, Error> {
        let context = self.context;
        // A caller who waits for less than the time of a request learns nothing about the store.
        let is_cut_short = answer.is_none() && limit < context.settings.request_timeout;
        self.was_cut_short = is_cut_short;
        let answer = answer.unwrap_or_else(|| {
            let key = &self.claim.key;
            let what = if is_cut_short {
                "the wait was over before the store answered an acquire".to_owned()
            } else {
                format!("no answer to an acquire within {limit:?}")
            };
            Err(Error::in_doubt(format!(
                "{what}: key={key}; it is withdrawn in the background"
            )))
        });
        if !is_cut_short {
            context.note_answer(&self.claim.key, &answer);
        }
        self.was_asked = true;
        match &answer {
            Ok(Acquired::Granted(_)) => {}
            Ok(Acquired::Busy { .. } | Acquired::NotReady { .. }) => {
                // A queue without handovers keeps a node for each claim, even for one that is asked
                // only once. An earlier request without an answer may still arrive.
                self.is_open = self.was_in_doubt
                    || self.keeps_place()
                    || context.capability.queue == Queue::Places;
            }
            Err(error) => match error.kind() {
                ErrorKind::InDoubt => self.was_in_doubt = true,
                // Nothing happened, so there is nothing to withdraw.
                ErrorKind::Unavailable => self.is_open = self.was_open,
                _ => {}
            },
        }
        answer
    }

    /// Whether the store keeps a place for the claim once it has to wait.
    pub(super) fn has_place(&self) -> bool {
        self.context.capability.is_fair() && !self.place_ttl.is_zero()
    }

    /// Whether the store has kept a place for the claim since the last busy answer.
    fn keeps_place(&self) -> bool {
        self.has_place() && !self.claim.place_ttl.is_zero()
    }

    /// The next requests take no place, if it is better to [subscribe](Self::subscribe) before.
    pub(super) fn defer_place(&mut self) {
        if self.context.capability.subscribes_first {
            self.claim.place_ttl = Duration::ZERO;
        }
    }

    /// The next request takes a place if the claim has to wait. True if the last one took none.
    pub(super) fn take_place(&mut self) -> bool {
        let was_deferred = self.claim.place_ttl != self.place_ttl;
        self.claim.place_ttl = self.place_ttl;
        was_deferred
    }

    /// Subscribes to wake-ups without a request, where that is possible.
    pub(super) fn listen(&self) -> Option<Hint> {
        if self.has_place() {
            self.context.store.listen(&self.claim)
        } else {
            None
        }
    }

    /// Subscribes to wake-ups. `None` if there is no subscription: the caller polls.
    pub(super) async fn subscribe(&self, limit: Duration) -> Option<Hint> {
        let subscribing = self.context.store.subscribe(&self.claim);
        match self.context.clock.timeout(limit, subscribing).await {
            Some(Ok(hint)) => Some(hint),
            Some(Err(error)) => {
                tracing::debug!(target: "leasehold::manager", key = %self.claim.key, %error, "no subscription to wake-ups: polling");
                None
            }
            None => None,
        }
    }

    /// The claim is held: there is nothing to withdraw.
    pub(super) fn close(mut self) {
        self.is_open = false;
    }
}

impl Drop for OpenClaim<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.context.withdraw(self.claim.clone());
        }
    }
}
