//! Three managers, one key, and a network that loses, doubles, delays and reorders: whatever
//! happens, at no instant is more than one lease live, and tokens grow.
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use crate::support::{ms, poll_once};
use leasehold::clock::ManualClock;
use leasehold::store::MemoryStore;
use leasehold::testing::{Faults, Faulty, Operation};
use leasehold::{Error, FencingToken, Lease, LockGuard, LockManager, Settings};
use proptest::prelude::*;

const MANAGERS: usize = 3;

#[derive(Clone, Debug)]
enum Act {
    Acquire(usize),
    Abandon(usize),
    Drop(usize),
    Release(usize),
    Cut(usize),
    Restore(usize),
    Pass(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let who = 0..MANAGERS;
    prop_oneof![
        4 => who.clone().prop_map(Act::Acquire),
        1 => who.clone().prop_map(Act::Abandon),
        1 => who.clone().prop_map(Act::Drop),
        2 => who.clone().prop_map(Act::Release),
        1 => who.clone().prop_map(Act::Cut),
        1 => who.prop_map(Act::Restore),
        6 => (1..4_000_u64).prop_map(Act::Pass),
    ]
}

type Acquiring = Pin<Box<dyn Future<Output = Result<Option<LockGuard>, Error>>>>;

/// One process: its manager, its network, and what it is at.
struct Party {
    locks: LockManager,
    network: Faulty<MemoryStore>,
    acquiring: Option<Acquiring>,
    guard: Option<LockGuard>,
}

struct World {
    clock: ManualClock,
    parties: Vec<Party>,
    /// Every lease there ever was: one that is over must stay so.
    leases: Vec<Lease>,
    last: Option<FencingToken>,
    grants: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::with_clock(clock.clone());
        let mut settings = Settings::default();
        settings.ttl = Duration::from_secs(3);
        let party = |n: usize| {
            let network = Faulty::new(store.clone(), clock.clone(), seed + n as u64);
            network.set(Faults::each(0.08, ms(400))).unwrap();
            let locks = LockManager::builder(network.clone())
                .clock(clock.clone())
                .settings(settings.clone())
                .build()
                .unwrap();
            Party {
                locks,
                network,
                acquiring: None,
                guard: None,
            }
        };
        let parties = (0..MANAGERS).map(party).collect();
        Self {
            clock,
            parties,
            leases: Vec::new(),
            last: None,
            grants: 0,
        }
    }

    async fn act(&mut self, act: &Act) {
        match *act {
            Act::Acquire(n) => {
                let party = &mut self.parties[n];
                if party.acquiring.is_none() && party.guard.is_none() {
                    let lock = party.locks.lock("a");
                    let wait = Duration::from_secs(8);
                    party.acquiring =
                        Some(Box::pin(async move { lock.acquire_within(wait).await }));
                }
            }
            Act::Abandon(n) => self.parties[n].acquiring = None,
            Act::Drop(n) => self.parties[n].guard = None,
            Act::Release(n) => {
                if let Some(guard) = self.parties[n].guard.take() {
                    let mut release = Box::pin(guard.release());
                    // Given up after one poll if it waits for the network: the rest is the
                    // manager's.
                    let _ = poll_once(&mut release).await;
                }
            }
            Act::Cut(n) => Operation::ALL
                .map(|op| self.parties[n].network.block(op))
                .into_iter()
                .collect(),
            Act::Restore(n) => Operation::ALL
                .map(|op| self.parties[n].network.unblock(op))
                .into_iter()
                .collect(),
            Act::Pass(span) => {
                let mut left = span;
                while left > 0 {
                    let step = left.min(70);
                    self.clock.advance(ms(step));
                    self.look().await;
                    left -= step;
                }
            }
        }
        self.look().await;
    }

    /// Lets everybody do what is due, and judges.
    async fn look(&mut self) {
        for party in &mut self.parties {
            party.locks.settled().await;
            let Some(acquiring) = &mut party.acquiring else {
                continue;
            };
            let Poll::Ready(answer) = poll_once(acquiring).await else {
                continue;
            };
            party.acquiring = None;
            if let Ok(Some(guard)) = answer {
                assert!(
                    Some(guard.token()) > self.last,
                    "a token that does not grow"
                );
                self.last = Some(guard.token());
                self.grants += 1;
                self.leases.push(guard.lease().clone());
                party.guard = Some(guard);
            }
        }
        let live = self.leases.iter().filter(|lease| lease.is_live()).count();
        assert!(live <= 1, "{live} leases are live at once");
        self.leases.retain(Lease::is_live);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn at_no_instant_are_two_leases_live(
        seed in any::<u32>(),
        acts in proptest::collection::vec(act(), 20..60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut world = World::new(u64::from(seed));
            for act in &acts {
                world.act(act).await;
            }
        });
    }
}

#[test]
fn the_world_of_the_property_does_grant() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut world = World::new(3);
        for n in 0..60 {
            world.act(&Act::Acquire(n % MANAGERS)).await;
            world.act(&Act::Pass(700)).await;
            world.act(&Act::Release(n % MANAGERS)).await;
        }
        assert!(world.grants >= 20, "{} grants", world.grants);
    });
}
