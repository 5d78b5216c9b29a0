//! [`Quorum`]: a majority of stores as one store. Redlock with fencing tokens, delayed restart and
//! honest renewal.
//!
//! # Durable state
//!
//! None of its own. Each [member](Member) keeps what any store keeps: who holds a key until when,
//! tombstones of withdrawn attempts, and a token counter. The client keeps a book of its attempts;
//! when its process dies, their TTLs end them.
//!
//! # The protocol
//!
//! 1. **Acquire.** All members are asked at once, under an owner token that is new for each
//!    attempt. Votes count while the members' clocks are within [`MAX_SKEW`] of each other. The
//!    attempt is decided as soon as a majority of *all* members voted for us, or no longer can. A
//!    vote is on its connection before anything else of its attempt. One that could not be sent
//!    before the attempt was decided, withdrawn or dropped is never sent.
//! 2. **Silence.** A member that has not answered a while after a majority did is *silent* until it
//!    answers. It gets one vote at a time, as a probe, and neither an attempt nor a release waits
//!    for it. A member that fails has not answered.
//! 3. **Token.** The largest token of the majority is the token. Before it is used, a majority of
//!    members that hold our vote has it as their counter's floor: by the vote itself, when all gave
//!    the same token, or by a second round, which is waited for like the first. (Attiya, Bar-Noy,
//!    Dolev 1995 write back before they return for the same reason.) The next majority has a member
//!    in common with that one; the member votes for another only after it is done with us; so it
//!    gives a larger token (I8). To save the second round, members are asked for a token of at
//!    least the time of the fastest clock among them, as far as we know; they then give the same.
//! 4. **Lost.** The votes that we got are given back, and whoever else may hold one is asked to
//!    withdraw the attempt: its tombstone refuses a request that is still under way. If the votes
//!    are split, so that nobody can have a majority, the next attempt follows after a short random
//!    pause.
//! 5. **Won.** The lease counts from before the first request, and lasts as long as a majority
//!    lasts. Late votes join.
//! 6. **Renewal.** Every member is asked; it is proven by a majority of *all* of them, not of those
//!    that voted first. A hold that ran out by our clock is not renewed (I2), nor is it by an
//!    answer that arrives after that. A member that lost its data gets its vote restored: it is
//!    asked for it under the same owner token, while the hold is proven. A vote that arrives when
//!    the hold is over is taken back. Without a majority the hold is lost. The votes that are left
//!    stay until it is released or its time is over: beside members that grant nothing yet, they
//!    keep the others out as long as its lease may last.
//! 7. **Release.** From here on no vote is renewed or restored. Every member that may hold a vote
//!    is asked. One that did not hold it, or was asked for it twice, gets a tombstone, since a vote
//!    may still be under way.
//!
//! # Limits
//!
//! There is no queue and there are no readers: each member would have an order of its own, and to
//! agree on one takes rounds that a lock with one store does not need. A lock cannot be revoked
//! either: a member that did not hold the vote does not learn whom to refuse, and the holder's next
//! renewal would restore the vote there.
//!
//! # Safety
//!
//! Two majorities have a member in common, and a member holds one vote. So no two holds are proven
//! at one time, as long as no member forgets a vote and gives it to another: therefore the delayed
//! restart in the [contract](Member) of a member. Clocks matter for safety only by their rate (I1),
//! and by [`MAX_SKEW`] for tokens over a loss of data.
//!
//! # Further reading
//!
//! S. Sanfilippo, "Distributed locks with Redis"; M. Kleppmann, "How to do distributed locking",
//! 2016 (Redlock has no fencing token); H. Attiya, A. Bar-Noy, D. Dolev, "Sharing memory robustly
//! in message-passing systems", 1995.

mod acquire;
mod attempt;
mod backlog;
mod book;
mod client;
mod electorate;
mod failures;
mod floor;
mod look;
mod release;
mod renew;
mod round;
mod silence;
#[cfg(test)]
mod tests;
mod vote;
mod vote_count;
mod votes;

pub use super::member::{MAX_SKEW, Member, Raised, Vote};
pub use client::Quorum;
