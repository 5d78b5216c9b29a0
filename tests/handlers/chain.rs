//! The chain of handlers: order, refusal, the shared wait budget, errors, and handlers that
//! misbehave.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{
    World, ms, no_handoff, poll_and_drop, poll_once, secs, until_ended, while_time_passes,
};
use leasehold::handler::{
    AcquireRequest, AcquireResponse, Granted, Handler, Next, NextRelease, ReleaseRequest,
};
use leasehold::store::Released;
use leasehold::{Error, ErrorKind, Settings};
use parking_lot::Mutex;

/// What was called, in its order.
type Calls = Arc<Mutex<Vec<String>>>;

/// Notes its hooks, and passes on.
struct Noting(&'static str, Calls);

impl Noting {
    fn note(&self, what: &str) {
        self.1.lock().push(format!("{} {what}", self.0));
    }
}

impl Handler for Noting {
    async fn acquire(
        &self,
        request: &mut AcquireRequest,
        next: Next<'_>,
    ) -> Result<AcquireResponse, Error> {
        self.note("asks");
        let answered = next.run(request).await;
        self.note(match &answered {
            Ok(AcquireResponse::Granted(_)) => "granted",
            Ok(AcquireResponse::Busy) => "busy",
            Err(_) => "error",
        });
        answered
    }

    fn acquire_failed(&self, _: &AcquireRequest, error: &Error) {
        self.note(&format!("hears of {:?}", error.kind()));
    }

    async fn release(&self, request: &ReleaseRequest, next: NextRelease<'_>) {
        self.note(&format!("releases {:?}", request.reason));
        let released = next.run().await;
        self.note(&format!("{released:?}"));
    }

    fn release_failed(&self, _: &ReleaseRequest, error: &Error) {
        self.note(&format!("hears of {:?}", error.kind()));
    }
}

/// What a handler may do wrong, or refuse, before or after the rest of the chain.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Deed {
    Refuse,
    SayBusy,
    Panic,
    Hang,
}

/// What a planted panic leaves: it panics as it is dropped.
struct Payload;

impl Drop for Payload {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "dropped");
    }
}

struct Doing {
    deed: Deed,
    is_after: bool,
    at_release: bool,
}

impl Doing {
    async fn act(&self) -> Result<AcquireResponse, Error> {
        match self.deed {
            Deed::Refuse => Err(Error::new(ErrorKind::Denied, "not today")),
            Deed::SayBusy => Ok(AcquireResponse::Busy),
            Deed::Panic => std::panic::panic_any(Payload),
            Deed::Hang => std::future::pending().await,
        }
    }
}

impl Handler for Doing {
    fn name(&self) -> &'static str {
        "doing"
    }

    async fn acquire(
        &self,
        request: &mut AcquireRequest,
        next: Next<'_>,
    ) -> Result<AcquireResponse, Error> {
        if self.at_release {
            return next.run(request).await;
        }
        if self.is_after {
            let _granted = next.run(request).await?;
        }
        self.act().await
    }

    async fn release(&self, _: &ReleaseRequest, next: NextRelease<'_>) {
        if !self.at_release {
            let _ = next.run().await;
            return;
        }
        if self.is_after {
            let _ = next.run().await;
        }
        let _ = self.act().await;
    }
}

fn at_acquire(deed: Deed, is_after: bool) -> Doing {
    Doing {
        deed,
        is_after,
        at_release: false,
    }
}

fn at_release(deed: Deed, is_after: bool) -> Doing {
    Doing {
        at_release: true,
        ..at_acquire(deed, is_after)
    }
}

/// A note-taker in front of `handler` and one behind it.
fn around(handler: impl Handler) -> (World, Calls) {
    let calls = Calls::default();
    let (front, behind) = (
        Noting("front", Arc::clone(&calls)),
        Noting("behind", Arc::clone(&calls)),
    );
    let world = World::built(no_handoff(), |b| {
        b.handler(front).handler(handler).handler(behind)
    });
    (world, calls)
}

struct Passing;

impl Handler for Passing {}

/// Everything that one call may take: its wait, and one look at the store.
fn most(wait: Duration) -> Duration {
    wait + Settings::default().request_timeout
}

