//! The access log: one line for each acquire, release and loss.
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use crate::support::{World, log, no_handoff, secs, until_ended, while_time_passes};
use leasehold::LockManager;
use leasehold::clock::ManualClock;
use leasehold::handler::{ACCESS_LOG_TARGET, AccessLog, Event};
use leasehold::store::{Label, MemoryStore};
use leasehold::testing::{Faulty, Operation};

fn logged() -> World {
    log::keep();
    World::built(no_handoff(), |b| {
        b.label(Label::parse("host-a").unwrap())
            .observer(AccessLog::new())
    })
}

/// The lines of the access log about a key. Every test has a key of its own.
fn lines(key: &str) -> Vec<String> {
    let mut lines = log::lines(&[ACCESS_LOG_TARGET, &format!("key={key} ")]);
    for line in &mut lines {
        *line = line.split_once(": ").unwrap().1.to_owned();
    }
    lines
}

#[tokio::test]
async fn an_acquire_and_its_release_are_logged_with_their_times() {
    let world = logged();
    let guard = world.ours.lock("release").acquire().await.unwrap();
    let token = guard.token();
    world.pass(secs(3)).await;
    let _ = guard.release().await;
    assert_eq!(
        lines("release"),
        [
            format!(
                r#"event="acquire" key=release holder="host-a" outcome="held" wait_us=0 token={token}"#
            ),
            format!(
                r#"event="release" key=release holder="host-a" token={token} reason=released outcome="released" hold_us=3000000 release_us=0"#
            ),
        ]
    );
}

