//! `leasehold hold`: holds a lock without a command, for a script that works under it.

use std::io::{self, Read};
use std::time::Duration;

use leasehold::LockManager;
use nix::sys::signal::Signal;
use serde_json::json;
use tokio::sync::oneshot;

use super::acquire::acquire;
use super::connect::connect;
use super::held::{HoldOfRun, release};
use super::{labelled, parting, put_away};
use crate::args::HoldArgs;
use crate::exit::{Failure, Status, code};
use crate::output::Output;
use crate::signals::Signals;
use crate::stderr;
use crate::store;

pub(crate) async fn hold(args: &HoldArgs, output: Output) -> Result<Status, Failure> {
    let mut signals = Signals::that_end_us()?;
    args.lock.check()?;
    let url = args.store.for_holder("")?;
    let settings = store::settings(args.ttl, args.lock.within());
    let locks = tokio::select! {
        biased;
        signal = signals.ending() => return Ok(Status::Signal(signal)),
        builder = connect(&url, settings, args.lock.patience(), output) => {
            labelled(builder?, &args.lock)?.build()?
        }
    };
    let ended = acquire_and_hold(&locks, args, &mut signals, output).await;
    put_away(&locks, &mut signals, parting(args.lock.at_least.is_some())).await;
    ended
}

async fn acquire_and_hold(
    locks: &LockManager,
    args: &HoldArgs,
    signals: &mut Signals,
    output: Output,
) -> Result<Status, Failure> {
    let held = tokio::select! {
        biased;
        signal = signals.ending() => return Ok(Status::Signal(signal)),
        held = acquire(locks, &args.store, &args.lock) => held.map_err(|failure| args.lock.exit_with(failure))?,
    };
    // The script goes on when it reads the token.
    if let Some(signal) = signals.ended().await {
        release(held, output).await;
        return Ok(Status::Signal(signal));
    }
    let (key, token) = held.to_json();
    let acquired = json!({ "event": "acquired", "key": key, "token": token });
    stderr::aside();
    let ended = match output.answer(held.tokens(), &acquired) {
        Ok(()) => until_it_ends(&held, signals, output).await,
        Err(failure) => Err(failure),
    };
    release(held, output).await;
    Ok(match ended? {
        HoldEnd::Asked(Some(signal)) => Status::Signal(signal),
        HoldEnd::Asked(None) => Status::Code(code::DONE),
        HoldEnd::Lost => Status::Code(args.lock.exit_code.unwrap_or(code::LOST)),
    })
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HoldEnd {
    /// By a signal, or by the end of stdin.
    Asked(Option<Signal>),
    Lost,
}

impl HoldEnd {
    /// What the script did last was under the lock only if the lease is still live.
    fn with_stdin(remaining: Duration) -> Self {
        if remaining.is_zero() {
            Self::Lost
        } else {
            Self::Asked(None)
        }
    }
}

async fn until_it_ends(
    held: &HoldOfRun<'_>,
    signals: &mut Signals,
    output: Output,
) -> Result<HoldEnd, Failure> {
    let closed = stdin_closed()?;
    let ended = tokio::select! {
        _ = held.lost() => HoldEnd::Lost,
        signal = signals.ending() => HoldEnd::Asked(Some(signal)),
        closed = closed => match closed {
            Ok(Err(why)) => return Err(Failure::system("stdin cannot be read, whose end would be that of the hold", &why)),
            _ => HoldEnd::with_stdin(held.remaining()),
        },
    };
    if ended == HoldEnd::Lost {
        // It is over already, so this does not wait.
        let reason = held.lost().await;
        output.event(
            format!("the lease was lost: key={} reason={reason}", held.keys()),
            &json!({ "event": "lost", "key": held.keys(), "reason": reason.to_string() }),
        );
    }
    Ok(ended)
}

/// Resolves when stdin has ended. A thread reads it, because a read of a terminal cannot be
/// cancelled.
fn stdin_closed() -> Result<oneshot::Receiver<io::Result<()>>, Failure> {
    let (sender, receiver) = oneshot::channel();
    std::thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(move || {
            let mut stdin = std::io::stdin().lock();
            let mut buffer = [0; 4096];
            let ended = loop {
                match stdin.read(&mut buffer) {
                    Ok(0) => break Ok(()),
                    Ok(_) => {}
                    Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                    // The terminal, from its background, or none at all.
                    Err(why) => break Err(why),
                }
            };
            let _ = sender.send(ended);
        })
        .map_err(|why| Failure::system("no thread could be started", &why))?;
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_that_ends_after_its_lease_has_lost_it() {
        let left = Duration::from_nanos(1);
        assert_eq!(HoldEnd::with_stdin(left), HoldEnd::Asked(None));
        assert_eq!(HoldEnd::with_stdin(Duration::ZERO), HoldEnd::Lost);
    }
}
