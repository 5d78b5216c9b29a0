//! The spans of a lock: each with its key, its token and its outcome.

use std::collections::HashMap;
use std::fmt::Debug;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::fence::FenceGate;
use leasehold::run::EffectError;
use leasehold::{Abort, RunError};
use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use crate::support::World;
use crate::yielding::yielding;

type Fields = HashMap<&'static str, String>;

/// Keeps every span of ours that was closed.
#[derive(Clone, Default)]
struct Closed {
    open: Arc<Mutex<HashMap<u64, (String, Fields)>>>,
    closed: Arc<Mutex<Vec<(String, Fields)>>>,
}

struct Into<'a>(&'a mut Fields);

impl Visit for Into<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let value = format!("{value:?}").trim_matches('"').to_owned();
        self.0.insert(field.name(), value);
    }
}

impl<S: tracing::Subscriber> Layer<S> for Closed {
    fn on_new_span(&self, span: &Attributes<'_>, id: &Id, _: Context<'_, S>) {
        let mut fields = Fields::new();
        span.record(&mut Into(&mut fields));
        let name = span.metadata().name().to_owned();
        if span.metadata().target().starts_with("leasehold::") {
            self.open.lock().insert(id.into_u64(), (name, fields));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        if let Some((_, fields)) = self.open.lock().get_mut(&id.into_u64()) {
            values.record(&mut Into(fields));
        }
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        let span = self.open.lock().remove(&id.into_u64());
        self.closed.lock().extend(span);
    }
}

impl Closed {
    /// The outcomes of the closed spans of this name for this key, which all have this token.
    fn outcomes(&self, name: &str, key: &str, token: &str) -> Vec<String> {
        let closed = self.closed.lock();
        let ours = closed
            .iter()
            .filter(|(span, fields)| span == name && fields["key"] == key);
        ours.map(|(_, fields)| {
            assert_eq!(fields.get("token").map(String::as_str), Some(token));
            fields["outcome"].clone()
        })
        .collect()
    }
}

#[tokio::test]
async fn acquire_hold_run_and_commit_are_spans_with_key_token_and_outcome() {
    let spans = Closed::default();
    let subscriber = tracing_subscriber::registry().with(spans.clone());
    let guard = tracing::subscriber::set_default(subscriber);
    let world = World::new();

    let held = world.ours.lock("a").acquire().await.unwrap();
    let token = held.token().to_string();
    let busy = world.theirs.lock("a").try_acquire().await.unwrap();
    assert!(busy.is_none());
    let executor = held.executor();
    executor.guarded(|_| Ok(())).unwrap();
    let _ = executor.guarded(|_| Err::<(), _>(Abort::new("no")));
    executor.commit(async |_| Ok(())).await.unwrap();
    assert!(spans.outcomes("lock.hold", "a", &token).is_empty());
    held.release().await.unwrap();

    assert_eq!(spans.outcomes("lock.hold", "a", &token), ["released"]);
    let runs = spans.outcomes("lock.run", "a", &token);
    assert_eq!(runs, ["committed", "rolled back", "committed"]);
    assert_eq!(spans.outcomes("lock.commit", "a", &token), ["applied"]);
    let closed = spans.closed.lock();
    let acquires = closed.iter().filter(|(name, _)| name == "lock.acquire");
    let acquires: Vec<_> = acquires
        .map(|(_, fields)| (fields["outcome"].as_str(), fields.get("token")))
        .collect();
    assert_eq!(acquires, [("held", Some(&token)), ("busy", None)]);
    drop(guard);
}

#[tokio::test]
async fn the_span_of_a_commit_whose_fence_is_still_at_work_does_not_say_that_nothing_was_applied() {
    let spans = Closed::default();
    let subscriber = tracing_subscriber::registry().with(spans.clone());
    let _guard = tracing::subscriber::set_default(subscriber);
    let (world, gate) = (World::new(), FenceGate::new());
    let held = world.ours.lock("a").acquire().await.unwrap();
    let token = held.token().to_string();
    let (began, begins) = std::sync::mpsc::channel();
    let (end, ends) = std::sync::mpsc::channel::<()>();
    let run = held.executor().guarded(move |tx| {
        tx.commit_with(move |permit| {
            std::thread::spawn(move || {
                let change = || {
                    began.send(()).unwrap();
                    let _ = ends.recv();
                };
                gate.apply(&permit, change)
            });
            begins.recv().unwrap();
            Err::<(), _>(EffectError::not_applied("not today"))
        });
        Ok(())
    });
    drop(end);
    assert!(matches!(run, Err(RunError::InDoubt { .. })), "{run:?}");
    assert_eq!(spans.outcomes("lock.commit", "a", &token), ["unknown"]);
}

/// Polls a future whenever it is woken, and drops it when it has waited so often. Whether it
/// completed.
async fn drop_after(waits: usize, future: impl Future) -> bool {
    let mut future = pin!(future);
    let mut left = waits;
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(_) => Poll::Ready(true),
        Poll::Pending if left == 0 => Poll::Ready(false),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

#[tokio::test]
async fn a_call_that_is_dropped_at_any_await_leaves_no_span_open() {
    let spans = Closed::default();
    let subscriber = tracing_subscriber::registry().with(spans.clone());
    let _guard = tracing::subscriber::set_default(subscriber);
    let real = Clock::system().unwrap();
    for waits in 0.. {
        let (_clock, locks) = yielding();
        let call = async {
            let held = locks.lock("a").acquire().await.unwrap();
            let executor = held.executor();
            let committed = executor.commit(async |_| {
                tokio::task::yield_now().await;
                Ok(())
            });
            committed.await.unwrap();
            held.release().await.unwrap()
        };
        let has_ended = drop_after(waits, call).await;
        locks.shutdown().await;
        drop(locks);
        // The thread of the manager lets go of a hold after it has answered.
        for _ in 0..60_000 {
            if spans.open.lock().is_empty() {
                break;
            }
            real.sleep(Duration::from_millis(1)).await;
        }
        let open = spans.open.lock();
        assert!(open.is_empty(), "dropped after {waits} waits: {open:?}");
        if has_ended {
            assert!(waits > 3, "the store was never pending");
            return;
        }
    }
}
