//! What a handler ties to a hold ends with it, for whatever reason.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{World, no_handoff, poll_once, secs, while_time_passes};
use leasehold::handler::{
    AcquireRequest, AcquireResponse, Handler, Next, NextRelease, ReleaseRequest,
};
use leasehold::store::Released;
use leasehold::{Ended, Error, ErrorKind};
use parking_lot::Mutex;
use tokio::sync::mpsc;

/// Says so when it is dropped.
struct CommitPermit {
    name: &'static str,
    freed: mpsc::UnboundedSender<&'static str>,
    out: Arc<AtomicUsize>,
}

impl Drop for CommitPermit {
    fn drop(&mut self) {
        self.out.fetch_sub(1, Ordering::SeqCst);
        let _ = self.freed.send(self.name);
    }
}

/// Ties one permit to the request and one to the grant, and notes why holds end.
struct Attaching {
    freed: mpsc::UnboundedSender<&'static str>,
    out: Arc<AtomicUsize>,
    reasons: Arc<Mutex<Vec<Ended>>>,
    refuses: bool,
}

impl Attaching {
    fn permit(&self, name: &'static str) -> CommitPermit {
        self.out.fetch_add(1, Ordering::SeqCst);
        CommitPermit {
            name,
            freed: self.freed.clone(),
            out: Arc::clone(&self.out),
        }
    }
}

impl Handler for Attaching {
    async fn acquire(
        &self,
        request: &mut AcquireRequest,
        next: Next<'_>,
    ) -> Result<AcquireResponse, Error> {
        request.attach(self.permit("request"));
        let answered = next.run(request).await?;
        if let AcquireResponse::Granted(granted) = &answered {
            granted.attach(self.permit("grant"));
        }
        if self.refuses {
            return Err(Error::new(ErrorKind::Denied, "not today"));
        }
        Ok(answered)
    }

    async fn release(&self, request: &ReleaseRequest, next: NextRelease<'_>) {
        self.reasons.lock().push(request.reason);
        let _ = next.run().await;
    }
}

struct Scene {
    world: World,
    freed: mpsc::UnboundedReceiver<&'static str>,
    /// How many permits are out.
    out: Arc<AtomicUsize>,
    reasons: Arc<Mutex<Vec<Ended>>>,
}

impl Scene {
    fn new() -> Self {
        Self::with(false, no_handoff())
    }

    fn with(refuses: bool, settings: leasehold::Settings) -> Self {
        let (freed, is_freed) = mpsc::unbounded_channel();
        let (out, reasons) = (Arc::default(), Arc::default());
        let handler = Attaching {
            freed,
            out: Arc::clone(&out),
            reasons: Arc::clone(&reasons),
            refuses,
        };
        Self {
            world: World::built(settings, |b| b.handler(handler)),
            freed: is_freed,
            out,
            reasons,
        }
    }

    fn out(&self) -> usize {
        self.out.load(Ordering::SeqCst)
    }

    /// Waits for both permits of a hold: newest first.
    async fn both_freed(&mut self) {
        assert_eq!(self.freed.recv().await, Some("grant"));
        assert_eq!(self.freed.recv().await, Some("request"));
    }

    fn reasons(&self) -> Vec<Ended> {
        self.reasons.lock().clone()
    }
}

#[tokio::test]
async fn a_release_frees_what_is_attached_before_it_answers() {
    let mut scene = Scene::new();
    let guard = scene.world.ours.lock("a").acquire().await.unwrap();
    scene.world.pass(secs(60)).await;
    assert_eq!(scene.out(), 2);
    assert!(matches!(guard.release().await, Ok(Released::Released)));
    assert_eq!(scene.out(), 0);
    scene.both_freed().await;
    assert_eq!(scene.reasons(), [Ended::Released]);
}

#[tokio::test]
async fn what_is_attached_to_a_write_hold_stays_with_the_read_hold_that_it_becomes() {
    let mut scene = Scene::new();
    let lock = scene.world.ours.read_write("a");
    let writer = lock.write().await.unwrap();
    assert_eq!(scene.out(), 2);
    let reader = writer.downgrade().await.unwrap();
    scene.world.settled().await;
    assert_eq!(scene.out(), 2);
    drop(reader);
    scene.both_freed().await;
}

#[tokio::test]
async fn a_dropped_guard_frees_what_is_attached() {
    let mut scene = Scene::new();
    drop(scene.world.ours.lock("a").acquire().await.unwrap());
    scene.both_freed().await;
    assert_eq!(scene.reasons(), [Ended::Dropped]);
    assert!(scene.world.is_free("a").await);
}

