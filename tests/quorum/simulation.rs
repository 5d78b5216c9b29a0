//! Random failures, restarts with loss of all data, lost and late requests: no two holds at a time,
//! every token larger than the one before, and no vote that stays when nobody holds or asks. The
//! same runs find the fault when a rule is switched off.

use std::time::Duration;

use leasehold::FencingToken;
use leasehold::clock::Clock;
use leasehold::store::quorum::Quorum;
use leasehold::store::{Acquired, Claim, Grant, Renewed, Store};
use leasehold::testing::{Faults, Faulty};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use tokio::sync::oneshot;

use crate::world::{HeldUp, Sabotage, TTL, Voter, World, claim, settle};

const CLIENTS: usize = 3;
/// How long a caller waits before it drops its request, and in how many steps time passes
/// meanwhile.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(500);
const STEPS: u32 = 10;

#[derive(Clone, Debug)]
enum Step {
    Acquire(usize),
    AcquireTogether(usize, usize),
    /// The same claim is asked twice at once.
    AcquireTwice(usize),
    Renew(usize),
    Release(usize),
    Abandon(usize),
    Pass(u64),
    Stop(usize),
    GoOn(usize),
    /// The member's next vote, or the answer to it, is held up until it is let go.
    HoldUp(usize, HeldUp),
    LetGo(usize),
    Restart(usize),
}

#[derive(Clone, Debug)]
struct Plan {
    members: usize,
    /// How far each member's clock is ahead, in milliseconds.
    ahead: Vec<u64>,
    seed: u64,
    faults: f64,
    steps: Vec<Step>,
}

fn plan() -> impl Strategy<Value = Plan> {
    let member = 0..5_usize;
    let client = 0..CLIENTS;
    let step = prop_oneof![
        6 => client.clone().prop_map(Step::Acquire),
        2 => (client.clone(), client.clone()).prop_map(|(a, b)| Step::AcquireTogether(a, b)),
        1 => client.clone().prop_map(Step::AcquireTwice),
        3 => client.clone().prop_map(Step::Renew),
        5 => client.clone().prop_map(Step::Release),
        1 => client.prop_map(Step::Abandon),
        4 => (1..1_500_u64).prop_map(Step::Pass),
        2 => member.clone().prop_map(Step::Stop),
        3 => member.clone().prop_map(Step::GoOn),
        2 => member.clone().prop_map(|member| Step::HoldUp(member, HeldUp::Request)),
        1 => member.clone().prop_map(|member| Step::HoldUp(member, HeldUp::Answer)),
        2 => member.clone().prop_map(Step::LetGo),
        2 => member.prop_map(Step::Restart),
    ];
    let steps = prop::collection::vec(step, 1..60);
    let faults = prop_oneof![2 => Just(0.0), 1 => Just(0.1)];
    let ahead = prop::collection::vec(0..900_u64, 5);
    let members = prop_oneof![3 => Just(3_usize), 1 => Just(5_usize)];
    (members, ahead, any::<u64>(), faults, steps).prop_map(
        |(members, ahead, seed, faults, steps)| Plan {
            members,
            ahead,
            seed,
            faults,
            steps,
        },
    )
}

struct Client {
    store: Quorum<Faulty<Voter>>,
    claim: Claim,
    hold: Option<Hold>,
}

#[derive(Clone)]
struct Hold {
    grant: Grant,
    ends: Duration,
}

struct Run {
    world: World,
    clients: Vec<Client>,
    last: Option<FencingToken>,
    held_up: Vec<Option<oneshot::Sender<()>>>,
    /// Since when something has been on its way to a member, and whether that was ever for so long
    /// that its withdrawal is forgotten when it arrives.
    away_since: Vec<Option<Duration>>,
    was_away_for_long: bool,
}

impl Run {
    /// The clients' time.
    fn now(&self) -> Duration {
        let zero = leasehold::clock::Stamp::from_nanos([0; 3]);
        Clock::from(self.world.clock.clone()).stamp().since(&zero)
    }

