//! Members that a test can stop, restart and set off, and the clients over them.

use std::time::Duration;

use leasehold::clock::ManualClock;
use leasehold::store::quorum::{MAX_SKEW, Member, Raised, Vote};
use leasehold::store::{
    Acquired, Capability, Claim, Faulty, Grant, Hint, LockInfo, MemoryStore, Operation, OwnerToken,
    Quorum, Released, Renewed, Store,
};
use leasehold::{Error, FencingToken, Key, Label};

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
            let voter = Voter {
                data: data.clone(),
                sabotage,
            };
            let network = Faulty::new(voter, clock.clone(), seed.wrapping_add(number as u64));
            Server {
                clock: own,
                data,
                network,
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
#[derive(Clone, Debug)]
pub(crate) struct Voter {
    data: MemoryStore,
    sabotage: Sabotage,
}

impl Store for Voter {
    fn name(&self) -> &'static str {
        "member"
    }

    fn capability(&self) -> Capability {
        self.data.capability()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Acquired, Error> {
        self.data.acquire(claim).await
    }

    async fn renew(&self, grants: &[Grant]) -> Vec<Renewed> {
        self.data.renew(grants).await
    }

    async fn release(&self, grant: &Grant) -> Released {
        self.data.release(grant).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), Error> {
        self.data.withdraw(claim).await
    }

    async fn subscribe(&self, claim: &Claim) -> Result<Hint, Error> {
        self.data.subscribe(claim).await
    }

    async fn inspect(&self, key: &Key) -> Result<Option<LockInfo>, Error> {
        self.data.inspect(key).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>, Error> {
        self.data.list(prefix).await
    }

    async fn close(&self) -> Result<(), Error> {
        self.data.close().await
    }
}

impl Member for Voter {
    async fn vote(&self, claim: &Claim, floor: Option<FencingToken>) -> Result<Vote, Error> {
        let floor = floor.filter(|_| self.sabotage != Sabotage::WriteBack);
        self.data.vote(claim, floor).await
    }

    async fn raise(&self, claim: &Claim, token: FencingToken) -> Result<Raised, Error> {
        match self.sabotage {
            Sabotage::WriteBack => Ok(Raised::Raised),
            _ => self.data.raise(claim, token).await,
        }
    }
}