#[tokio::test]
async fn the_handler_that_was_added_first_stands_outermost() {
    let (world, calls) = around(Passing);
    let guard = world.ours.lock("a").acquire().await.unwrap();
    assert!(matches!(guard.release().await, Ok(Released::Released)));
    assert_eq!(
        *calls.lock(),
        [
            "front asks",
            "behind asks",
            "behind granted",
            "front granted",
            "front releases Released",
            "behind releases Released",
            "behind Released",
            "front Released",
        ]
    );
}

#[tokio::test]
async fn a_handler_that_does_not_pass_the_call_on_refuses_it_and_nobody_behind_is_asked() {
    let (world, calls) = around(at_acquire(Deed::Refuse, false));
    let refused = world.ours.lock("a").acquire().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied);
    assert!(world.is_free("a").await);
    assert_eq!(
        *calls.lock(),
        [
            "front asks",
            "front error",
            "front hears of Denied",
            // Never reached, and notified all the same.
            "behind hears of Denied",
        ]
    );
}

#[tokio::test]
async fn a_handler_may_say_busy_and_that_is_no_error() {
    let (world, calls) = around(at_acquire(Deed::SayBusy, false));
    assert!(world.ours.lock("a").try_acquire().await.unwrap().is_none());
    assert_eq!(*calls.lock(), ["front asks", "front busy"]);
}

#[tokio::test]
async fn what_was_granted_and_then_refused_is_released() {
    for deed in [Deed::Refuse, Deed::SayBusy, Deed::Panic] {
        let (world, calls) = around(at_acquire(deed, true));
        let answer = world.ours.lock("a").try_acquire().await;
        match deed {
            Deed::Refuse => assert_eq!(answer.unwrap_err().kind(), ErrorKind::Denied),
            Deed::SayBusy => assert!(answer.unwrap().is_none()),
            _ => assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unavailable),
        }
        until_ended(&world, "a").await;
        assert!(calls.lock().contains(&"behind granted".to_owned()));
        // The handler behind saw a grant, and so it sees its end.
        assert!(calls.lock().contains(&"behind releases Dropped".to_owned()));
    }
}

#[tokio::test]
async fn a_panicking_handler_fails_its_call_by_name_and_the_manager_lives_on() {
    for is_after in [false, true] {
        let (world, calls) = around(at_acquire(Deed::Panic, is_after));
        let failed = world.ours.lock("a").acquire().await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::Unavailable);
        assert!(failed.to_string().contains("handler=doing"), "{failed}");
        let heard: Vec<_> = calls.lock().clone();
        assert!(heard.contains(&"front hears of Unavailable".to_owned()));
        assert!(heard.contains(&"behind hears of Unavailable".to_owned()));
        until_ended(&world, "a").await;
        let next = world.theirs.lock("a").acquire().await.unwrap();
        assert!(next.lease().is_live());
        assert!(world.ours.inspect("a").await.unwrap().is_some());
    }
}

#[tokio::test]
async fn a_hanging_handler_fails_its_call_within_the_budget_and_holds_up_no_renewal() {
    for is_after in [false, true] {
        let hangs_on_b = OnKey("b", at_acquire(Deed::Hang, is_after));
        let (world, _) = around(hangs_on_b);
        let held = world.ours.lock("a").acquire().await.unwrap();
        let begin = world.now();
        let lock = world.ours.lock("b");
        let wait = secs(20);
        let failed = while_time_passes(&world, secs(60), lock.acquire_within(wait)).await;
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::Unavailable);
        let took = world.now().since(&begin);
        assert!(took <= most(wait) + ms(100), "{took:?}");
        assert!(held.lease().is_live() && !held.lease().is_at_risk());
        until_ended(&world, "b").await;
    }
}

#[tokio::test]
async fn a_call_that_hangs_in_a_handler_ends_with_the_manager() {
    for is_after in [false, true] {
        let (world, calls) = around(at_acquire(Deed::Hang, is_after));
        let lock = world.ours.lock("a");
        let mut asked = Box::pin(lock.acquire());
        assert!(poll_once(asked.as_mut()).await.is_pending());
        let (asked, ()) = tokio::join!(asked, world.ours.shutdown());
        assert_eq!(asked.unwrap_err().kind(), ErrorKind::Closed);
        assert!(world.theirs.inspect("a").await.unwrap().is_none());
        assert!(calls.lock().contains(&"behind hears of Closed".to_owned()));
    }
}

