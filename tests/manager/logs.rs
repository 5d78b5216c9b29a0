//! What the log says about renewals that fail: each thing once, with its cause.
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold::clock::ManualClock;
use leasehold::store::{MemoryStore, Operation};
use leasehold::{LockManager, LostReason};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::support::{Far, log, secs};

fn scene() -> Far {
    log::keep();
    Far::new()
}

#[tokio::test]
async fn renewals_that_fail_are_reported_once_and_so_is_the_store_that_answers_again() {
    let scene = scene();
    let guard = scene.locks.lock("log/shaky").acquire().await.unwrap();
    scene.network.block(Operation::Renew);
    scene.pass(secs(7)).await;
    scene.network.unblock(Operation::Renew);
    scene.pass(secs(7)).await;
    assert!(guard.lease().is_live());
    let warned = log::lines(&["WARN", "renewals fail", "key=log/shaky "]);
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert!(warned[0].contains("error="), "{warned:?}");
    is_read_at_once(field(&warned[0], "remaining"));
    assert!(!log::lines(&["INFO", "store reachable again"]).is_empty());
}

/// The value of a field, without quotes.
fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let (_, rest) = line.split_once(&format!(" {name}=")).unwrap();
    rest.split(' ').next().unwrap()
}

/// A time in seconds or milliseconds that nobody has to read twice: `8.299s`, `120ms`.
#[track_caller]
fn is_read_at_once(time: &str) {
    let number = time.strip_suffix("ms").or_else(|| time.strip_suffix('s'));
    let (whole, part) = number
        .unwrap()
        .split_once('.')
        .unwrap_or((number.unwrap(), ""));
    assert!(whole.parse::<u64>().is_ok() && part.len() <= 3, "{time}");
}

/// The clock stands between two milliseconds.
#[tokio::test]
async fn times_in_the_log_are_in_whole_milliseconds() {
    let scene = scene();
    scene.clock.advance(Duration::from_nanos(123_456_789));
    let guard = scene.locks.lock("log/times").acquire().await.unwrap();
    scene.network.block(Operation::Renew);
    // It has planned its next renewal, and comes late to it.
    scene.locks.settled().await;
    scene.clock.advance(Duration::from_nanos(4_567_890_123));
    scene.pass(secs(12)).await;
    assert!(!guard.lease().is_live());
    let failing = log::lines(&["WARN", "renewals fail", "key=log/times "]);
    is_read_at_once(field(&failing[0], "remaining"));
    let lost = log::lines(&["WARN", "lease lost", "key=log/times "]);
    is_read_at_once(field(&lost[0], "failing_for"));
    let starved = log::lines(&["WARN", "is starved"]);
    assert!(!starved.is_empty());
    for line in &starved {
        is_read_at_once(field(line, "lag"));
    }
}

#[tokio::test]
async fn a_lost_lease_is_reported_once_with_the_last_error_and_for_how_long_renewals_failed() {
    let scene = scene();
    let guard = scene.locks.lock("log/lost").acquire().await.unwrap();
    scene.network.block(Operation::Renew);
    scene.pass(secs(12)).await;
    assert!(!guard.lease().is_live());
    let warned = log::lines(&["WARN", "lease lost", "key=log/lost "]);
    assert_eq!(warned.len(), 1, "{warned:?}");
    for field in ["reason=", "last_error=", "failing_for="] {
        assert!(warned[0].contains(field), "{warned:?}");
    }
}

