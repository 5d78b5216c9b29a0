//! Adding or removing a handler changes nothing for the others, in random chains.
use std::sync::Arc;
use std::time::Duration;

use crate::support::{World, ms, no_handoff, secs, until_ended, while_time_passes};
use leasehold::handler::{
    AcquireRequest, AcquireResponse, Handler, Next, NextRelease, ReleaseRequest,
};
use leasehold::{Error, ErrorKind};
use parking_lot::Mutex;
use proptest::prelude::*;

/// What one handler does at an acquire.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Way {
    /// These change nothing for anybody.
    Pass,
    Attach,
    /// These change what the others see, and the others see it the same with or without a neutral
    /// one among them.
    Delay(u64),
    Shorten(u64),
    Refuse,
    SayBusy,
    RefuseAfter,
    PanicBefore,
    PanicAfter,
}

type Seen = Arc<Mutex<Vec<String>>>;

struct Walking {
    way: Way,
    /// What it saw, in its order.
    seen: Seen,
}

impl Walking {
    fn note(&self, what: String) {
        self.seen.lock().push(what);
    }
}

impl Handler for Walking {
    async fn acquire(
        &self,
        request: &mut AcquireRequest,
        next: Next<'_>,
    ) -> Result<AcquireResponse, Error> {
        self.note(format!("asks with {:?} left", request.remaining()));
        match self.way {
            Way::Attach => request.attach(self.seen.clone()),
            Way::Delay(span) => {
                let clock = request.clock().clone();
                clock.sleep(ms(span)).await;
            }
            Way::Shorten(span) => request.shorten(ms(span)),
            Way::Refuse => return Err(Error::new(ErrorKind::Denied, "not today")),
            Way::SayBusy => return Ok(AcquireResponse::Busy),
            Way::PanicBefore => panic!("a planted panic"),
            Way::Pass | Way::RefuseAfter | Way::PanicAfter => {}
        }
        let answered = next.run(request).await;
        self.note(match &answered {
            Ok(AcquireResponse::Granted(granted)) => format!("granted {}", granted.key()),
            Ok(AcquireResponse::Busy) => "busy".to_owned(),
            Err(error) => format!("failed {:?}", error.kind()),
        });
        match self.way {
            Way::RefuseAfter => Err(Error::new(ErrorKind::Denied, "not any more")),
            Way::PanicAfter => panic!("a planted panic"),
            _ => answered,
        }
    }

    fn acquire_failed(&self, _: &AcquireRequest, error: &Error) {
        self.note(format!("hears of {:?}", error.kind()));
    }

    async fn release(&self, request: &ReleaseRequest, next: NextRelease<'_>) {
        self.note(format!("ends by {:?}", request.reason));
        let released = next.run().await;
        self.note(format!("ended with {released:?}"));
    }
}

/// What each handler saw, and what the caller got, of one acquire and the end of its hold.
fn play(ways: &[Way], is_busy: bool, drops: bool) -> (Vec<Vec<String>>, String) {
    let seen: Vec<Seen> = ways.iter().map(|_| Seen::default()).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let answer = runtime.block_on(async {
        let world = World::built(no_handoff(), |mut builder| {
            for (way, seen) in ways.iter().zip(&seen) {
                builder = builder.handler(Walking {
                    way: *way,
                    seen: Arc::clone(seen),
                });
            }
            builder
        });
        let theirs = match is_busy {
            true => Some(world.theirs.lock("a").acquire().await.unwrap()),
            false => None,
        };
        let lock = world.ours.lock("a");
        let asked = Box::pin(lock.acquire_within(WAIT));
        let answer = match while_time_passes(&world, secs(60), asked).await {
            Ok(Some(guard)) if drops => {
                drop(guard);
                "held".to_owned()
            }
            Ok(Some(guard)) => format!("held, then {:?}", guard.release().await),
            Ok(None) => "busy".to_owned(),
            Err(error) => format!("{:?}", error.kind()),
        };
        drop(theirs);
        until_ended(&world, "a").await;
        // Nobody's last note is left out: the end in the background has notified all of them by
        // then.
        world.ours.shutdown().await;
        answer
    });
    drop(runtime);
    let seen = seen.iter().map(|seen| seen.lock().clone()).collect();
    (seen, answer)
}

const WAIT: Duration = secs(5);

fn any_way() -> impl Strategy<Value = Way> {
    prop_oneof![
        3 => Just(Way::Pass),
        2 => Just(Way::Attach),
        2 => (1u64..2_000).prop_map(Way::Delay),
        2 => (1u64..6_000).prop_map(Way::Shorten),
        1 => Just(Way::Refuse),
        1 => Just(Way::SayBusy),
        1 => Just(Way::RefuseAfter),
        1 => Just(Way::PanicBefore),
        1 => Just(Way::PanicAfter),
    ]
}

fn neutral() -> impl Strategy<Value = Way> {
    prop_oneof![Just(Way::Pass), Just(Way::Attach)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_handler_that_passes_everything_on_changes_nothing_for_the_others(
        ways in proptest::collection::vec(any_way(), 0..6),
        (added, at) in (neutral(), any::<prop::sample::Index>()),
        (is_busy, drops) in any::<(bool, bool)>(),
    ) {
        let without = play(&ways, is_busy, drops);
        let at = at.index(ways.len() + 1);
        let mut with = ways.clone();
        with.insert(at, added);
        let (mut seen, answer) = play(&with, is_busy, drops);
        seen.remove(at);
        prop_assert_eq!((seen, answer), without);
    }
}

#[test]
fn a_refusal_changes_what_those_behind_it_see() {
    // The property above can fail: a handler that is not neutral is noticed.
    let without = play(&[Way::Pass, Way::Pass], false, false);
    let (mut seen, answer) = play(&[Way::Pass, Way::Refuse, Way::Pass], false, false);
    seen.remove(1);
    assert_ne!((seen, answer), without);
}
