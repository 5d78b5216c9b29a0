//! Renewing many grants at one server: one request with one script for each batch of locks.
//!
//! With `replicas` a renewal counts only when they have it: a master that was deposed, and
//! has lost its replicas to another master, keeps no holder beside the other's.

use std::collections::HashSet;
use std::fmt::Write;

use ::redis::{Cmd, RedisError, Value};

use super::client::RedisClient;
use super::cluster::Slot;
use super::connection::{Connection, Failure, confirmed, is_unknown_script};
use super::notes::Notes;
use super::reply;
use super::script::{Call, RENEW, Script};
use crate::clock::ClockKind;
use crate::model::error::Error;
use crate::store::{Grant, Renewed};

/// How many grants one script renews: the server answers nobody else meanwhile.
pub(super) const RENEW_BATCH: usize = 500;

/// Whether the replicas have what a server answered. `Some`: too few of them, and why.
#[derive(Debug)]
pub(super) struct Confirmation(Option<Error>);

impl Confirmation {
    /// What an answer means for its grants. A renewal that is not confirmed proves nothing: its
    /// server may have been deposed.
    pub(super) fn read<'a>(
        &self,
        grants: impl ExactSizeIterator<Item = &'a Grant>,
        answer: &Value,
    ) -> Vec<Renewed> {
        let mut renewed = reply::renewed(grants, answer);
        if let Some(why) = &self.0 {
            for one in &mut renewed {
                if matches!(one, Renewed::Extended(_)) {
                    *one = Renewed::Unknown(why.clone());
                }
            }
        }
        renewed
    }
}

/// Renews grants that one server has.
pub(super) async fn renew_at(
    client: &RedisClient,
    connection: &Connection,
    grants: &[Grant],
) -> Vec<Renewed> {
    let batches = grants.chunks(RENEW_BATCH);
    let calls = batches
        .clone()
        .map(|batch| renew_call(client, batch.iter()));
    let calls: Vec<_> = calls.collect();
    match renew_over(client, connection, &calls, false).await {
        Ok((answers, confirmation)) => (batches.zip(answers))
            .flat_map(|(batch, answer)| match answer {
                Ok(answer) => confirmation.read(batch.iter(), &answer),
                Err(refusal) => all_unknown(batch, &Failure::of(refusal).into_error("renew")),
            })
            .collect(),
        Err(failure) => all_unknown(grants, &failure.into_error("renew")),
    }
}

/// The call that renews grants, all of one slot where there are slots.
pub(super) fn renew_call<'a>(
    client: &RedisClient,
    grants: impl Iterator<Item = &'a Grant> + Clone,
) -> Call {
    let names = &client.options().names;
    let owners = grants.clone().map(|grant| grant.claim.owner.digits());
    let mut ttls = String::with_capacity(8 * owners.size_hint().0);
    for grant in grants.clone() {
        // Writing to memory never fails.
        let _ = write!(ttls, "{} ", grant.claim.ttl.as_millis());
    }
    Call::joined(grants.map(|grant| names.lock_parts(&grant.claim.key)))
        .parts(owners)
        .arg(ttls)
}

/// Makes calls of [`RENEW`] in one request; one answer for each. `is_asking`: of the node to which
/// the slot of the only call is moving.
pub(super) async fn renew_over(
    client: &RedisClient,
    connection: &Connection,
    calls: &[Call],
    is_asking: bool,
) -> Result<(Vec<Result<Value, RedisError>>, Confirmation), Failure> {
    // A request of nothing has no answer, and would count as unanswered.
    if calls.is_empty() {
        return Ok((Vec::new(), Confirmation(None)));
    }
    let slots: HashSet<_> = (calls.iter())
        .map(|call| client.slot_of_name(call.first_key()))
        .collect();
    let session = connection.session().await.map_err(Failure::NotSent)?;
    let (run, now) = (session.server.run(), client.now().on(ClockKind::Boot));
    let due = (slots.iter().copied()).filter(|slot| client.noted.lacks(run, *slot, now));
    let due: Vec<_> = due.collect();
    let notes = |slots: &[Option<Slot>]| -> Vec<Script> {
        let left = |slot: &Option<Slot>| Notes::of(client.options(), *slot, &session.server).left;
        slots.iter().flat_map(left).collect()
    };
    let by_hash = calls.iter().map(|call| call.by_hash(&RENEW));
    let answered = renew_by(client, connection, is_asking, by_hash, &notes(&due)).await?;
    for slot in due {
        client.noted.left(run, slot, now);
    }
    let is_unknown = |answer: &Result<_, RedisError>| answer.as_ref().is_err_and(is_unknown_script);
    if !answered.0.iter().any(is_unknown) {
        return Ok(answered);
    }
    // Somebody removed the scripts, and with them the notes.
    let notes = notes(&slots.into_iter().collect::<Vec<_>>());
    // The first call carries the text, which loads it for the others. To renew twice is to renew
    // once.
    let by_text = calls.iter().enumerate().map(|(index, call)| {
        if index == 0 {
            call.by_text(&RENEW)
        } else {
            call.by_hash(&RENEW)
        }
    });
    renew_by(client, connection, is_asking, by_text, &notes).await
}

/// The notes, the commands, and with `replicas` one wait for all of them.
async fn renew_by(
    client: &RedisClient,
    connection: &Connection,
    is_asking: bool,
    commands: impl Iterator<Item = Cmd>,
    notes: &[Script],
) -> Result<(Vec<Result<Value, RedisError>>, Confirmation), Failure> {
    let options = client.options();
    let mut all = ::redis::pipe();
    for note in notes {
        all.add_command(note.load());
    }
    if is_asking {
        all.cmd("ASKING");
    }
    for command in commands {
        all.add_command(command);
    }
    if options.replicas > 0 {
        all.add_command(options.wait_for_replicas());
    }
    let mut answers = connection.ask_all(&all).await?;
    answers.drain(..answers.len().min(notes.len() + usize::from(is_asking)));
    if options.replicas == 0 {
        return Ok((answers, Confirmation(None)));
    }
    let confirmed = confirmed(answers.pop());
    let lacking = (confirmed < options.replicas).then(|| {
        Error::unavailable(format!(
            "too few replicas confirmed the renewal, so it proves nothing: replicas={} confirmed={confirmed} waited={:?}; repair the replicas",
            options.replicas, options.replica_wait
        ))
    });
    Ok((answers, Confirmation(lacking)))
}

pub(super) fn all_unknown(grants: &[Grant], error: &Error) -> Vec<Renewed> {
    grants
        .iter()
        .map(|_| Renewed::Unknown(error.clone()))
        .collect()
}
