//! What the metrics say, by name.
use std::sync::mpsc::channel;

use crate::prometheus::Prometheus;
use crate::support::{World, ms, no_handoff, poll_once, secs, until_ended, while_time_passes};
use leasehold::clock::ManualClock;
use leasehold::handler::{AcquireRequest, AcquireResponse, Event, Handler, Metrics, Next};
use leasehold::run::EffectError;
use leasehold::store::MemoryStore;
use leasehold::testing::{Faulty, Operation};
use leasehold::{Error, ErrorKind, LockManager, LockManagerBuilder, Settings};
use parking_lot::Mutex;

/// A world whose first manager is measured by a recorder of its own.
fn measured(settings: Settings, make: impl FnOnce() -> Metrics) -> (World, Prometheus) {
    let recorder = Prometheus::default();
    let metrics = ::metrics::with_local_recorder(&recorder, make);
    let world = World::built(settings, |b: LockManagerBuilder| b.observer(metrics));
    (world, recorder)
}

impl Prometheus {
    /// The value of one line.
    fn value(&self, name: &str) -> f64 {
        let text = self.dump();
        let mut values = text
            .lines()
            .filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value = values
            .next()
            .unwrap_or_else(|| panic!("no {name} in\n{text}"));
        value.parse().unwrap()
    }

    #[track_caller]
    fn shows(&self, name: &str, expected: f64) {
        assert_eq!(self.value(name), expected, "{name}");
    }
}

