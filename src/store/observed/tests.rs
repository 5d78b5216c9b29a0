//! The store over the register that specifies it, and over one whose writes arrive late.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Listed, MemoryRegister, ObservedStore, Record, Register, State, Swapped};
use crate::clock::{Clock, ClockKind, ManualClock, Stamp};
use crate::model::error::{Error, ErrorKind};
use crate::model::holder::{Label, OwnerToken};
use crate::model::key::Key;
use crate::store::{Acquired, Claim, Grant, LockMode, Renewed, Revoke, Revoked, Store};
use crate::testing::conformance::{self, OnManualClock};

const TTL: Duration = Duration::from_secs(10);
/// Nothing of a swap arrives until the test delivers it.
const LATE: u8 = 1;
/// A swap takes effect, and its answer is lost.
const UNANSWERED: u8 = 2;
/// A load arrives when the test opens the gate.
const SLOW: u8 = 3;

type Sent = (Key, Option<u64>, Record);

/// A register at the end of a network that keeps requests or answers back.
#[derive(Clone, Debug, Default)]
struct Far {
    register: MemoryRegister,
    fault: Arc<AtomicU8>,
    sent: Arc<Mutex<Vec<Sent>>>,
    gate: Arc<Notify>,
    loads: Arc<AtomicUsize>,
    /// What a watch has shown last.
    shown: Arc<Mutex<Option<(Record, u64, Stamp)>>>,
}

impl Far {
    fn fails_by(&self, fault: u8) {
        self.fault.store(fault, Ordering::SeqCst);
    }

    /// How many loads a request sends that is refused.
    async fn loads_of(&self, store: &Client, claim: &Claim) -> usize {
        let before = self.loads.load(Ordering::SeqCst);
        let busy = store.acquire(claim).await.unwrap();
        assert!(matches!(busy, Acquired::Busy { .. }), "{busy:?}");
        self.loads.load(Ordering::SeqCst) - before
    }

    /// The watch shows the record as it is.
    async fn show(&self, key: &Key, clock: &ManualClock) {
        let at = Clock::from(clock.clone()).stamp();
        let (record, version) = self.register.load(key).await.unwrap().unwrap();
        *self.shown.lock() = Some((record, version, at));
    }

    /// The late swaps arrive. True if one of them took effect.
    async fn deliver(&self) -> bool {
        let sent = std::mem::take(&mut *self.sent.lock());
        assert!(!sent.is_empty(), "nothing was sent");
        let mut has_effect = false;
        for (key, expected, record) in sent {
            let swapped = self.register.swap(&key, expected.as_ref(), &record).await;
            has_effect |= matches!(swapped.unwrap(), Swapped::Swapped(_));
        }
        has_effect
    }
}

impl Register for Far {
    type Version = u64;

    fn name(&self) -> &'static str {
        "far"
    }

    /// The record of the key `hung` is never answered.
    async fn load(&self, key: &Key) -> Result<Option<(Record, u64)>, Error> {
        self.loads.fetch_add(1, Ordering::SeqCst);
        if key.as_str() == "hung" {
            std::future::pending::<()>().await;
        }
        if self.fault.load(Ordering::SeqCst) == SLOW {
            self.gate.notified().await;
        }
        self.register.load(key).await
    }

    async fn swap(
        &self,
        key: &Key,
        expected: Option<&u64>,
        record: &Record,
    ) -> Result<Swapped<u64>, Error> {
        match self.fault.load(Ordering::SeqCst) {
            LATE => {
                let sent = (key.clone(), expected.copied(), record.clone());
                self.sent.lock().push(sent);
                std::future::pending().await
            }
            UNANSWERED => {
                let _ = self.register.swap(key, expected, record).await?;
                std::future::pending().await
            }
            _ => self.register.swap(key, expected, record).await,
        }
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Listed<u64>>, Error> {
        self.register.list(prefix).await
    }

    fn watched(&self, _: &Key) -> Option<(Record, u64, Stamp)> {
        self.shown.lock().clone()
    }
}

