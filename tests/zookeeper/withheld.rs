//! A hold that may still have an effect on its way keeps the others out for its whole time,
//! whatever becomes of its manager.

use std::io::{BufRead, BufReader};
use std::time::Duration;

use crate::zookeeper::{Server, again, open, options, pause, rest};
use leasehold::clock::{Clock, ClockKind};
use leasehold::run::{Applied, EffectError};
use leasehold::store::Released;
use leasehold::{Abort, LockGuard, LockManager, RunError, Settings};

/// Four ticks: the shortest.
const SESSION: Duration = Duration::from_secs(2);
const LOCK_DELAY: Duration = Duration::from_secs(1);
const CHILD: &str = "LEASEHOLD_TEST_ZOOKEEPER_WITHHELD";

async fn manager(address: &str, chroot: &str, settings: Settings) -> LockManager {
    let mut options = options(address, chroot);
    options.session_timeout = settings.ttl + settings.lock_delay;
    let store = open(options).await;
    LockManager::builder(store)
        .settings(settings)
        .build()
        .unwrap()
}

fn plain() -> Settings {
    let mut settings = Settings::default();
    settings.ttl = SESSION;
    settings
}

/// Ends a hold whose commit had no answer.
async fn end_in_doubt(guard: LockGuard) {
    let outcome = guard
        .executor()
        .guarded_async(async |tx| {
            let lost = EffectError::unknown(std::io::Error::other("the reply was lost"));
            tx.commit_with(move |_permit| async move { Err::<Applied, _>(lost) });
            Ok(())
        })
        .await;
    assert!(matches!(outcome, Err(RunError::InDoubt { .. })));
    assert!(matches!(
        guard.release().await,
        Ok(Released::Withheld { .. })
    ));
}

/// Begins a run that never ends, and drops its guard.
fn leave_a_run_behind(guard: LockGuard) {
    let executor = guard.executor();
    let (begun, has_begun) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        executor.guarded(move |_tx| {
            begun.send(()).unwrap();
            pause(Duration::from_secs(3_600));
            Ok::<_, Abort>(())
        })
    });
    has_begun.recv().unwrap();
    drop(guard);
}

/// One hold that must keep the others out, and then the end of its manager, in a process of its own
/// that goes on.
async fn withhold(word: &str) -> ! {
    let (address, rest_of) = word.split_once(' ').unwrap();
    let (why, how) = rest_of.split_once(' ').unwrap();
    let clock = Clock::system().unwrap();
    let mut settings = plain();
    if why == "lock_delay" {
        settings.lock_delay = LOCK_DELAY;
        settings.ttl = 2 * SESSION - LOCK_DELAY;
        settings.max_hold = Some(settings.ttl);
    }
    let locks = manager(address, &format!("/withheld-{why}-{how}"), settings).await;
    let guard = locks.lock("k").acquire().await.unwrap();
    let until = match why {
        "in_doubt" => {
            let until = clock.stamp().plus(guard.lease().remaining());
            end_in_doubt(guard).await;
            until
        }
        "undrained" => {
            let until = clock.stamp().plus(guard.lease().remaining());
            leave_a_run_behind(guard);
            until
        }
        "lock_delay" => {
            while guard.lease().is_live() {
                rest(Duration::from_millis(10)).await;
            }
            let _ = guard.release().await;
            clock.stamp().plus(LOCK_DELAY)
        }
        other => panic!("{other}"),
    };
    println!("until {}", until.on(ClockKind::Boot));
    match how {
        "shutdown" => locks.shutdown().await,
        "drop" => drop(locks),
        "exit" => std::process::exit(0),
        other => panic!("{other}"),
    }
    println!("ended");
    loop {
        rest(Duration::from_secs(3_600)).await;
    }
}

#[tokio::test]
async fn what_is_withheld_keeps_the_others_out_after_the_end_of_its_manager() {
    if let Ok(word) = std::env::var(CHILD) {
        withhold(&word).await;
    }
    let own_name = "what_is_withheld_keeps_the_others_out_after_the_end_of_its_manager";
    let server = Server::shared();
    let clock = Clock::system().unwrap();
    let cases = [
        ("in_doubt", "shutdown"),
        ("in_doubt", "drop"),
        ("in_doubt", "exit"),
        ("undrained", "shutdown"),
        ("lock_delay", "shutdown"),
        ("lock_delay", "drop"),
    ];
    let mut early = Vec::new();
    for (why, how) in cases {
        let word = format!("{} {why} {how}", server.address());
        let mut child = again(module_path!(), own_name, CHILD, &word)
            .spawn()
            .unwrap();
        let locks = manager(
            &server.address(),
            &format!("/withheld-{why}-{how}"),
            plain(),
        )
        .await;
        let mut lines = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok);
        let until = lines
            .find_map(|line| line.strip_prefix("until ").map(str::to_owned))
            .expect("the child says until when it must keep the others out");
        let until: u64 = until.parse().unwrap();
        let next = locks.lock("k").acquire().await.unwrap();
        let entered = clock.stamp().on(ClockKind::Boot);
        if entered < until {
            early.push(format!(
                "{why}, {how}: {} ms early",
                (until - entered) / 1_000_000
            ));
        }
        let _ = next.release().await;
        locks.shutdown().await;
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert_eq!(early, [""; 0]);
}

#[tokio::test]
async fn a_withheld_hold_ends_in_its_time_while_five_others_are_held() {
    let server = Server::shared();
    let ours = manager(&server.address(), "/withheld-busy", plain()).await;
    let theirs = manager(&server.address(), "/withheld-busy", plain()).await;
    let guard = ours.lock("k").acquire().await.unwrap();
    end_in_doubt(guard).await;
    let mut others = Vec::new();
    for n in 0..5 {
        let lock = ours.lock(&*format!("held/{n}"));
        others.push(lock.acquire().await.unwrap());
    }
    // Some proven write is always young, so that no heartbeat of the session's own is due.
    let busy = async {
        loop {
            let turn = ours.lock("turns").acquire().await.unwrap();
            let _ = turn.release().await;
            rest(SESSION / 40).await;
        }
    };
    let lock = theirs.lock("k");
    let next = tokio::select! {
        next = lock.acquire_within(SESSION * 4) => next.unwrap(),
        () = busy => None,
    };
    assert!(next.is_some(), "the withheld hold was never ended");
    assert!(others.iter().all(|other| other.lease().is_live()));
}
