//! What the manager's task does first when several things wait.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::Duration;

use futures_util::FutureExt;
use leasehold::handler::Event;
use leasehold::{LockManager, Settings};

use crate::support::{World, ms, poll_and_drop, secs};

/// The task is held up in an observer. When it continues, a renewal is due and a message waits.
#[tokio::test]
async fn a_renewal_goes_before_messages_that_wait() {
    let (began, has_begun) = mpsc::channel();
    let (go, may_go) = mpsc::channel();
    let (began, may_go) = (Mutex::new(began), Mutex::new(may_go));
    let manager = Arc::new(OnceLock::<LockManager>::new());
    let was_open = Arc::new(Mutex::new(None));
    let (ours, seen) = (Arc::clone(&manager), Arc::clone(&was_open));
    let renewals = AtomicUsize::new(0);
    let observer = move |event: &Event<'_>| {
        if !matches!(event, Event::Renew { .. }) {
            return;
        }
        if renewals.fetch_add(1, Ordering::SeqCst) == 0 {
            began.lock().unwrap().send(()).unwrap();
            may_go.lock().unwrap().recv().unwrap();
            return;
        }
        let asked = ours.get().unwrap().lock("c").try_acquire().now_or_never();
        let is_open = asked.expect("the memory store answers at once").is_ok();
        seen.lock().unwrap().get_or_insert(is_open);
    };
    let world = World::built(Settings::default(), |builder| builder.observer(observer));
    manager.set(world.ours.clone()).unwrap();
    let _a = world.ours.lock("a").acquire().await.unwrap();
    world.clock.advance(secs(2));
    let _b = world.ours.lock("b").acquire().await.unwrap();
    world.clock.advance(ms(1_500));
    // Another thread is waited for; the limit is for a test that fails.
    has_begun.recv_timeout(Duration::from_secs(60)).unwrap();
    world.clock.advance(secs(3));
    assert!(!poll_and_drop(1, world.ours.shutdown()));
    go.send(()).unwrap();
    world.ours.shutdown().await;
    assert_eq!(*was_open.lock().unwrap(), Some(true));
}
