//! One attempt to hold: the script's call, where it is sent, and what its answer means.

use std::sync::Arc;
use std::time::Duration;

use super::claims::Request;
use super::client::{Ran, RedisClient, claim_parts};
use super::cluster::{Passage, Slot};
use super::connection::{Connection, Failure};
use super::ends::withdraw;
use super::judge::{Judged, Reached};
use super::mark::Mark;
use super::message::Asked;
use super::reply::{self, Attempted};
use super::script::{ACQUIRE, Call};
use crate::clock::ClockKind;
use crate::model::error::{Error, ErrorKind};
use crate::store::{Acquired, Claim, Grant, GrantProof, Vote};

/// No place is kept for longer: a number that a server can count by.
const MAX_PLACE_TTL: Duration = Duration::from_secs(86_400);
/// How often an attempt is made at a server that is another each time.
const MAX_ATTEMPTS: u32 = 4;

impl RedisClient {
    /// One attempt, at the server that has the lock. `vote`: as the vote of a member, with the
    /// least token that will do; 0: any.
    pub(super) async fn attempt(
        self: &Arc<Self>,
        claim: &Claim,
        vote: Option<u64>,
    ) -> Result<Vote, Error> {
        self.check(claim)?;
        let (names, slot) = (&self.options().names, self.slot_of(&claim.key));
        let how = (self.attempt_purpose(), Passage::Waits);
        let attempt = |connection, _| self.attempt_at(claim, vote, slot, connection);
        let answer = self.servers.at(names, &claim.key, how, attempt).await;
        answer.map_err(|failure| failure.into_error("acquire"))
    }

    /// An attempt at one server, which is judged first if this connection has not done so.
    async fn attempt_at(
        self: &Arc<Self>,
        claim: &Claim,
        vote: Option<u64>,
        slot: Option<Slot>,
        connection: Arc<Connection>,
    ) -> Result<Vote, Failure> {
        let place = place_millis(claim, vote);
        let reached = self.reach(connection, slot).await?;
        for _ in 0..MAX_ATTEMPTS {
            let mark = match reached.judged().await? {
                Judged::Mark(mark) => mark,
                Judged::Waits(retry_after) => {
                    let acquired = Acquired::NotReady { retry_after };
                    return Ok(Vote {
                        acquired,
                        micros: 0,
                    });
                }
            };
            let request = self.claims.request(claim, vote.is_some());
            let request = request.map_err(Failure::Answered)?;
            let call = self.acquire_call(claim, vote, slot, &mark, &request);
            let waits = self.options().waits_for_replicas();
            let ran = match reached.run(&mark, &ACQUIRE, &call, waits).await {
                Ok(ran) => ran,
                // The request may be executed later.
                Err(failure @ Failure::Unanswered(_)) => return Err(failure),
                Err(failure) => {
                    request.answered(None);
                    return Err(failure);
                }
            };
            let attempted = reply::attempted(&ran.answer);
            let has_written = match attempted {
                Ok(Attempted::Granted { .. }) => true,
                Ok(Attempted::Busy { .. }) => place > 0,
                _ => false,
            };
            if has_written && !ran.is_doubtful {
                reached.session.proven(request.sent_at.on(ClockKind::Boot));
                mark.proven(&request.sent_at);
            }
            request.noted(&attempted, &ran, &mark);
            let (acquired, micros) = match attempted.map_err(Failure::Answered)? {
                Attempted::Judge => {
                    reached.session.forget(slot, &mark);
                    continue;
                }
                Attempted::Gone => return Err(Failure::Answered(withdrawn(claim))),
                Attempted::Busy { left, micros, .. } => {
                    (Acquired::Busy { remaining: left }, micros)
                }
                Attempted::Granted { token, micros } => {
                    self.confirmed(claim, &ran, &reached).await?;
                    let proof = GrantProof::in_millis(claim.ttl);
                    let grant = Grant::new(claim.clone(), token, proof);
                    (Acquired::Granted(grant), micros)
                }
            };
            reached.session.served();
            return Ok(Vote { acquired, micros });
        }
        Err(Failure::Answered(Error::unavailable(format!(
            "redis is flushed or replaced again and again: address={}; try later",
            reached.connection.address()
        ))))
    }