/// Gives up what is behind it while that hangs, and panics then.
struct GivingUp;

impl Handler for GivingUp {
    fn name(&self) -> &'static str {
        "giving up"
    }

    async fn acquire(
        &self,
        request: &mut AcquireRequest,
        next: Next<'_>,
    ) -> Result<AcquireResponse, Error> {
        {
            let mut rest = Box::pin(next.run(request));
            assert!(poll_once(rest.as_mut()).await.is_pending());
        }
        panic!("a planted panic");
    }

    async fn release(&self, _: &ReleaseRequest, next: NextRelease<'_>) {
        {
            let mut rest = Box::pin(next.run());
            assert!(poll_once(rest.as_mut()).await.is_pending());
        }
        panic!("a planted panic");
    }
}

/// Keeps the errors that it is notified of.
struct Notified(Calls);

impl Handler for Notified {
    fn release_failed(&self, _: &ReleaseRequest, error: &Error) {
        self.0.lock().push(error.to_string());
    }
}

#[tokio::test]
async fn a_handler_that_gave_up_what_is_behind_it_is_named_as_the_one_that_failed() {
    let world = World::built(no_handoff(), |b| {
        b.handler(GivingUp).handler(at_acquire(Deed::Hang, false))
    });
    let failed = world.ours.lock("a").acquire().await.unwrap_err();
    assert!(
        failed.to_string().contains("handler=giving up;"),
        "{failed}"
    );

    let heard = Calls::default();
    let world = World::built(no_handoff(), |b| {
        b.handler(Notified(Arc::clone(&heard)))
            .handler(OnRelease(GivingUp))
            .handler(at_release(Deed::Hang, false))
    });
    let guard = world.ours.lock("a").acquire().await.unwrap();
    let released = while_time_passes(&world, secs(60), Box::pin(guard.release())).await;
    assert!(matches!(released, Ok(Released::Released)));
    let heard = heard.lock();
    assert!(heard[0].contains("handler=giving up;"), "{heard:?}");
}

/// Panics as it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a planted panic");
    }
}

/// Does not answer, and panics as it is cut off.
struct BombThatHangs;

impl Handler for BombThatHangs {
    fn name(&self) -> &'static str {
        "bomb"
    }

    async fn acquire(
        &self,
        request: &mut AcquireRequest,
        next: Next<'_>,
    ) -> Result<AcquireResponse, Error> {
        if request.key().as_str() == "released" {
            return next.run(request).await;
        }
        let _bomb = Bomb;
        std::future::pending().await
    }

    async fn release(&self, _: &ReleaseRequest, _: NextRelease<'_>) {
        let _bomb = Bomb;
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_handler_that_panics_as_it_is_cut_off_fails_its_call_and_not_its_caller() {
    let world = World::built(no_handoff(), |b| b.handler(BombThatHangs));
    let lock = world.ours.lock("late");
    let failed = while_time_passes(&world, secs(60), lock.acquire_within(secs(2))).await;
    let failed = failed.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Unavailable);
    assert!(failed.to_string().contains("at=bomb;"), "{failed}");

    let guard = world.ours.lock("released").acquire().await.unwrap();
    let released = while_time_passes(&world, secs(60), Box::pin(guard.release())).await;
    assert!(matches!(released, Ok(Released::Released)));

    let mut asked = Box::pin(lock.acquire());
    assert!(poll_once(asked.as_mut()).await.is_pending());
    let (asked, ()) = tokio::join!(asked, world.ours.shutdown());
    assert_eq!(asked.unwrap_err().kind(), ErrorKind::Closed);
}

/// A handler of releases alone.
struct OnRelease<H>(H);

impl<H: Handler> Handler for OnRelease<H> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    async fn release(&self, request: &ReleaseRequest, next: NextRelease<'_>) {
        self.0.release(request, next).await;
    }
}