#[tokio::test]
async fn an_unanswered_release_is_logged_with_its_time_and_its_cause() {
    log::keep();
    let clock = ManualClock::new();
    let network = Faulty::new(MemoryStore::with_clock(clock.clone()), clock.clone(), 1);
    let locks = LockManager::builder(network.clone())
        .clock(clock.clone())
        .observer(AccessLog::new())
        .build()
        .unwrap();
    let guard = locks.lock("unanswered").acquire().await.unwrap();
    network.block(Operation::Release);
    assert!(guard.release().await.is_err());
    let line = lines("unanswered").pop().unwrap();
    assert!(line.contains(r#"outcome="unknown""#), "{line}");
    assert!(line.contains("release_us=0 error="), "{line}");
}

#[tokio::test]
async fn a_candidate_is_logged_by_its_own_name() {
    let world = logged();
    let term = world
        .ours
        .election("leader")
        .campaign("candidate-7")
        .await
        .unwrap();
    let _ = term.resign().await;
    let lines = lines("leader");
    assert_eq!(lines.len(), 2, "{lines:?}");
    for line in &lines {
        assert!(line.contains(r#"holder="candidate-7" "#), "{line}");
    }
}

#[tokio::test]
async fn a_purpose_is_logged_with_the_name() {
    let world = logged();
    let lock = world.ours.lock("purpose").purpose("nightly backup");
    let _guard = lock.acquire().await.unwrap();
    let line = lines("purpose").pop().unwrap();
    assert!(
        line.contains(r#"holder="host-a (nightly backup)" "#),
        "{line}"
    );
}

#[tokio::test]
async fn a_holder_writes_no_field_of_its_own_into_the_log() {
    log::keep();
    let name = Label::parse(r#"eve" outcome="held" token=7 x="#).unwrap();
    let world = World::built(no_handoff(), |b| b.label(name).observer(AccessLog::new()));
    let _theirs = world.theirs.lock("forged").acquire().await.unwrap();
    let lock = world.ours.lock("forged");
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert_eq!(
        lines("forged"),
        [
            r#"event="acquire" key=forged holder="eve\" outcome=\"held\" token=7 x=" outcome="busy" wait_us=0"#
        ]
    );
}

#[tokio::test]
async fn a_write_hold_that_became_a_read_hold_is_one_hold_in_the_log() {
    let world = logged();
    let writer = world.ours.read_write("downgraded").write().await.unwrap();
    world.pass(secs(2)).await;
    let reader = writer.downgrade().await.unwrap();
    world.pass(secs(1)).await;
    let _ = reader.release().await;
    let lines = lines("downgraded");
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[1].contains("hold_us=3000000"), "{lines:?}");
}

#[tokio::test]
async fn a_busy_lock_is_logged_with_its_wait() {
    let world = logged();
    let _theirs = world.theirs.lock("busy").acquire().await.unwrap();
    let lock = world.ours.lock("busy");
    let answer = while_time_passes(&world, secs(60), lock.acquire_within(secs(2))).await;
    assert!(answer.unwrap().is_none());
    assert_eq!(
        lines("busy"),
        [r#"event="acquire" key=busy holder="host-a" outcome="busy" wait_us=2000000"#]
    );
}

#[tokio::test]
async fn a_failed_acquire_is_logged_with_its_error() {
    let world = logged();
    world.ours.shutdown().await;
    assert!(world.ours.lock("failed").acquire().await.is_err());
    let lines = lines("failed");
    assert_eq!(lines.len(), 1);
    assert!(lines[0].contains(r#"outcome="failed""#), "{lines:?}");
    assert!(lines[0].contains("error=\"closed: "), "{lines:?}");
}

#[tokio::test]
async fn a_lost_lease_is_logged_as_a_warning_before_its_end() {
    let world = logged();
    let guard = world.ours.lock("lost").acquire().await.unwrap();
    world.store.forget();
    world.pass(secs(4)).await;
    until_ended(&world, "lost").await;
    drop(guard);
    let words: Vec<_> = lines("lost")
        .iter()
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect();
    assert_eq!(
        words,
        [
            r#"event="acquire""#,
            r#"event="lost""#,
            r#"event="release""#
        ]
    );
    let warned = log::lines(&["WARN", ACCESS_LOG_TARGET, "key=lost "]);
    assert_eq!(warned.len(), 1);
}

#[tokio::test]
async fn a_panicking_observer_is_logged_once_and_without_its_text() {
    log::keep();
    let world = World::built(no_handoff(), |b| {
        b.observer(|_: &Event<'_>| panic!("a planted text"))
    });
    for _ in 0..3 {
        let guard = world.ours.lock("panics").acquire().await.unwrap();
        let _ = guard.release().await;
    }
    assert_eq!(log::lines(&["an observer panicked"]).len(), 1);
    assert!(log::lines(&["a planted text"]).is_empty());
}

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, some: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(some)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_writer_gets_the_lines_that_tracing_gets() {
    log::keep();
    let written = Written::default();
    let name = Label::parse("host-a").unwrap();
    let world = World::built(no_handoff(), |builder| {
        let to = AccessLog::to(written.clone());
        builder.label(name).observer(AccessLog::new()).observer(to)
    });
    let held = world.theirs.lock("written").acquire().await.unwrap();
    let busy = world.ours.lock("written").try_acquire().await;
    assert!(busy.unwrap().is_none());
    let _ = held.release().await;
    let guard = world.ours.lock("written").acquire().await.unwrap();
    let _ = guard.release().await;
    let guard = world.ours.lock("written").acquire().await.unwrap();
    world.store.forget();
    world.pass(secs(10)).await;
    drop(guard);
    world.settled().await;

    let written = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    let (times, of_writer): (Vec<_>, Vec<_>) = (written.lines())
        .map(|line| line.split_once(' ').unwrap())
        .unzip();
    let of_tracing: Vec<_> = (log::lines(&[ACCESS_LOG_TARGET, "key=written "]).into_iter())
        .map(|line| line.replacen(&format!("{ACCESS_LOG_TARGET}: "), "", 1))
        .collect();
    assert!(of_writer.len() >= 5, "{written}");
    for (writer, tracing) in of_writer.iter().zip(&of_tracing) {
        assert!(tracing.ends_with(writer), "{writer:?} {tracing:?}");
    }
    assert_eq!(of_writer.len(), of_tracing.len(), "{of_tracing:?}");
    // A date and a time in UTC, such as 2026-01-31T12:00:00.000Z.
    for time in times {
        assert_eq!((time.len(), &time[10..11], &time[23..]), (24, "T", "Z"));
    }
}
