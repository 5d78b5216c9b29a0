//! [`AttemptGuard`]: what an attempt may leave with the members is taken back, unless it is kept.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::electorate::{Electorate, as_attempt};
use super::round::{Round, patience};
use super::vote::take_back;
use super::votes::VoteSet;
use crate::model::holder::OwnerToken;
use crate::store::{Claim, Grant, Member, Released};

/// Takes all votes of an attempt back, unless it is kept: when the attempt is lost, and when its
/// caller drops it at any await.
pub(super) struct AttemptGuard<'a, M: Member> {
    electorate: &'a Arc<Electorate<M>>,
    home: &'a Handle,
    claim: &'a Claim,
    owner: OwnerToken,
    votes: VoteSet,
    lost: bool,
    kept: bool,
}

impl<'a, M: Member> AttemptGuard<'a, M> {
    pub(super) fn new(
        electorate: &'a Arc<Electorate<M>>,
        home: &'a Handle,
        claim: &'a Claim,
        owner: OwnerToken,
        votes: VoteSet,
    ) -> Self {
        Self {
            electorate,
            home,
            claim,
            owner,
            votes,
            lost: false,
            kept: false,
        }
    }

    pub(super) fn keep(mut self) {
        self.votes.close();
        self.kept = true;
    }

    /// Gives back the votes that were granted, and waits for it, so that the next attempt does not
    /// meet them.
    pub(super) async fn give_back(mut self, granted: Vec<(usize, Grant)>) {
        self.lost = true;
        self.votes.close();
        let clock = self.electorate.clock.clone();
        let mut round = Round::new(self.home.clone(), clock, patience(self.claim.ttl));
        for (member, grant) in granted {
            let (electorate, votes) = (Arc::clone(self.electorate), self.votes.clone());
            round.ask(member, async move {
                let released = electorate.members[member].release(&grant).await;
                electorate.heard(member, !matches!(released, Released::Unknown(_)));
                if matches!(released, Released::Released) {
                    votes.remove(member);
                }
            });
        }
        while round.next(true).await.is_some() {}
        self.electorate.note_unanswered(&round);
    }
}

impl<M: Member> Drop for AttemptGuard<'_, M> {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        // What was dropped undecided stays in the book, so that a withdrawal of its claim waits for
        // the members.
        if self.lost {
            self.electorate.book.lock().strike(self.claim, self.owner);
        }
        take_back_all(
            self.electorate,
            self.home,
            self.claim,
            self.owner,
            &self.votes,
        );
    }
}

/// Takes the votes of an attempt back from every member that may hold one, in the background.
pub(super) fn take_back_all<M: Member>(
    electorate: &Arc<Electorate<M>>,
    home: &Handle,
    claim: &Claim,
    owner: OwnerToken,
    votes: &VoteSet,
) {
    votes.close();
    for member in 0..electorate.members.len() {
        if votes.contains(member) {
            let attempt = as_attempt(claim, owner);
            let electorate = Arc::clone(electorate);
            home.spawn(take_back(
                electorate,
                home.clone(),
                member,
                attempt,
                votes.clone(),
            ));
        }
    }
}