#[tokio::test]
async fn a_lost_lease_frees_what_is_attached_while_its_guard_lives() {
    let mut scene = Scene::new();
    let guard = scene.world.ours.lock("a").acquire().await.unwrap();
    scene.world.store.forget();
    scene.world.pass(secs(4)).await;
    scene.both_freed().await;
    assert_eq!(scene.reasons(), [Ended::Gone]);
    drop(guard);
}

#[tokio::test]
async fn a_panic_under_the_guard_frees_what_is_attached() {
    let mut scene = Scene::new();
    let guard = scene.world.ours.lock("a").acquire().await.unwrap();
    let work = tokio::spawn(async move {
        let _guard = guard;
        panic!("a planted panic");
    });
    assert!(work.await.unwrap_err().is_panic());
    scene.both_freed().await;
    assert_eq!(scene.reasons(), [Ended::Dropped]);
}

#[tokio::test]
async fn a_shutdown_frees_what_is_attached_while_its_guard_lives() {
    let mut scene = Scene::new();
    let guard = scene.world.ours.lock("a").acquire().await.unwrap();
    scene.world.ours.shutdown().await;
    scene.both_freed().await;
    assert_eq!(scene.reasons(), [Ended::Closed]);
    drop(guard);
}

#[tokio::test]
async fn a_hold_that_is_handed_off_frees_its_own_and_not_the_next_ones() {
    let mut scene = Scene::with(false, leasehold::Settings::default());
    let first = scene.world.ours.lock("a").acquire().await.unwrap();
    let lock = scene.world.ours.lock("a");
    let mut waiting = Box::pin(lock.acquire());
    assert!(poll_once(waiting.as_mut()).await.is_pending());
    let token = first.token();
    let _ = first.release().await;
    scene.both_freed().await;
    let second = waiting.await.unwrap();
    assert_eq!(second.token(), token, "it was handed on");
    assert_eq!(scene.out(), 2);
    let _ = second.release().await;
    assert_eq!(scene.out(), 0);
    assert_eq!(scene.reasons(), [Ended::Released, Ended::Released]);
}

#[tokio::test]
async fn a_call_without_a_hold_frees_what_was_attached_as_it_ends() {
    let mut scene = Scene::new();
    let theirs = scene.world.theirs.lock("a").acquire().await.unwrap();
    let lock = scene.world.ours.lock("a");
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert_eq!(scene.out(), 0, "busy");
    let answer = while_time_passes(&scene.world, secs(60), lock.acquire_within(secs(5))).await;
    assert!(answer.unwrap().is_none());
    assert_eq!(scene.out(), 0, "busy for all of the wait");
    {
        let mut waiting = Box::pin(lock.acquire());
        assert!(poll_once(waiting.as_mut()).await.is_pending());
        assert_eq!(scene.out(), 1);
    }
    assert_eq!(scene.out(), 0, "abandoned");
    for _ in 0..3 {
        assert_eq!(scene.freed.recv().await, Some("request"));
    }
    assert_eq!(scene.reasons(), [], "there was no hold to end");
    drop(theirs);
}

#[tokio::test]
async fn a_grant_that_is_refused_frees_what_was_attached_to_it() {
    let mut scene = Scene::with(true, no_handoff());
    let refused = scene.world.ours.lock("a").acquire().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied);
    scene.both_freed().await;
    assert_eq!(scene.reasons(), [Ended::Dropped]);
}

/// Panics as it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a planted panic");
    }
}

struct Bombing;

impl Handler for Bombing {
    async fn acquire(
        &self,
        request: &mut AcquireRequest,
        next: Next<'_>,
    ) -> Result<AcquireResponse, Error> {
        request.attach(Bomb);
        next.run(request).await
    }
}

#[tokio::test]
async fn an_attachment_that_panics_as_it_is_dropped_harms_nobody() {
    let world = World::built(no_handoff(), |b| b.handler(Bombing));
    let guard = world.ours.lock("a").acquire().await.unwrap();
    assert!(matches!(guard.release().await, Ok(Released::Released)));
    drop(world.ours.lock("a").acquire().await.unwrap());
    crate::support::until_ended(&world, "a").await;
    let held = world.ours.lock("a").acquire().await.unwrap();
    world.pass(secs(60)).await;
    assert!(held.lease().is_live());
}