    /// Drives a request to its end, moving time on while it waits. `None` if the caller gave up and
    /// dropped it.
    async fn end<T: Send + 'static>(
        &self,
        request: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let task = tokio::spawn(request);
        for _ in 0..STEPS {
            settle().await;
            if task.is_finished() {
                return Some(task.await.unwrap());
            }
            self.world.pass(REQUEST_TIMEOUT / STEPS).await;
        }
        task.abort();
        settle().await;
        None
    }

    async fn acquire(&mut self, clients: &[usize]) -> Result<(), TestCaseError> {
        let sent_at = self.now();
        let asking = clients.iter().map(|&number| {
            let (store, claim) = (
                self.clients[number].store.clone(),
                self.clients[number].claim.clone(),
            );
            async move { store.acquire(&claim).await }
        });
        let asking: Vec<_> = asking.map(tokio::spawn).collect();
        let answers = self.end(futures_util::future::join_all(asking)).await;
        let Some(answers) = answers else {
            clients.iter().for_each(|&number| self.give_up(number));
            return Ok(());
        };
        let mut granted: [Option<FencingToken>; CLIENTS] = [None; CLIENTS];
        let mut failed = [false; CLIENTS];
        for (&number, answer) in clients.iter().zip(answers) {
            match answer.unwrap() {
                Ok(Acquired::Granted(grant)) => {
                    let before = granted[number].replace(grant.token);
                    let is_same = before.is_none_or(|token| token == grant.token);
                    prop_assert!(
                        is_same,
                        "claim: one was granted as {before:?} and {grant:?}"
                    );
                    self.granted(number, grant, sent_at)?;
                }
                Ok(_) => {}
                Err(_) => failed[number] = true,
            }
        }
        // Of a claim that was asked twice, one answer is enough.
        let is_lost = |number: &usize| failed[*number] && granted[*number].is_none();
        (0..CLIENTS)
            .filter(is_lost)
            .for_each(|number| self.give_up(number));
        Ok(())
    }

    /// What a manager does with a claim whose fate it does not know.
    fn give_up(&mut self, number: usize) {
        let client = &mut self.clients[number];
        let (store, given_up) = (
            client.store.clone(),
            std::mem::replace(&mut client.claim, claim()),
        );
        client.hold = None;
        tokio::spawn(async move { store.withdraw(&given_up).await });
    }

    fn granted(
        &mut self,
        number: usize,
        grant: Grant,
        sent_at: Duration,
    ) -> Result<(), TestCaseError> {
        let now = self.now();
        let ends = sent_at + grant.proof.ttl;
        if ends <= now {
            // It came too late to be of use. A manager gives it back.
            self.give_up(number);
            return Ok(());
        }
        let before = self.clients[number].hold.take();
        if before.is_none_or(|hold| hold.grant.token != grant.token) {
            let holds = |client: &Client| client.hold.as_ref().is_some_and(|hold| now < hold.ends);
            let other = self.clients.iter().position(holds);
            prop_assert!(
                other.is_none(),
                "exclusion: client {number} was granted what {other:?} holds"
            );
            prop_assert!(
                Some(grant.token) > self.last,
                "token: {:?} then {}",
                self.last,
                grant.token
            );
            self.last = Some(grant.token);
        }
        self.clients[number].hold = Some(Hold { grant, ends });
        Ok(())
    }

    async fn renew(&mut self, number: usize) -> Result<(), TestCaseError> {
        let Some(hold) = self.clients[number].hold.clone() else {
            return Ok(());
        };
        let (store, grant, sent_at) = (
            self.clients[number].store.clone(),
            hold.grant.clone(),
            self.now(),
        );
        let lapsed = hold.ends <= sent_at;
        let renewed = self.end(async move { store.renew(&[grant]).await }).await;
        match renewed.and_then(|mut answers| answers.pop()) {
            Some(Renewed::Extended(proof)) => {
                prop_assert!(!lapsed, "revival: a hold that ran out was renewed");
                let ends = hold.ends.max(sent_at + proof.ttl);
                // A manager throws away what comes after the deadline.
                if self.now() < hold.ends {
                    self.clients[number].hold = Some(Hold { ends, ..hold });
                }
            }
            Some(Renewed::Gone) => self.give_up(number),
            _ => {}
        }
        Ok(())
    }

    async fn release(&mut self, number: usize) {
        let Some(hold) = self.clients[number].hold.take() else {
            return;
        };
        self.clients[number].claim = claim();
        let store = self.clients[number].store.clone();
        self.end(async move { store.release(&hold.grant).await })
            .await;
    }

    fn goes_away(&mut self, member: usize) {
        let now = self.now();
        self.away_since[member].get_or_insert(now);
    }

    fn comes_back(&mut self, member: usize) {
        let now = self.now();
        let since = self.away_since[member].take();
        self.was_away_for_long |= since.is_some_and(|since| now - since >= TTL / 2);
    }

    /// Everybody ends what they have, and all members answer again: nothing may stay for its TTL.
    async fn leave(&mut self) -> Result<(), TestCaseError> {
        for member in 0..self.world.members.len() {
            self.step(&Step::LetGo(member)).await?;
            self.step(&Step::GoOn(member)).await?;
        }
        for client in 0..CLIENTS {
            self.release(client).await;
            self.give_up(client);
        }
        settle().await;
        // What failed is tried again after a part of the TTL.
        self.world.pass(TTL / 3).await;
        let keepers = self.world.keepers().await;
        prop_assert!(
            keepers.is_empty() || self.was_away_for_long,
            "leak: {keepers:?} keep a vote that nobody asked for"
        );
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let member = |number: &usize| number % self.world.members.len();
        match step {
            Step::Acquire(client) => self.acquire(&[*client]).await?,
            Step::AcquireTogether(a, b) if a == b => self.acquire(&[*a]).await?,
            Step::AcquireTogether(a, b) => self.acquire(&[*a, *b]).await?,
            Step::AcquireTwice(client) => self.acquire(&[*client, *client]).await?,
            Step::Renew(client) => self.renew(*client).await?,
            Step::Release(client) => self.release(*client).await,
            Step::Abandon(client) => self.give_up(*client),
            Step::Pass(millis) => self.world.pass(Duration::from_millis(*millis)).await,
            Step::Stop(number) => {
                self.world.stop(member(number));
                self.goes_away(member(number));
            }
            Step::GoOn(number) => {
                self.world.go_on(member(number));
                settle().await;
                self.comes_back(member(number));
            }
            Step::HoldUp(number, what) => {
                let number = member(number);
                self.held_up[number] = Some(self.world.hold_up(number, *what));
                settle().await;
                self.goes_away(number);
            }
            Step::LetGo(number) => {
                self.held_up[member(number)] = None;
                settle().await;
                self.comes_back(member(number));
            }
            Step::Restart(number) => self.world.restart(member(number)),
        }
        Ok(())
    }
}

