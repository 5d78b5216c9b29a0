//! `leasehold hold`: holds a lock without a command, for a script that works under it.

use std::io::Read;
use std::time::Duration;

use leasehold::LockManager;
use nix::sys::signal::Signal;
use serde_json::json;
use tokio::sync::oneshot;

use super::acquire::acquire;
use super::held::Held;
use super::{labelled, put_away, release};
use crate::args::HoldArgs;
use crate::exit::{Failure, Status, code};
use crate::output::Output;
use crate::signals::Signals;
use crate::stderr;
use crate::store;

pub(crate) async fn hold(args: &HoldArgs, output: Output) -> Result<Status, Failure> {
    args.lock.check()?;
    let url = args.store.for_holder("")?;
    let mut signals = Signals::that_end_us()?;
    let settings = store::settings(args.ttl, args.lock.within());
    let locks = tokio::select! {
        builder = LockManager::builder_for_url(&url, settings) => labelled(builder?, &args.lock.label).build()?,
        signal = signals.ending() => return Ok(Status::Signal(signal)),
    };
    let ended = acquire_and_hold(&locks, args, &mut signals, output).await;
    put_away(&locks, &mut signals).await;
    ended
}

async fn acquire_and_hold(
    locks: &LockManager,
    args: &HoldArgs,
    signals: &mut Signals,
    output: Output,
) -> Result<Status, Failure> {
    let held = tokio::select! {
        held = acquire(locks, &args.store, &args.lock) => held.map_err(|failure| args.lock.exit_with(failure))?,
        signal = signals.ending() => return Ok(Status::Signal(signal)),
    };
    let (key, token) = held.to_json();
    let acquired = json!({ "event": "acquired", "key": key, "token": token });
    stderr::aside();
    let ended = match output.answer(held.tokens(), &acquired) {
        Ok(()) => until_it_ends(&held, signals, output).await,
        Err(failure) => Err(failure),
    };
    release(held, output).await;
    Ok(match ended? {
        Ended::Asked(Some(signal)) => Status::Signal(signal),
        Ended::Asked(None) => Status::Code(code::DONE),
        Ended::Lost => Status::Code(args.lock.exit_code.unwrap_or(code::LOST)),
    })
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ended {
    /// By a signal, or by the end of stdin.
    Asked(Option<Signal>),
    Lost,
}

impl Ended {
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
    held: &Held,
    signals: &mut Signals,
    output: Output,
) -> Result<Ended, Failure> {
    let closed = stdin_closed()?;
    let ended = tokio::select! {
        _ = held.lost() => Ended::Lost,
        signal = signals.ending() => Ended::Asked(Some(signal)),
        _ = closed => Ended::with_stdin(held.remaining()),
    };
    if ended == Ended::Lost {
        // It is over already, so this does not wait.
        let reason = held.lost().await;
        output.event(
            format!("the lease was lost: key={} reason={reason}", held.keys()),
            &json!({ "event": "lost", "key": held.keys(), "reason": reason.to_string() }),
        );
    }
    Ok(ended)
}

/// Resolves when stdin has ended. A thread reads it, because a read of a terminal cannot be cancelled.
fn stdin_closed() -> Result<oneshot::Receiver<()>, Failure> {
    let (sender, receiver) = oneshot::channel();
    std::thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(move || {
            let mut stdin = std::io::stdin().lock();
            let mut buffer = [0; 4096];
            // An error ends it as well: nothing can be read any more.
            while stdin.read(&mut buffer).is_ok_and(|read| read > 0) {}
            let _ = sender.send(());
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
        assert_eq!(Ended::with_stdin(left), Ended::Asked(None));
        assert_eq!(Ended::with_stdin(Duration::ZERO), Ended::Lost);
    }
}