#[tokio::test]
async fn one_debt_is_one_line() {
    use leasehold::executor::{Compensation, EffectError};
    let scene = scene();
    let guard = scene.locks.lock("log/debt").acquire().await.unwrap();
    let executor = guard.executor();
    // A run that is dropped has no outcome: its debt is in the log only.
    let mut run = Box::pin(executor.guarded_async(async |tx| {
        let pay = async { Ok::<(), EffectError>(()) };
        let take_back =
            |_: Compensation| async { Err::<(), _>(std::io::Error::other("bank closed")) };
        tx.step("pay 10 to 8", pay, take_back).await?;
        std::future::pending::<()>().await;
        Ok(())
    }));
    assert!(crate::support::poll_once(&mut run).await.is_pending());
    drop(run);
    // Its release waits for the compensation.
    let released = guard.release().await.unwrap();
    assert!(
        matches!(released, leasehold::store::Released::Withheld { .. }),
        "{released}"
    );
    assert_eq!(
        released.to_string(),
        "not released, its ttl ends it: a step or a commit under it is in doubt"
    );
    let lines = log::lines(&["pay 10 to 8"]);
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in [
        "ERROR",
        "leasehold::executor",
        "key=log/debt",
        "txn_id=",
        "settle it by hand",
    ] {
        assert!(lines[0].contains(part), "{lines:?}");
    }
}

/// Asks the manager what it holds at each line of the log, as a subscriber may that shows it beside the line.
struct Asking(Arc<OnceLock<LockManager>>);

impl<S: tracing::Subscriber> Layer<S> for Asking {
    fn on_event(&self, _: &tracing::Event<'_>, _: Context<'_, S>) {
        if let Some(locks) = self.0.get() {
            let _ = (locks.held(), locks.health());
        }
    }
}

#[test]
fn a_subscriber_may_ask_the_manager_at_each_line() {
    // Otherwise this subscriber may become the program's first, and those that keep the lines would be refused.
    log::keep();
    let (say, said) = std::sync::mpsc::channel();
    // The manager would wait for itself for ever.
    std::thread::spawn(move || {
        let asked = Arc::new(OnceLock::new());
        let listening = tracing_subscriber::registry().with(Asking(Arc::clone(&asked)));
        let _listening = listening.set_default();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let is_lost = runtime.block_on(async {
            let clock = ManualClock::new();
            let store = MemoryStore::with_clock(clock.clone());
            let builder = LockManager::builder(store).clock(clock.clone());
            let locks = builder.on_current_runtime().build().unwrap();
            asked.set(locks.clone()).unwrap();
            let guard = locks.lock("log/asked").acquire().await.unwrap();
            for late in [5, 30] {
                locks.settled().await;
                clock.advance(secs(late));
            }
            locks.settled().await;
            guard.lease().lost_reason().is_some()
        });
        say.send(is_lost).unwrap();
    });
    assert_eq!(said.recv_timeout(secs(60)), Ok(true));
}

/// Panics at every warning, as a subscriber does that can write neither the line nor that it could not.
struct Panicking;

impl<S: tracing::Subscriber> Layer<S> for Panicking {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        assert!(
            *event.metadata().level() > tracing::Level::WARN,
            "a planted panic"
        );
    }
}

#[test]
fn a_subscriber_that_panics_costs_the_leases_and_not_the_process() {
    const NAME: &str = "logs::a_subscriber_that_panics_costs_the_leases_and_not_the_process";
    const CHILD: &str = "LEASEHOLD_PANICS_IN_A_CHILD";
    // A panic during a panic ends the process, so it is not the one of the other tests.
    if std::env::var_os(CHILD).is_none() {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let ended = child.args(["--exact", NAME]).env(CHILD, "1").output();
        let ended = ended.unwrap();
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.success(), "{said}");
        assert!(said.contains("1 passed"), "{said}");
        return;
    }
    log::keep();
    let lost = std::thread::spawn(|| {
        let listening = tracing_subscriber::registry().with(Panicking);
        let _listening = listening.set_default();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let clock = ManualClock::new();
            let store = MemoryStore::with_clock(clock.clone());
            let builder = LockManager::builder(store).clock(clock.clone());
            let locks = builder.on_current_runtime().build().unwrap();
            let guard = locks.lock("log/panics").acquire().await.unwrap();
            locks.settled().await;
            // It comes late to its timer, and says so.
            clock.advance(secs(5));
            guard.lost().await
        })
    });
    assert_eq!(lost.join().unwrap(), LostReason::Closed);
}