async fn simulate(plan: &Plan, sabotage: Sabotage) -> Result<usize, TestCaseError> {
    let ahead: Vec<_> = plan.ahead[..plan.members]
        .iter()
        .map(|&ms| Duration::from_millis(ms))
        .collect();
    let world = World::with(&ahead, plan.seed, sabotage);
    for server in &world.members {
        let faults = Faults::each(plan.faults, Duration::from_millis(20));
        server.network.set(faults).unwrap();
    }
    let client = |_| Client {
        store: world.client(),
        claim: claim(),
        hold: None,
    };
    let clients = (0..CLIENTS).map(client).collect();
    let members = world.members.len();
    let mut run = Run {
        world,
        clients,
        last: None,
        held_up: (0..members).map(|_| None).collect(),
        away_since: vec![None; members],
        was_away_for_long: false,
    };
    let mut grants = 0;
    for step in &plan.steps {
        let before = run.last;
        run.step(step).await?;
        grants += usize::from(run.last != before);
    }
    if plan.faults == 0.0 && sabotage == Sabotage::Nothing {
        run.leave().await?;
    }
    Ok(grants)
}

/// Runs many plans; the failure, and how often a lock was granted.
fn search(sabotage: Sabotage, cases: u32) -> (Result<(), TestError<Plan>>, usize) {
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let grants = std::cell::Cell::new(0);
    let mut runner = TestRunner::new_with_rng(
        config,
        prop::test_runner::TestRng::deterministic_rng(prop::test_runner::RngAlgorithm::ChaCha),
    );
    let result = runner.run(&plan(), |plan| {
        let granted = runtime.block_on(simulate(&plan, sabotage))?;
        grants.set(grants.get() + granted);
        Ok(())
    });
    (result, grants.get())
}

fn found(sabotage: Sabotage, what: &str) {
    let (result, _) = search(sabotage, 3_000);
    match result {
        Err(TestError::Fail(reason, plan)) => {
            assert!(reason.message().starts_with(what), "{reason}\n{plan:#?}");
        }
        other => panic!("{sabotage:?} was not noticed: {other:?}"),
    }
}

#[test]
fn no_two_hold_at_a_time_and_every_token_is_larger() {
    let (result, grants) = search(Sabotage::Nothing, 600);
    if let Err(found) = result {
        panic!("{found}");
    }
    assert!(grants > 600, "a run without grants shows nothing: {grants}");
}

#[test]
fn the_same_run_finds_a_token_that_was_not_written_back() {
    found(Sabotage::WriteBack, "token");
}

#[test]
fn the_same_run_finds_a_member_that_votes_right_after_it_forgot() {
    found(Sabotage::Quarantine, "exclusion");
}