#[tokio::test]
async fn waits_holds_and_renewals_are_measured() {
    let (world, seen) = measured(no_handoff(), Metrics::new);
    let guard = world.ours.lock("a").acquire().await.unwrap();
    seen.shows("leasehold_held", 1.0);
    let lock = world.ours.lock("a");
    let mut waiting = Box::pin(lock.acquire());
    assert!(poll_once(waiting.as_mut()).await.is_pending());
    seen.shows("leasehold_waiting", 1.0);
    world.pass(secs(10)).await;
    let _ = guard.release().await;
    let guard = waiting.await.unwrap();
    seen.shows("leasehold_waiting", 0.0);
    seen.shows(r#"leasehold_acquire_seconds_count{outcome="held"}"#, 2.0);
    seen.shows(r#"leasehold_acquire_seconds_sum{outcome="held"}"#, 10.0);
    seen.shows(r#"leasehold_hold_seconds_sum{reason="released"}"#, 10.0);
    let renewals = seen.value(r#"leasehold_renewals_total{answer="extended"}"#);
    assert!(renewals >= 3.0);
    seen.shows("leasehold_renewal_round_trip_seconds_count", renewals);
    seen.shows("leasehold_renewal_timer_lag_seconds_count", renewals);
    drop(guard);
    until_ended(&world, "a").await;
    world.settled().await;
    seen.shows("leasehold_held", 0.0);
    seen.shows(r#"leasehold_hold_seconds_count{reason="dropped"}"#, 1.0);
}

#[tokio::test]
async fn commits_are_measured_by_what_was_left_of_the_lease() {
    let recorder = Prometheus::default();
    let make = || Metrics::new().near_miss(secs(5));
    let metrics = ::metrics::with_local_recorder(&recorder, make);
    let clock = ManualClock::new();
    let store = Faulty::new(MemoryStore::with_clock(clock.clone()), clock.clone(), 1);
    let locks = LockManager::builder(store.clone())
        .clock(clock.clone())
        .observer(metrics)
        .build()
        .unwrap();
    let guard = locks.lock("a").acquire().await.unwrap();
    let executor = guard.executor();
    let slack = executor.guarded(|_| Ok(())).unwrap().slack;
    recorder.shows("leasehold_near_misses_total", 0.0);
    let sum = recorder.value("leasehold_commit_slack_seconds_sum");
    assert!((sum - slack.as_secs_f64()).abs() < 1e-9);

    // No renewal comes in between.
    store.block(Operation::Renew);
    clock.advance(slack - secs(4));
    let second = executor.guarded(|_| Ok(())).unwrap().slack;
    assert_eq!(second, secs(4));
    recorder.shows("leasehold_near_misses_total", 1.0);
    let committed = r#"leasehold_runs_total{end="committed"}"#;
    recorder.shows(committed, 2.0);

    // A commit call that outlives the lease.
    let late = executor.guarded(|tx| {
        let clock = clock.clone();
        tx.commit_with(move |_| {
            clock.advance(secs(60));
            Ok(())
        });
        Ok(())
    });
    assert_eq!(late.unwrap_err().was_applied(), Some(true));
    recorder.shows("leasehold_near_misses_total", 2.0);
    recorder.shows(r#"leasehold_runs_total{end="late"}"#, 1.0);
}

#[tokio::test]
async fn what_went_wrong_is_counted_by_its_name() {
    let (world, seen) = measured(no_handoff(), Metrics::new);
    let guard = world.ours.lock("a").acquire().await.unwrap();
    let executor = guard.executor();
    let owed = executor.guarded(|tx| {
        tx.step(
            "debit 7",
            || Err::<(), _>(EffectError::unknown("no answer")),
            |_| (),
        )?;
        Ok(())
    });
    assert!(owed.is_err());
    let in_doubt = executor.guarded(|tx| {
        tx.commit_with(|_| Err::<(), _>(EffectError::unknown("no answer")));
        Ok(())
    });
    assert!(in_doubt.is_err());
    assert!(
        executor
            .guarded(|_| Err::<(), _>("it failed".into()))
            .is_err()
    );
    seen.shows(r#"leasehold_runs_total{end="incomplete"}"#, 1.0);
    seen.shows(r#"leasehold_runs_total{end="in_doubt"}"#, 1.0);
    seen.shows(r#"leasehold_runs_total{end="rolled_back"}"#, 1.0);
    seen.shows("leasehold_in_doubt_total", 1.0);
    seen.shows(r#"leasehold_debts_total{state="in_doubt"}"#, 2.0);

    world.store.forget();
    world.pass(secs(4)).await;
    seen.shows(r#"leasehold_lost_total{reason="gone"}"#, 1.0);
    seen.shows(r#"leasehold_renewals_total{answer="gone"}"#, 1.0);
    seen.shows(r#"leasehold_hold_seconds_count{reason="lost"}"#, 1.0);
    seen.shows("leasehold_held", 0.0);

    let _theirs = world.theirs.lock("b").acquire().await.unwrap();
    let lock = world.ours.lock("b");
    let busy = while_time_passes(&world, secs(60), lock.acquire_within(ms(500))).await;
    assert!(busy.unwrap().is_none());
    seen.shows(r#"leasehold_acquire_seconds_sum{outcome="busy"}"#, 0.5);
}

/// Two callers stop waiting at once, and the event of the first reaches the metrics after that of
/// the second.
#[tokio::test]
async fn callers_that_stop_waiting_at_once_are_not_counted_any_more() {
    let (is_held_up, held_up) = channel();
    let (go, gone) = channel();
    let gone = Mutex::new(gone);
    let recorder = Prometheus::default();
    let metrics = ::metrics::with_local_recorder(&recorder, Metrics::new);
    let world = World::built(no_handoff(), |b| {
        b.observer(move |event: &Event<'_>| {
            if let Event::Wait {
                began: false,
                callers: 1,
                ..
            } = event
            {
                is_held_up.send(()).unwrap();
                gone.lock().recv_timeout(secs(60)).unwrap();
            }
        })
        .observer(metrics)
    });
    let _held = world.ours.lock("a").acquire().await.unwrap();
    let mut waiting = [(); 2].map(|()| world.ours.lock("a").into_future());
    for waiting in &mut waiting {
        assert!(poll_once(waiting).await.is_pending());
    }
    recorder.shows("leasehold_waiting", 2.0);
    let [first, second] = waiting;
    let first = std::thread::spawn(move || drop(first));
    held_up.recv_timeout(secs(60)).unwrap();
    drop(second);
    go.send(()).unwrap();
    first.join().unwrap();
    recorder.shows("leasehold_waiting", 0.0);
}

/// Refuses what was granted.
struct Refusing;

impl Handler for Refusing {
    async fn acquire(
        &self,
        request: &mut AcquireRequest,
        next: Next<'_>,
    ) -> Result<AcquireResponse, Error> {
        drop(next.run(request).await?);
        if request.key().as_str() == "hangs" {
            std::future::pending::<()>().await;
        }
        Err(Error::new(ErrorKind::Denied, "not today"))
    }
}

#[tokio::test]
async fn a_grant_that_no_caller_got_is_not_counted_as_held() {
    let recorder = Prometheus::default();
    let metrics = ::metrics::with_local_recorder(&recorder, Metrics::new);
    let world = World::built(no_handoff(), |b| b.observer(metrics).handler(Refusing));
    assert!(world.ours.lock("refused").acquire().await.is_err());
    {
        let lock = world.ours.lock("hangs");
        let mut asked = Box::pin(lock.acquire());
        assert!(poll_once(asked.as_mut()).await.is_pending());
    }
    for key in ["refused", "hangs"] {
        until_ended(&world, key).await;
    }
    world.ours.shutdown().await;
    recorder.shows(r#"leasehold_acquire_seconds_count{outcome="failed"}"#, 1.0);
    recorder.shows(
        r#"leasehold_acquire_seconds_count{outcome="abandoned"}"#,
        1.0,
    );
    recorder.shows(r#"leasehold_hold_seconds_count{reason="dropped"}"#, 0.0);
    recorder.shows("leasehold_held", 0.0);
}

#[tokio::test]
async fn a_write_hold_that_became_a_read_hold_is_counted_once() {
    let (world, seen) = measured(no_handoff(), Metrics::new);
    let writer = world.ours.read_write("a").write().await.unwrap();
    let reader = writer.downgrade().await.unwrap();
    seen.shows("leasehold_held", 1.0);
    let _ = reader.release().await;
    seen.shows("leasehold_held", 0.0);
    seen.shows(r#"leasehold_hold_seconds_count{reason="released"}"#, 1.0);
}

#[tokio::test]
async fn two_managers_are_distinguished_by_their_label() {
    let (world, seen) = measured(no_handoff(), || Metrics::of("orders"));
    let _guard = world.ours.lock("a").acquire().await.unwrap();
    seen.shows(r#"leasehold_held{manager="orders"}"#, 1.0);
}

#[test]
fn every_metric_is_in_the_table_of_the_docs_and_the_other_way_round() {
    let recorder = Prometheus::default();
    drop(::metrics::with_local_recorder(&recorder, Metrics::new));
    let dump = recorder.dump();
    let mut registered: Vec<_> = dump
        .lines()
        .filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '))
        .map(|(name, help)| {
            assert!(!help.is_empty(), "{name} is not described");
            name
        })
        .collect();
    let docs = include_str!("../../src/handler/metrics/mod.rs");
    let mut documented: Vec<_> = docs
        .lines()
        .filter_map(|line| line.strip_prefix("//! | `")?.split_once('`'))
        .map(|(name, _)| name)
        .collect();
    registered.sort_unstable();
    documented.sort_unstable();
    assert_eq!(registered, documented);
}

/// The words of a text that begin with our prefix.
fn names(text: &str) -> std::collections::BTreeSet<String> {
    let is_of_word = |char: char| char.is_ascii_alphanumeric() || char == '_';
    let words = text.split(|char| !is_of_word(char));
    let ours = words.filter(|word| word.starts_with("leasehold_"));
    ours.map(|word| {
        let histogram = ["_bucket", "_sum", "_count"];
        let name = histogram.iter().find_map(|end| word.strip_suffix(end));
        name.unwrap_or(word).to_owned()
    })
    .collect()
}

#[tokio::test]
async fn the_dashboard_shows_every_metric_and_names_no_other() {
    let (_world, seen) = measured(no_handoff(), Metrics::new);
    let text = include_str!("../../examples/grafana/leasehold.json");
    let queries = text.lines().filter(|line| line.contains("\"expr\""));
    let queries: Vec<_> = queries.collect();
    assert_eq!(names(&queries.join(" ")), names(&seen.dump()));
}

#[tokio::test]
async fn the_rules_for_alerts_name_only_metrics_and_labels_that_there_are() {
    let (_world, seen) = measured(no_handoff(), Metrics::new);
    let rules = include_str!("../../examples/grafana/alerts.yml");
    let expressions: Vec<_> = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("expr: "))
        .collect();
    let alerts = rules.matches("- alert: ").count();
    assert_eq!(expressions.len(), alerts, "one expression on one line each");
    assert!(alerts > 0);
    let all = names(&seen.dump());
    let table = include_str!("../../src/handler/metrics/mod.rs");
    for expression in expressions {
        let named = names(expression);
        assert!(!named.is_empty(), "{expression}");
        assert!(named.is_subset(&all), "{expression}");
        let labels = expression.split_once('{').into_iter();
        for (_, labels) in labels {
            let (label, _) = labels.split_once('}').unwrap();
            let (label, value) = label.split_once('=').unwrap();
            let row = (table.lines())
                .find(|line| line.contains(&format!("`{}`", named.first().unwrap())))
                .unwrap();
            let label = label.trim_end_matches('!');
            assert!(row.contains(&format!("`{label}`: ")), "{expression}");
            let value = value.trim_matches('"');
            assert!(row.contains(&format!("`{value}`")), "{expression}");
        }
    }
}