type Client = ObservedStore<Far>;

/// Two clients, the register and the clock.
fn two() -> (Client, Client, Far, ManualClock) {
    let (far, clock) = (Far::default(), ManualClock::new());
    let client = || ObservedStore::with_clock(far.clone(), clock.clone());
    (client(), client(), far.clone(), clock.clone())
}

fn claim(key: &str) -> Claim {
    let label = Label::parse("host-a").unwrap();
    let owner = OwnerToken::generate().unwrap();
    Claim::new(key.parse().unwrap(), owner, label, TTL)
}

async fn granted(store: &Client, claim: &Claim) -> Grant {
    match store.acquire(claim).await.unwrap() {
        Acquired::Granted(grant) => grant,
        other => panic!("{other:?}"),
    }
}

async fn is_busy(store: &Client, key: &str) -> bool {
    let answer = store.acquire(&claim(key)).await.unwrap();
    matches!(answer, Acquired::Busy { .. })
}

async fn renewed(store: &Client, grant: &Grant) -> Renewed {
    let mut answers = store.renew(std::slice::from_ref(grant)).await;
    answers.remove(0)
}

#[tokio::test]
async fn an_observed_store_keeps_the_contract() {
    let (clock, register) = (ManualClock::new(), MemoryRegister::new());
    let observer = clock.clone();
    let client = || ObservedStore::with_clock(register.clone(), observer.clone());
    let report = conformance::run(&OnManualClock::new(clock, client)).await;
    println!("{report}");
    report.assert_passed();
}

#[tokio::test]
async fn a_write_that_arrives_after_its_withdrawal_has_no_effect() {
    let (a, b, far, clock) = two();
    // Of a key without a record, of one that was released, of one whose holder has died.
    for (key, has_record, has_died) in [
        ("new", false, false),
        ("free", true, false),
        ("dead", true, true),
    ] {
        if has_record {
            let before = granted(&b, &claim(key)).await;
            if has_died {
                assert!(is_busy(&a, key).await);
                clock.advance(TTL);
            } else {
                let _ = b.release(&before).await;
            }
        }
        far.fails_by(LATE);
        let late = claim(key);
        assert!(a.acquire(&late).now_or_never().is_none());
        far.fails_by(0);
        a.withdraw(&late).await.unwrap();
        assert!(!far.deliver().await, "{key}");
        let next = granted(&b, &claim(key)).await;
        let info = a.inspect(&next.claim.key).await.unwrap().unwrap();
        assert_eq!(info.token, Some(next.token));
    }
}

#[tokio::test]
async fn a_withdrawal_writes_nothing_while_another_holds() {
    let (a, b, far, _) = two();
    let held = granted(&b, &claim("x")).await;
    let key = &held.claim.key;
    let before = far.load(key).await.unwrap();
    a.withdraw(&claim("x")).await.unwrap();
    assert_eq!(far.load(key).await.unwrap(), before);
    assert!(matches!(renewed(&b, &held).await, Renewed::Extended(_)));
}

#[tokio::test]
async fn a_renewal_after_one_without_an_answer_writes_again() {
    let (a, b, far, clock) = two();
    let held = granted(&a, &claim("x")).await;
    far.fails_by(UNANSWERED);
    let one = std::slice::from_ref(&held);
    assert!(a.renew(one).now_or_never().is_none());
    far.fails_by(0);
    assert!(is_busy(&b, "x").await);
    clock.advance(TTL / 2);
    assert!(matches!(renewed(&a, &held).await, Renewed::Extended(_)));
    // The proof counts from here.
    clock.advance(TTL * 2 / 3);
    assert!(is_busy(&b, "x").await);
}

