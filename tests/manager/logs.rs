//! What the log says about renewals that fail: each thing once, with its cause.
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold::clock::ManualClock;
use leasehold::store::MemoryStore;
use leasehold::testing::Operation;
use leasehold::{Ended, LockManager};
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
    let lock = scene.locks.lock("log/lost").purpose("backup");
    let guard = lock.acquire().await.unwrap();
    scene.network.block(Operation::Renew);
    scene.pass(secs(12)).await;
    assert!(!guard.lease().is_live());
    let warned = log::lines(&["WARN", "lease lost", "key=log/lost "]);
    assert_eq!(warned.len(), 1, "{warned:?}");
    for field in [
        "purpose=\"backup\"",
        "reason=",
        "last_error=",
        "failing_for=",
    ] {
        assert!(warned[0].contains(field), "{warned:?}");
    }
}

#[tokio::test]
async fn one_debt_is_one_line() {
    use leasehold::run::{Compensation, EffectError};
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
        "leasehold::run",
        "key=log/debt",
        "txn_id=",
        "settle it by hand",
    ] {
        assert!(lines[0].contains(part), "{lines:?}");
    }
}

/// `leasehold resolve` finds a commit only.
#[tokio::test]
async fn a_step_that_is_described_as_the_commit_is_logged_as_a_step() {
    use leasehold::run::{Compensation, EffectError};
    let scene = scene();
    let guard = scene.locks.lock("log/step").acquire().await.unwrap();
    let executor = guard.executor();
    let mut run = Box::pin(executor.guarded_async(async |tx| {
        let never = std::future::pending::<Result<(), EffectError>>();
        let take_back = |_: Compensation| async { Ok::<(), std::io::Error>(()) };
        tx.step("the commit", never, take_back).await?;
        Ok(())
    }));
    assert!(crate::support::poll_once(&mut run).await.is_pending());
    drop(run);
    guard.release().await.unwrap();
    let lines = log::lines(&["ERROR", "key=log/step"]);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("settle it by hand"), "{lines:?}");
}

/// Asks the manager what it holds at each line of the log, as a subscriber may that shows it beside
/// the line.
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
    // Otherwise this subscriber may become the program's first, and those that keep the lines would
    // be refused.
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

/// Panics at every warning, as a subscriber does that can write neither the line nor that it could
/// not.
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
    assert_eq!(lost.join().unwrap(), Ended::Closed);
}

/// Runs `future` while the time passes in steps.
async fn while_time_passes<F: Future + Unpin>(scene: &Far, mut future: F) -> F::Output {
    for _ in 0..100 {
        if let std::task::Poll::Ready(output) = crate::support::poll_once(&mut future).await {
            return output;
        }
        scene.pass(Duration::from_millis(100)).await;
    }
    panic!("nothing came of it");
}

#[derive(Clone)]
struct Own(Lines);

type Lines = Arc<std::sync::Mutex<Vec<u8>>>;

