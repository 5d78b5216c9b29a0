//! Members that a test can stop, restart and set off, and the clients over them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::clock::ManualClock;
use leasehold::store::quorum::{MAX_SKEW, Member, Quorum, Raised, Vote};
use leasehold::store::{Acquired, Claim, Grant, Label, MemoryStore, OwnerToken, Store};
use leasehold::testing::{Faulty, Operation};
use leasehold::{Error, FencingToken, Key};
use tokio::sync::{oneshot, watch};

use crate::over::{Changes, Over};

/// The longest TTL of any client, and the one that all use.
pub(crate) const TTL: Duration = Duration::from_secs(2);
/// What a member keeps silent for after a loss of its data.
pub(crate) const QUARANTINE: Duration = TTL.saturating_add(MAX_SKEW);

/// What is switched off, to see that the tests notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sabotage {
    Nothing,
    WriteBack,
    Quarantine,
}

/// What of a vote is held up on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HeldUp {
    /// The member votes when the test lets the request go.
    Request,
    /// The member votes at once; its answer arrives when the test lets it go.
    Answer,
}

type HeldUpVote = Arc<Mutex<Option<(HeldUp, oneshot::Receiver<()>)>>>;

pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) members: Vec<Server>,
    sabotage: Sabotage,
}

/// One member: its own clock, its data, and the network in front of it.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) clock: ManualClock,
    pub(crate) data: MemoryStore,
    pub(crate) network: Faulty<Voter>,
    connected: Arc<watch::Sender<bool>>,
    held_up: HeldUpVote,
}

impl World {
    pub(crate) fn new(members: usize) -> Self {
        Self::with(&vec![Duration::ZERO; members], 0, Sabotage::Nothing)
    }

    /// One member for each offset of its clock.
    pub(crate) fn with(offsets: &[Duration], seed: u64, sabotage: Sabotage) -> Self {
        let clock = ManualClock::new();
        let server = |(number, &offset): (usize, &Duration)| {
            let own = ManualClock::new();
            own.advance(offset);
            let data = MemoryStore::with_clock(own.clone());
            let (connected, _) = watch::channel(true);
            let connected = Arc::new(connected);
            let held_up = HeldUpVote::default();
            let voter = Over(Seat {
                data: data.clone(),
                connected: Arc::clone(&connected),
                held_up: Arc::clone(&held_up),
                sabotage,
            });
            let network = Faulty::new(voter, clock.clone(), seed.wrapping_add(number as u64));
            Server {
                clock: own,
                data,
                network,
                connected,
                held_up,
            }
        };
        let members = offsets.iter().enumerate().map(server).collect();
        Self {
            clock,
            members,
            sabotage,
        }
    }

    pub(crate) fn client(&self) -> Quorum<Faulty<Voter>> {
        let members = self.members.iter().map(|server| server.network.clone());
        Quorum::with_clock(members, self.clock.clone()).unwrap()
    }

    /// Time passes everywhere, and background tasks come to rest.
    pub(crate) async fn pass(&self, span: Duration) {
        self.clock.advance(span);
        for server in &self.members {
            server.clock.advance(span);
        }
        settle().await;
    }

    pub(crate) fn stop(&self, member: usize) {
        for operation in Operation::ALL {
            self.members[member].network.stall(operation);
        }
    }

    pub(crate) fn go_on(&self, member: usize) {
        for operation in Operation::ALL {
            self.members[member].network.unblock(operation);
        }
    }

    /// Whether a connection to the member can be made. Without one, a request waits before it is
    /// sent.
    pub(crate) fn connect(&self, member: usize, is_connected: bool) {
        self.members[member].connected.send_replace(is_connected);
    }

    /// Holds up the next vote at this member, until the sender sends or is dropped.
    pub(crate) fn hold_up(&self, member: usize, what: HeldUp) -> oneshot::Sender<()> {
        let (go, gone) = oneshot::channel();
        *self.members[member].held_up.lock().unwrap() = Some((what, gone));
        go
    }

    /// The member loses all its data, and keeps its quarantine.
    pub(crate) fn restart(&self, member: usize) {
        self.members[member].data.restart(match self.sabotage {
            Sabotage::Quarantine => Duration::ZERO,
            _ => QUARANTINE,
        });
    }

    /// The members that keep a lock of the key.
    pub(crate) async fn keepers(&self) -> Vec<usize> {
        let mut keepers = Vec::new();
        for (number, server) in self.members.iter().enumerate() {
            if server.data.inspect(&key()).await.unwrap().is_some() {
                keepers.push(number);
            }
        }
        keepers
    }
}

/// Lets every task that can go on do so.
pub(crate) async fn settle() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

pub(crate) fn key() -> Key {
    Key::parse("key").unwrap()
}

pub(crate) fn claim() -> Claim {
    let owner = OwnerToken::generate().unwrap();
    Claim::new(key(), owner, Label::parse("test").unwrap(), TTL)
}

pub(crate) fn granted(acquired: Result<Acquired, Error>) -> Grant {
    match acquired {
        Ok(Acquired::Granted(grant)) => grant,
        other => panic!("expected a grant, got {other:?}"),
    }
}

/// A member as it is, or one that leaves out the second round of the tokens.
pub(crate) type Voter = Over<Seat>;

#[derive(Clone, Debug)]
pub(crate) struct Seat {
    data: MemoryStore,
    connected: Arc<watch::Sender<bool>>,
    held_up: HeldUpVote,
    sabotage: Sabotage,
}

impl Changes for Seat {
    type Store = MemoryStore;

    fn beneath(&self) -> &MemoryStore {
        &self.data
    }
}

impl Member for Voter {
    async fn ready(&self) -> Result<(), Error> {
        let mut connected = self.0.connected.subscribe();
        let waited = connected.wait_for(|is_connected| *is_connected).await;
        waited
            .map(drop)
            .map_err(|_| Error::closed("the member is gone"))
    }

    async fn vote(&self, claim: &Claim, floor: Option<FencingToken>) -> Result<Vote, Error> {
        let floor = floor.filter(|_| self.0.sabotage != Sabotage::WriteBack);
        let held_up = self.0.held_up.lock().unwrap().take();
        match held_up {
            None => self.0.data.vote(claim, floor).await,
            Some((HeldUp::Request, go)) => {
                let _ = go.await;
                self.0.data.vote(claim, floor).await
            }
            Some((HeldUp::Answer, go)) => {
                let vote = self.0.data.vote(claim, floor).await;
                let _ = go.await;
                vote
            }
        }
    }

    async fn raise(&self, claim: &Claim, token: FencingToken) -> Result<Raised, Error> {
        match self.0.sabotage {
            Sabotage::WriteBack => Ok(Raised::Raised),
            _ => self.0.data.raise(claim, token).await,
        }
    }
}
