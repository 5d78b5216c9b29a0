//! `leasehold leader`: a command that runs on one of many hosts, and on the next when that one is gone.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::{Election, ErrorKind, LockManager};
use nix::sys::signal::Signal;
use serde_json::json;
use tokio::sync::Notify;

use super::countdown::Countdown;
use super::held::Held;
use super::under::{Ended, run_under};
use super::{observed, put_away};
use crate::args::LeaderArgs;
use crate::exit::{Failure, Status, with_causes};
use crate::output::Output;
use crate::signals::Signals;
use crate::store;

/// The pause before another campaign, after a store that could not be reached or a term that was lost.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) async fn leader(args: &LeaderArgs, output: Output) -> Result<Status, Failure> {
    args.store.named()?;
    let url = args.store.shared()?;
    let mut signals = Signals::listen()?;
    let renewals = Arc::new(Notify::new());
    let settings = store::settings(args.command.ttl, None);
    let locks = tokio::select! {
        builder = LockManager::builder_for_url(&url, settings) => observed(builder?, &renewals).build()?,
        signal = signals.ending() => return Ok(Status::Signal(signal)),
    };
    let ended = lead(&locks, args, &mut signals, &renewals, output).await;
    put_away(&locks, &mut signals).await;
    ended
}

/// Term after term, until the command ends by itself in one.
async fn lead(
    locks: &LockManager,
    args: &LeaderArgs,
    signals: &mut Signals,
    renewals: &Notify,
    output: Output,
) -> Result<Status, Failure> {
    let countdown = Countdown::of(locks, args.command.kill_grace)?;
    let clock = Clock::system()?;
    let election = locks.election(&args.election);
    loop {
        let held = tokio::select! {
            held = campaign(&election, args, &clock, output) => held?,
            signal = signals.ending() => return Ok(Status::Signal(signal)),
        };
        match run_under(held, &args.command, countdown, signals, renewals, output).await? {
            Ended::ByItself(status) => return Ok(status),
            // The sender wants no other term.
            Ended::Lost {
                asked: Some(signal),
            } if signal != Signal::SIGHUP => {
                return Ok(Status::Signal(signal));
            }
            // Another may lead by now. We campaign for the next term.
            Ended::Lost { .. } => {}
        }
    }
}

/// Campaigns until it has won.
async fn campaign(
    election: &Election,
    args: &LeaderArgs,
    clock: &Clock,
    output: Output,
) -> Result<Held, Failure> {
    loop {
        match election.campaign(args.label.as_str()).await {
            Ok(leadership) => return Ok(Held::Term(leadership)),
            Err(error) => match error.kind() {
                ErrorKind::Contended => {}
                ErrorKind::Unavailable | ErrorKind::InDoubt => {
                    let why = with_causes(&error);
                    output.event(
                        format!("{why}; campaigning again"),
                        &json!({ "event": "campaign_failed", "why": why }),
                    );
                    clock.sleep(PAUSE).await;
                }
                _ => return Err(error.into()),
            },
        }
    }
}