#[tokio::test]
async fn a_renewal_that_arrives_late_keeps_nobody_out_for_longer_than_a_ttl() {
    let (a, b, far, clock) = two();
    let held = granted(&a, &claim("x")).await;
    assert!(is_busy(&b, "x").await);
    far.fails_by(LATE);
    let one = std::slice::from_ref(&held);
    assert!(a.renew(one).now_or_never().is_none());
    far.fails_by(0);
    clock.advance(TTL);
    assert!(far.deliver().await);
    assert!(is_busy(&b, "x").await, "the version has moved");
    clock.advance(TTL);
    let next = granted(&b, &claim("x")).await;
    assert!(next.token > held.token);
    assert!(matches!(renewed(&a, &held).await, Renewed::Gone));
}

#[tokio::test]
async fn a_claim_whose_lease_is_over_is_refused_when_it_asks_again() {
    let (a, _, _, clock) = two();
    let held = granted(&a, &claim("x")).await;
    clock.advance(TTL);
    assert!(matches!(renewed(&a, &held).await, Renewed::Gone));
    assert!(a.acquire(&held.claim).await.is_err());
    let _next = granted(&a, &claim("x")).await;
}

#[tokio::test]
async fn renewals_that_hang_cost_the_others_nothing() {
    let (a, _, _, clock) = two();
    let answered = granted(&a, &claim("x")).await;
    let mut hung = answered.clone();
    hung.claim = claim("hung");
    let holds = [hung.clone(), answered, hung];
    let mut asked = Box::pin(a.renew(&holds));
    assert!(asked.as_mut().now_or_never().is_none());
    clock.advance(Duration::from_secs(1));
    let answers = asked.now_or_never().expect("one was answered");
    let [Renewed::Unknown(error), extended, Renewed::Unknown(_)] = answers.as_slice() else {
        panic!("{answers:?}");
    };
    assert_eq!(error.kind(), ErrorKind::InDoubt);
    assert!(matches!(extended, Renewed::Extended(_)), "{extended:?}");
}

#[tokio::test]
async fn time_counts_from_the_answer_that_shows_the_version() {
    let (a, b, far, clock) = two();
    let held = granted(&a, &claim("x")).await;
    far.fails_by(SLOW);
    let mut asked = Box::pin(is_busy(&b, "x"));
    assert!(asked.as_mut().now_or_never().is_none());
    clock.advance(TTL / 2);
    assert!(matches!(renewed(&a, &held).await, Renewed::Extended(_)));
    // The load arrives behind the renewal.
    far.fails_by(0);
    far.gate.notify_one();
    assert!(asked.await);
    clock.advance(TTL * 3 / 4);
    assert!(is_busy(&b, "x").await);
    clock.advance(TTL / 4);
    let _next = granted(&b, &claim("x")).await;
}

#[tokio::test]
async fn time_has_passed_when_both_clocks_say_so() {
    let (a, b, _, clock) = two();
    let _held = granted(&a, &claim("x")).await;
    assert!(is_busy(&b, "x").await);
    clock.advance_only(ClockKind::Boot, TTL);
    assert!(is_busy(&b, "x").await);
    clock.advance_only(ClockKind::Raw, TTL);
    let _next = granted(&b, &claim("x")).await;
}

#[tokio::test]
async fn a_holder_that_is_not_ours_is_observed_like_one() {
    let (a, _, far, clock) = two();
    let key: Key = "x".parse().unwrap();
    let foreign = Record {
        state: State::Held,
        owner: None,
        token: 7,
        ttl: TTL,
        beat: String::new(),
        label: Some(Label::parse("another-elector").unwrap()),
    };
    let _ = far.swap(&key, None, &foreign).await.unwrap();
    assert!(is_busy(&a, "x").await);
    let info = a.inspect(&key).await.unwrap().unwrap();
    assert_eq!(info.label, foreign.label);
    clock.advance(TTL);
    assert!(granted(&a, &claim("x")).await.token.number() > 7);
}

