//! `leasehold leader`: a command that runs on one of many hosts, and on the next when that one is
//! gone.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::election::Election;
use leasehold::{ErrorKind, LockManager};
use nix::sys::signal::Signal;
use serde_json::json;
use tokio::sync::Notify;

use super::connect::{Patience, connect};
use super::countdown::Countdown;
use super::held::HoldOfRun;
use super::pause::pause_after;
use super::under::{Ended, run_under};
use super::{PARTING, observed, put_away};
use crate::args::{LeaderArgs, StepDownArgs};
use crate::exit::{Failure, Status, code, with_causes};
use crate::output::Output;
use crate::signals::Signals;
use crate::store;

/// The pause before another campaign, after one that failed.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) async fn leader(args: &LeaderArgs, output: Output) -> Result<Status, Failure> {
    let mut signals = Signals::listen()?;
    args.store.named()?;
    let url = args.store.shared()?;
    let renewals = Arc::new(Notify::new());
    let settings = store::settings(args.command.ttl, None);
    let locks = tokio::select! {
        biased;
        signal = signals.ending() => return Ok(Status::Signal(signal)),
        builder = connect(&url, settings, Patience::Endless, output) => observed(builder?, &renewals).build()?,
    };
    let ended = lead(&locks, args, &mut signals, &renewals, output).await;
    put_away(&locks, &mut signals, Some(PARTING)).await;
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
    let election = locks.election(&args.election).prefer(args.prefer);
    loop {
        let held = tokio::select! {
            biased;
            signal = signals.ending() => return Ok(Status::Signal(signal)),
            held = campaign(&election, args.label.as_str(), &clock, output) => held?,
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
            // If nobody else campaigns, this one does not lead again at once.
            Ended::Left(_) => tokio::select! {
                biased;
                signal = signals.ending() => return Ok(Status::Signal(signal)),
                () = clock.sleep(locks.settings().ttl) => {}
            },
        }
    }
}

/// Campaigns until it has won.
async fn campaign(
    election: &Election,
    name: &str,
    clock: &Clock,
    output: Output,
) -> Result<HoldOfRun<'static>, Failure> {
    loop {
        match election.campaign(name).await {
            Ok(leadership) => return Ok(HoldOfRun::Term(leadership)),
            Err(error) if error.kind() == ErrorKind::Contended => pause_after(&error).await?,
            Err(error) if error.is_retryable() => {
                let why = with_causes(&error);
                output.event(
                    format!("{why}; campaigning again"),
                    &json!({ "event": "campaign_failed", "why": why }),
                );
                clock.sleep(PAUSE).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// `leasehold step-down`: asks the leader to leave.
pub(crate) async fn step_down(args: &StepDownArgs, output: Output) -> Result<u8, Failure> {
    let locks = args.store.looker().await?;
    let led = locks.election(&args.election).step_down().await;
    locks.shutdown().await;
    let (election, led) = (args.election.as_str(), led?);
    let people = if led {
        format!("the leader of {election} has stepped down")
    } else {
        format!("nobody leads {election}")
    };
    output.answer(people, &json!({ "election": election, "led": led }))?;
    Ok(if led { code::DONE } else { code::NO })
}

#[cfg(test)]
mod tests {
    use leasehold::Settings;
    use leasehold::handler::{AcquireOutcome, Event};
    use leasehold::store::MemoryStore;

    use super::*;

    /// A real pause of a second, between two campaigns.
    #[tokio::test]
    async fn a_candidate_outwaits_a_store_that_grants_nothing_yet() {
        let store = MemoryStore::new().unwrap();
        store.restart(Duration::from_secs(24 * 60 * 60));
        let mut settings = Settings::default();
        settings.wait = Duration::ZERO;
        let failed = Arc::new(Notify::new());
        let notified = Arc::clone(&failed);
        let locks = LockManager::builder(store)
            .settings(settings)
            .observer(move |event: &Event<'_>| {
                if let Event::Acquire { outcome, .. } = event
                    && matches!(outcome, AcquireOutcome::Failed(_))
                {
                    notified.notify_one();
                }
            })
            .build()
            .unwrap();
        let (election, clock) = (locks.election("k"), Clock::system().unwrap());
        let twice = async {
            failed.notified().await;
            failed.notified().await;
        };
        tokio::select! {
            ended = campaign(&election, "a", &clock, Output { json: true }) => panic!("{ended:?}"),
            () = twice => {}
        }
    }
}