/// A handler for one key.
struct OnKey<H>(&'static str, H);

impl<H: Handler> Handler for OnKey<H> {
    async fn acquire(
        &self,
        request: &mut AcquireRequest,
        next: Next<'_>,
    ) -> Result<AcquireResponse, Error> {
        if request.key().as_str() == self.0 {
            return self.1.acquire(request, next).await;
        }
        next.run(request).await
    }
}

/// Waits by the manager's clock before it passes on, and notes the budget before and after.
struct Delaying(Duration, Arc<Mutex<Vec<Duration>>>);

impl Handler for Delaying {
    async fn acquire(
        &self,
        request: &mut AcquireRequest,
        next: Next<'_>,
    ) -> Result<AcquireResponse, Error> {
        self.1.lock().push(request.remaining());
        let clock = request.clock().clone();
        clock.sleep(self.0).await;
        self.1.lock().push(request.remaining());
        next.run(request).await
    }
}

#[tokio::test]
async fn all_handlers_and_the_store_share_one_wait_budget() {
    let seen = Arc::<Mutex<Vec<Duration>>>::default();
    let (first, second) = (
        Delaying(secs(2), Arc::clone(&seen)),
        Delaying(secs(3), Arc::clone(&seen)),
    );
    let world = World::built(Settings::default(), |b| b.handler(first).handler(second));
    let _theirs = world.theirs.lock("a").acquire().await.unwrap();
    let begin = world.now();
    let lock = world.ours.lock("a");
    let answer = while_time_passes(&world, secs(60), lock.acquire_within(secs(10))).await;
    assert!(answer.unwrap().is_none());
    assert_eq!(world.now().since(&begin), secs(10));
    assert_eq!(*seen.lock(), [secs(10), secs(8), secs(8), secs(5)]);
}

/// Leaves at most so much of the budget, and tries to give back more.
struct Shortening(Duration);

impl Handler for Shortening {
    async fn acquire(
        &self,
        request: &mut AcquireRequest,
        next: Next<'_>,
    ) -> Result<AcquireResponse, Error> {
        request.shorten(self.0);
        request.shorten(secs(1_000));
        next.run(request).await
    }
}

#[tokio::test]
async fn a_wait_can_be_shortened_and_never_grows() {
    let world = World::built(Settings::default(), |b| b.handler(Shortening(secs(1))));
    let _theirs = world.theirs.lock("a").acquire().await.unwrap();
    let begin = world.now();
    let lock = world.ours.lock("a");
    let answer = while_time_passes(&world, secs(60), lock.acquire_within(secs(10))).await;
    assert!(answer.unwrap().is_none());
    assert_eq!(world.now().since(&begin), secs(1));
}

#[tokio::test]
async fn a_single_look_has_no_budget_to_wait_with() {
    let seen = Arc::<Mutex<Vec<Duration>>>::default();
    let handler = Delaying(Duration::ZERO, Arc::clone(&seen));
    let world = World::built(Settings::default(), |b| b.handler(handler));
    let guard = world.ours.lock("a").try_acquire().await.unwrap();
    assert!(guard.is_some());
    assert_eq!(*seen.lock(), [Duration::ZERO, Duration::ZERO]);
}

/// Keeps the first grant that it sees, and answers every later call with it.
#[derive(Default)]
struct Swapping(Mutex<Option<Granted>>);

impl Handler for Swapping {
    async fn acquire(
        &self,
        request: &mut AcquireRequest,
        next: Next<'_>,
    ) -> Result<AcquireResponse, Error> {
        if let Some(kept) = self.0.lock().take() {
            return Ok(AcquireResponse::Granted(kept));
        }
        if let AcquireResponse::Granted(granted) = next.run(request).await? {
            *self.0.lock() = Some(granted);
        }
        Ok(AcquireResponse::Busy)
    }
}

#[tokio::test]
async fn the_grant_of_one_call_is_none_for_another() {
    let world = World::built(Settings::default(), |b| b.handler(Swapping::default()));
    assert!(world.ours.lock("a").try_acquire().await.unwrap().is_none());
    let failed = world.ours.lock("b").try_acquire().await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Invalid);
    assert!(world.is_free("b").await);
}

/// Awaits many times on the way in and on the way out.
struct Slow;

impl Handler for Slow {
    async fn acquire(
        &self,
        request: &mut AcquireRequest,
        next: Next<'_>,
    ) -> Result<AcquireResponse, Error> {
        three_times().await;
        let answered = next.run(request).await;
        three_times().await;
        answered
    }

    async fn release(&self, _: &ReleaseRequest, next: NextRelease<'_>) {
        three_times().await;
        let _ = next.run().await;
        three_times().await;
    }
}

