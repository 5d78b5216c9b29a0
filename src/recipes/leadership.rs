//! [`Leadership`]: an office that was won.

use std::ops::Deref;

use crate::manager::LockGuard;
use crate::model::error::Error;
use crate::model::token::FencingToken;
use crate::recipes::pass_on::{self, Why};
use crate::recipes::term::OwnTerm;
use crate::store::Released;

/// An office that was won. Renewed until it is resigned, dropped or lost.
#[derive(Debug)]
#[must_use = "the office is resigned as soon as its leadership is dropped"]
pub struct Leadership {
    term: OwnTerm,
    guard: LockGuard,
    preference: u8,
}

impl Leadership {
    pub(super) fn new(guard: LockGuard, term: OwnTerm, preference: u8) -> Self {
        Self {
            term,
            guard,
            preference,
        }
    }

    /// The token of the term: larger than that of every term before.
    #[must_use]
    pub fn term(&self) -> FencingToken {
        self.guard.token()
    }

    /// Completes when this leader is asked to leave: by
    /// [`step_down`](super::election::Election::step_down), or because a candidate waits that is
    /// [preferred](super::election::Election::prefer) more. Finish what is in progress, and
    /// [resign](Self::resign). [`while_leader`](super::election::Election::while_leader) does so by
    /// itself.
    ///
    /// It asks the store once in each [`max_poll_interval`](crate::Settings::max_poll_interval). On
    /// a store without a queue it never completes.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn asked_to_leave(&self) {
        self.asked().await;
    }

    pub(super) async fn asked(&self) -> Why {
        let (term, own) = (self.term(), self.preference);
        match self
            .guard
            .waited_for(|info| pass_on::why(info, term, own))
            .await
        {
            Ok(why) => why,
            // Nobody can ask.
            Err(_) => std::future::pending().await,
        }
    }

    /// Ends the leadership and reports the result, as [`LockGuard::release`].
    ///
    /// # Errors
    ///
    /// As [`LockGuard::release`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: when this future is dropped, the end continues in the background.
    pub async fn resign(self) -> Result<Released, Error> {
        let Self { term, guard, .. } = self;
        drop(term);
        guard.release().await
    }
}

impl Deref for Leadership {
    type Target = LockGuard;

    fn deref(&self) -> &LockGuard {
        &self.guard
    }
}