    /// Checks that a grant is one of a server that is what it was, and of enough of its replicas.
    async fn confirmed(
        self: &Arc<Self>,
        claim: &Claim,
        ran: &Ran,
        reached: &Reached,
    ) -> Result<(), Failure> {
        let error = match ran.confirmed {
            _ if ran.is_doubtful => Error::in_doubt(format!(
                "redis was deposed, flushed or replaced since this connection was used last, or does not say whether it was: address={}; ask again with the same claim, or withdraw it",
                reached.connection.address()
            )),
            Some(confirmed) if confirmed < self.options().replicas => {
                reached.session.served();
                self.unconfirmed(claim, confirmed).await
            }
            _ => return Ok(()),
        };
        Err(Failure::Answered(error))
    }

    fn check(&self, claim: &Claim) -> Result<(), Error> {
        let (ttl, most) = (claim.ttl, self.options().max_ttl);
        if ttl < Duration::from_millis(1) || ttl > most {
            return Err(Error::invalid(format!(
                "ttl={ttl:?} is out of range; ask for 1ms to max_ttl={most:?}, or set max_ttl for all clients of this prefix"
            )));
        }
        if claim.place_ttl > MAX_PLACE_TTL {
            return Err(Error::invalid(format!(
                "place_ttl={:?} is out of range; keep a place for up to {MAX_PLACE_TTL:?}",
                claim.place_ttl
            )));
        }
        Ok(())
    }

    /// What becomes of a grant that too few replicas confirmed.
    ///
    /// A claim that may have a place is asked again, so that it keeps its place, and may be
    /// confirmed then: its grant stays as it is, in doubt, and the caller withdraws it when it
    /// gives up. If it was released here, a late release would end the grant of the next attempt.
    async fn unconfirmed(self: &Arc<Self>, claim: &Claim, confirmed: u32) -> Error {
        let options = self.options();
        let (kind, so) = if !claim.place_ttl.is_zero() {
            (
                ErrorKind::InDoubt,
                "ask again with the same claim, or withdraw it",
            )
        } else {
            match withdraw(self, claim).await {
                Ok(()) => (ErrorKind::Unavailable, "it was taken back"),
                Err(_) => (ErrorKind::InDoubt, "it could not be taken back"),
            }
        };
        Error::new(
            kind,
            format!(
                "too few replicas confirmed the grant: key={} replicas={} confirmed={confirmed} waited={:?}; {so}, and repair the replicas",
                claim.key, options.replicas, options.replica_wait
            ),
        )
    }

    fn acquire_call(
        &self,
        claim: &Claim,
        vote: Option<u64>,
        slot: Option<Slot>,
        mark: &Mark,
        request: &Request<'_>,
    ) -> Call {
        let (names, key) = (&self.options().names, &claim.key);
        let (digits, mode, label) = claim_parts(claim);
        let call = Call::sized()
            .parts(names.lock_parts(key))
            .parts(names.beside_parts(key, "line"))
            .arg(names.marker(slot))
            .parts(names.gone_parts(key, &digits))
            .arg(names.token(slot))
            .end_keys()
            .parts([&digits[..], mode.as_bytes(), label.as_bytes()])
            .number(claim.ttl.as_millis())
            .arg(&mark.text)
            .number(place_millis(claim, vote))
            .number(mark.server_millis(&request.sent_at));
        match vote {
            Some(least) => call.number(least.into()),
            None => call,
        }
    }
}

impl Request<'_> {
    /// A claim that has to wait may be granted by message from now on. One that waits for replicas
    /// asks again.
    fn noted(self, attempted: &Result<Attempted, Error>, ran: &Ran, mark: &Arc<Mark>) {
        let sent_at = self.sent_at;
        let asked = match *attempted {
            Ok(Attempted::Busy { micros, last, .. })
                if !ran.is_doubtful && ran.confirmed.is_none() =>
            {
                let mark = Arc::clone(mark);
                Some(Asked {
                    sent_at,
                    micros,
                    last,
                    mark,
                })
            }
            _ => None,
        };
        self.answered(asked);
    }
}

fn withdrawn(claim: &Claim) -> Error {
    Error::invalid(format!(
        "this claim was withdrawn: key={}; make a new claim",
        claim.key
    ))
}

/// For how long a claim that must wait keeps a place: a whole number, and 0 only for none at all. A
/// vote takes no place: its quorum asks all members again.
fn place_millis(claim: &Claim, vote: Option<u64>) -> u128 {
    if vote.is_some() || claim.place_ttl.is_zero() {
        return 0;
    }
    claim.place_ttl.as_millis().max(1)
}