#[tokio::test]
async fn a_record_that_no_settings_allow_is_refused() {
    let (a, _, far, _) = two();
    let record = |key: &str, token, ttl| {
        let mut record = Record::held(&claim(key), token).unwrap();
        record.ttl = ttl;
        record
    };
    let day = Duration::from_secs(24 * 60 * 60);
    let refused = [
        ("long", record("long", 1, day + Duration::from_millis(1))),
        ("longest", record("longest", 1, Duration::MAX)),
        ("large", record("large", (1 << 53) - 1, Duration::ZERO)),
        ("huge", record("huge", u64::MAX, Duration::ZERO)),
    ];
    for (name, record) in refused {
        let key: Key = name.parse().unwrap();
        let _ = far.swap(&key, None, &record).await.unwrap();
        let error = a.acquire(&claim(name)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{name}");
        assert!(a.inspect(&key).await.is_ok());
    }
    let key: Key = "long".parse().unwrap();
    let revoked = a.revoke(&key, Revoke::Now).await.unwrap();
    assert!(matches!(revoked, Revoked::Revoked { .. }));
    let _held = granted(&a, &claim("long")).await;
}

#[tokio::test]
async fn what_a_register_cannot_do_is_refused() {
    let (a, ..) = two();
    let mut reader = claim("x");
    reader.mode = LockMode::Read;
    let error = a.acquire(&reader).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let grant = granted(&a, &claim("x")).await;
    let error = a.downgrade(&grant).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn who_asks_seldom_observes_a_dead_holder_all_the_same() {
    let (ours, theirs, _, clock) = two();
    let dead = claim("a");
    assert!(matches!(
        theirs.acquire(&dead).await.unwrap(),
        Acquired::Granted(_)
    ));
    let first = ours.acquire(&claim("a")).await.unwrap();
    assert!(matches!(first, Acquired::Busy { .. }));
    clock.advance(TTL * 30);
    // Others, so many that room is made for them.
    for number in 0..64 {
        let _ = ours
            .acquire(&claim(&format!("other/{number}")))
            .await
            .unwrap();
    }
    let again = ours.acquire(&claim("a")).await.unwrap();
    assert!(matches!(again, Acquired::Granted(_)), "{again:?}");
}

#[tokio::test]
async fn a_watch_that_shows_nothing_for_half_of_the_ttl_is_not_believed() {
    let (a, b, far, clock) = two();
    let held = granted(&b, &claim("x")).await;
    let waits = claim("x");
    assert_eq!(far.loads_of(&a, &waits).await, 1);
    for _ in 0..2 {
        clock.advance(TTL / 3);
        assert!(matches!(renewed(&b, &held).await, Renewed::Extended(_)));
        far.show(&held.claim.key, &clock).await;
        assert_eq!(far.loads_of(&a, &waits).await, 0);
    }
    // The watch is cut in silence.
    let instant = Duration::from_nanos(1);
    clock.advance(TTL / 2 - instant);
    assert_eq!(far.loads_of(&a, &waits).await, 0);
    clock.advance(instant);
    assert_eq!(far.loads_of(&a, &waits).await, 1);
    let _ = b.release(&held).await;
    let _next = granted(&a, &waits).await;
}

#[tokio::test]
async fn what_a_watch_shows_late_is_not_believed_after_a_newer_load() {
    let (a, b, far, clock) = two();
    let held = granted(&b, &claim("x")).await;
    let waits = claim("x");
    assert_eq!(far.loads_of(&a, &waits).await, 1);
    clock.advance(TTL / 10);
    far.show(&held.claim.key, &clock).await;
    assert_eq!(far.loads_of(&a, &waits).await, 0);
    clock.advance(TTL / 10);
    assert!(matches!(renewed(&b, &held).await, Renewed::Extended(_)));
    let newer = a.inspect(&held.claim.key).await.unwrap().unwrap();
    assert_eq!(newer.remaining, Some(TTL));
    assert_eq!(far.loads_of(&a, &waits).await, 1);
    let newer = a.acquire(&waits).await.unwrap();
    assert!(
        matches!(newer, Acquired::Busy { remaining } if remaining == Some(TTL)),
        "{newer:?}"
    );
}