async fn three_times() {
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_acquire_that_is_dropped_at_any_await_of_the_chain_leaks_no_lock() {
    let mut completed = false;
    for times in 0..40 {
        let world = World::built(no_handoff(), |b| b.handler(Slow).handler(Slow));
        let lock = world.ours.lock("a");
        completed = poll_and_drop(times, async {
            drop(lock.acquire().await.unwrap());
        });
        until_ended(&world, "a").await;
    }
    assert!(completed, "the last round reaches the end");
}

#[tokio::test]
async fn a_release_that_is_dropped_at_any_await_of_the_chain_goes_on_in_the_background() {
    let mut completed = false;
    for times in 0..40 {
        let world = World::built(no_handoff(), |b| b.handler(Slow).handler(Slow));
        let guard = world.ours.lock("a").acquire().await.unwrap();
        completed = poll_and_drop(times, guard.release());
        until_ended(&world, "a").await;
    }
    assert!(completed, "the last round reaches the end");
}

#[tokio::test]
async fn a_release_that_is_dropped_after_it_handed_the_hold_on_takes_nothing_from_the_next_holder()
{
    let mut handoffs = 0;
    for times in 0..40 {
        let world = World::built(Settings::default(), |b| b.handler(Slow).handler(Slow));
        let guard = world.ours.lock("a").acquire().await.unwrap();
        let token = guard.token();
        let lock = world.ours.lock("a");
        let mut waiting = Box::pin(lock.acquire());
        for _ in 0..20 {
            assert!(poll_once(&mut waiting).await.is_pending());
        }
        poll_and_drop(times, guard.release());
        let next = while_time_passes(&world, secs(3), waiting).await.unwrap();
        handoffs += usize::from(next.token() == token);
        // The end of the dropped release goes through on threads of its own.
        for _ in 0..100 {
            world.settled().await;
            std::thread::yield_now();
        }
        assert!(next.lease().is_live(), "{times}");
        assert!(!world.is_free("a").await, "{times}");
    }
    assert!(handoffs > 0, "some rounds reach the handoff");
}

#[tokio::test]
async fn no_handler_can_keep_a_lock_from_being_released() {
    for deed in [Deed::Refuse, Deed::Panic, Deed::Hang] {
        for is_after in [false, true] {
            let (world, calls) = around(at_release(deed, is_after));
            let guard = world.ours.lock("a").acquire().await.unwrap();
            let begin = world.now();
            let released = while_time_passes(&world, secs(60), Box::pin(guard.release())).await;
            assert!(matches!(released, Ok(Released::Released)), "{deed:?}");
            assert!(world.is_free("a").await);
            let limit = Settings::default().request_timeout * 2;
            assert!(world.now().since(&begin) <= limit + ms(200));
            let heard = calls
                .lock()
                .contains(&"behind hears of Unavailable".to_owned());
            assert_eq!(heard, deed != Deed::Refuse, "{deed:?} {is_after}");
        }
    }
}

/// Blocks its thread at the release, until it is let go.
struct BlockingAtRelease {
    is_blocked: Arc<AtomicBool>,
    go: Mutex<std::sync::mpsc::Receiver<()>>,
}

impl Handler for BlockingAtRelease {
    async fn release(&self, _: &ReleaseRequest, next: NextRelease<'_>) {
        self.is_blocked.store(true, Ordering::SeqCst);
        let _ = self.go.lock().recv();
        let _ = next.run().await;
    }
}

#[tokio::test]
async fn a_handler_that_blocks_at_a_background_release_holds_up_no_heartbeat_and_no_release() {
    let (go, gone) = std::sync::mpsc::channel();
    let is_blocked = Arc::<AtomicBool>::default();
    let handler = BlockingAtRelease {
        is_blocked: Arc::clone(&is_blocked),
        go: Mutex::new(gone),
    };
    let world = World::built(no_handoff(), |b| b.handler(handler));
    let held = world.ours.lock("held").acquire().await.unwrap();
    drop(world.ours.lock("a").acquire().await.unwrap());
    while !is_blocked.load(Ordering::SeqCst) {
        tokio::task::yield_now().await;
    }
    world.pass(secs(60)).await;
    assert!(world.is_free("a").await);
    assert!(held.lease().is_live() && !held.lease().is_at_risk());
    go.send(()).unwrap();
    drop(go);
}