impl std::io::Write for Own {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What this thread logs from now on: the answers to its own calls, and nothing of the tests beside
/// it.
fn own_lines() -> (
    Arc<std::sync::Mutex<Vec<u8>>>,
    tracing::subscriber::DefaultGuard,
) {
    // Otherwise this subscriber may become the program's first.
    log::keep();
    let lines = Arc::new(std::sync::Mutex::new(Vec::new()));
    let written = Own(Arc::clone(&lines));
    let own = tracing_subscriber::fmt().with_ansi(false);
    let own = own.with_writer(move || written.clone());
    (lines, own.finish().set_default())
}

#[tokio::test]
async fn an_acquire_that_cannot_reach_its_store_says_so_once_and_says_when_it_can() {
    let (lines, _listening) = own_lines();
    let count = |words: &str| {
        let lines = String::from_utf8(lines.lock().unwrap().clone()).unwrap();
        lines.matches(words).count()
    };
    let scene = scene();
    scene.network.block(Operation::Acquire);
    let lock = scene.locks.lock("log/unreachable");
    let mut acquire = Box::pin(lock.acquire());
    for _ in 0..30 {
        assert!(crate::support::poll_once(&mut acquire).await.is_pending());
        scene.pass(Duration::from_millis(100)).await;
    }
    let warned = {
        let lines = String::from_utf8(lines.lock().unwrap().clone()).unwrap();
        let is_meant = |line: &&str| line.contains("the store does not answer an acquire");
        let warned: Vec<_> = lines.lines().filter(is_meant).map(str::to_owned).collect();
        warned
    };
    let [warned] = &warned[..] else {
        panic!("{warned:?}");
    };
    for part in ["WARN", "key=log/unreachable ", "error="] {
        assert!(warned.contains(part), "{warned}");
    }
    is_read_at_once(field(warned, "left"));
    assert_eq!(count("store reachable again"), 0);
    scene.network.unblock(Operation::Acquire);
    let guard = while_time_passes(&scene, acquire).await;
    assert_eq!(count("store reachable again"), 1);

    // The hold is lost, and the next acquire is answered: nobody waits for the first renewal of the
    // next hold.
    scene.network.block(Operation::Renew);
    scene.pass(secs(12)).await;
    assert!(!guard.unwrap().lease().is_live());
    scene.network.unblock(Operation::Renew);
    let _next = lock.acquire().await.unwrap();
    assert_eq!(count("store reachable again"), 2);
}

#[tokio::test]
async fn a_hold_that_is_released_has_no_renewals_that_fail() {
    let scene = scene();
    let guard = scene.locks.lock("log/released").acquire().await.unwrap();
    scene.network.stall(Operation::Renew);
    scene.network.stall(Operation::Release);
    // A renewal is sent, and is not answered before the release is.
    while scene.network.counts(Operation::Renew).asked == 0 {
        scene.pass(Duration::from_millis(100)).await;
    }
    let mut release = Box::pin(guard.release());
    assert!(crate::support::poll_once(&mut release).await.is_pending());
    scene.pass(secs(1)).await;
    let warned = log::lines(&["renewals fail", "key=log/released "]);
    assert!(warned.is_empty(), "{warned:?}");
}

#[tokio::test]
async fn the_end_of_a_wait_is_not_called_a_time_out_of_the_store() {
    let scene = scene();
    scene.network.stall(Operation::Acquire);
    let lock = scene.locks.lock("log/short");
    let error = |wait| {
        let wait = Duration::from_millis(wait);
        let acquire = Box::pin(lock.acquire_within(wait));
        while_time_passes(&scene, acquire)
    };
    let of_short = error(7).await.unwrap_err();
    let text = of_short.to_string();
    assert!(
        text.contains("the wait was over before the store answered"),
        "{text}"
    );
    assert!(!text.contains("within 7"), "{text}");
    // Of a longer wait the last request is cut short too. Why the one before had no answer says
    // more.
    let of_long = error(800).await.unwrap_err();
    let why = std::error::Error::source(&of_long).unwrap().to_string();
    assert!(
        why.contains("no answer to an acquire within 500ms"),
        "{why}"
    );
}

#[tokio::test]
async fn a_commit_in_doubt_names_the_command_that_finds_out() {
    use leasehold::RunError;
    use leasehold::run::EffectError;
    let scene = scene();
    let both = scene.locks.lock_all(["log/doubt/1", "log/doubt/2"]);
    let guard = both.acquire().await.unwrap();
    let outcome = guard.executor().guarded(|tx| {
        let _ = tx.commit_with(|_| Err::<(), _>(EffectError::unknown("no answer")));
        Ok(())
    });
    let Err(RunError::InDoubt { locks, txn_id, .. }) = outcome else {
        panic!("{outcome:?}");
    };
    let (one, other) = (locks[0].token, locks[1].token);
    let line = format!(
        "leasehold resolve --store URL log/doubt/1,log/doubt/2 {txn_id} --token {one},{other}"
    );
    let lines = log::lines(&["ERROR", "a commit is in doubt", &line]);
    assert_eq!(lines.len(), 1, "{line}");
}
