//! One guarded run: what its work does, and what it writes down for the judges.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold::clock::Clock;
use leasehold::fence::Refusal;
use leasehold::run::{Applied, Compensation, Doubt, Effect, EffectError, StepError};
use leasehold::{
    Abort, AsyncTx, Committed, ErrorKind, Executor, GuardedCell, Lease, LeaseError, RunError, Tx,
};

use crate::cell::{Value, takes_long_to_replace};
use crate::coverage::Doing;
use crate::dice::Dice;
use crate::net::{Op, To};
use crate::node::Ctx;
use crate::resource::Deed;
use crate::runs::{End, Hook, step_name};
use crate::turns::{InTurn, Watched};

/// What a run does, drawn before it begins.
#[derive(Clone, Debug)]
pub(crate) struct RunPlan {
    acts: Vec<Act>,
    commit: Commit,
    writes_cell: bool,
    fails: bool,
    panics: bool,
    is_blocking: bool,
    in_turn: bool,
    /// For how long the thread stops before the commit leaves, and after it.
    stalls: [u64; 2],
    cut: Cut,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Work(u64),
    /// Keeps the thread, so that time passes within a poll.
    Stall(u64),
    Check,
    Undo {
        fails: bool,
        panics: bool,
    },
    Step {
        is_refused: bool,
        is_unknown: bool,
        goes_on: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Commit {
    None,
    Send,
    NotApplied,
    Unknown,
}

/// Whether the future is dropped before it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cut {
    No,
    Polls(u32),
    After(u64),
}

impl Cut {
    pub(crate) fn draw(dice: &mut Dice, probability: f64, longest: f64) -> Self {
        let (hit, by_polls, polls, span) = (
            dice.falls(probability),
            dice.falls(0.5),
            dice.below(6) as u32,
            dice.ms(0.0, longest),
        );
        match (hit, by_polls) {
            (false, _) => Self::No,
            (true, true) => Self::Polls(polls),
            (true, false) => Self::After(span),
        }
    }

    /// Awaits `future`, or drops it.
    pub(crate) async fn limit<F: Future>(self, clock: &Clock, future: F) -> Option<F::Output> {
        match self {
            Self::No => Some(future.await),
            Self::After(span) => clock.timeout(Duration::from_nanos(span), future).await,
            Self::Polls(polls) => {
                let mut future = Box::pin(future);
                let mut left = polls;
                std::future::poll_fn(move |cx| {
                    if left == 0 {
                        return Poll::Ready(None);
                    }
                    left -= 1;
                    match future.as_mut().poll(cx) {
                        Poll::Ready(output) => Poll::Ready(Some(output)),
                        Poll::Pending if left == 0 => Poll::Ready(None),
                        Poll::Pending => Poll::Pending,
                    }
                })
                .await
            }
        }
    }
}

impl RunPlan {
    pub(crate) fn draw(dice: &mut Dice, ttl: u64, is_calm: bool, is_joint: bool) -> Self {
        let longest = ttl as f64 / 1e6 * if dice.falls(0.2) { 1.2 } else { 0.25 };
        let acts = (0..dice.below(6))
            .map(|_| match dice.below(9) {
                0 | 1 => Act::Check,
                2..=4 => Act::Work(dice.ms(0.1, longest)),
                5 | 6 => Act::Undo {
                    fails: dice.falls(0.1),
                    panics: dice.falls(0.05),
                },
                7 => Act::Stall(dice.ms(0.1, longest)),
                _ => Act::Step {
                    is_refused: dice.falls(0.1),
                    is_unknown: dice.falls(0.05),
                    goes_on: dice.falls(0.3),
                },
            })
            .collect();
        let commit = match dice.below(10) {
            0..=2 => Commit::None,
            3 => Commit::NotApplied,
            4 if dice.falls(0.5) => Commit::Unknown,
            _ => Commit::Send,
        };
        let mut plan = Self {
            acts,
            commit,
            writes_cell: dice.falls(0.4) && !is_joint,
            fails: dice.falls(0.12),
            panics: dice.falls(0.04),
            is_blocking: dice.falls(0.2),
            in_turn: dice.falls(0.2),
            stalls: [0.1, 0.1].map(|often| {
                let (hit, span) = (dice.falls(often), dice.ms(0.1, 1.5 * ttl as f64 / 1e6));
                if hit { span } else { 0 }
            }),
            cut: Cut::draw(dice, 0.08, longest),
        };
        // A blocking run in turn waits on its thread, which is the only one of the world.
        plan.in_turn &= !plan.is_blocking;
        if is_calm {
            plan.acts.truncate(2);
            plan.acts
                .retain(|act| !matches!(act, Act::Work(_) | Act::Stall(_)));
            plan.panics = false;
            // A doubt keeps its lock until the TTL is over, which no other caller can help.
            if plan.commit == Commit::Unknown {
                plan.commit = Commit::Send;
            }
            for act in &mut plan.acts {
                if let Act::Step { is_unknown, .. } = act {
                    *is_unknown = false;
                }
            }
            plan.cut = Cut::No;
        }
        plan
    }
}

/// One run: who does it, under what.
#[derive(Clone)]
struct Doer {
    ctx: Ctx,
    leases: Arc<[usize]>,
    run: usize,
}

/// A run that is dropped with its caller ends there.
struct Begun<'a> {
    ctx: &'a Ctx,
    run: usize,
    has_ended: bool,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if !self.has_ended && self.ctx.is_alive() {
            self.ctx.shared.lock().run_ended(self.run, End::Dropped);
        }
    }
}

/// Does one run. False if the hold is over.
pub(crate) async fn run(
    ctx: &Ctx,
    executor: &Executor,
    leases: &Arc<[usize]>,
    plan: RunPlan,
) -> bool {
    let run = ctx.shared.lock().new_run(ctx.node, ctx.life, leases);
    let mut begun = Begun {
        ctx,
        run,
        has_ended: false,
    };
    let doer = Doer {
        ctx: ctx.clone(),
        leases: Arc::clone(leases),
        run,
    };
    // It takes a part of the lease, which others wait for in the calm.
    if run.is_multiple_of(6) && !ctx.shared.lock().is_calm {
        doer.reads(executor.lease()).await;
    }
    let turned = plan.in_turn.then(|| executor.in_turn());
    let executor = turned.as_ref().unwrap_or(executor);
    ctx.doing(Doing::Running);
    let plan = Arc::new(plan);
    let done = if plan.is_blocking {
        let blocking = || executor.guarded(|tx| doer.blocking(tx, &plan));
        Some(std::panic::catch_unwind(AssertUnwindSafe(blocking)))
    } else {
        let work = AssertUnwindSafe(doer.awaited(executor, &plan)).catch_unwind();
        let clock = Clock::from(ctx.clock.clone());
        if plan.in_turn {
            let work = Watched::new(&ctx.shared, run, work);
            plan.cut.limit(&clock, work).await
        } else {
            plan.cut.limit(&clock, work).await
        }
    };
    begun.has_ended = true;
    ctx.doing(Doing::Holding);
    let mut state = ctx.shared.lock();
    match done {
        None => state.run_ended(run, End::Dropped),
        Some(Err(_)) => state.run_ended(run, End::Panicked),
        Some(Ok(Ok(done))) => state.run_ended(run, End::Committed(done.proof)),
        Some(Ok(Err(error))) => {
            state.run_failed(run, &error);
            drop(state);
            if let Some(doubt) = error.doubt().filter(|_| ctx.is_fenced) {
                resolve(ctx, &doubt);
            }
            return !matches!(error, RunError::NotStarted { .. });
        }
    }
    true
}

/// Asks the resource twice what became of a commit, whose request may still be under way. Nobody
/// waits for the answers: the resource judges them.
fn resolve(ctx: &Ctx, doubt: &Doubt) {
    for _ in 0..2 {
        let doubt = doubt.clone();
        let asked = (ctx.net).send(To::Resource, Op::Resolve, move |state| {
            state.resolve(&doubt)
        });
        drop(asked);
    }
}

impl Doer {
    async fn awaited(
        &self,
        executor: &Executor,
        plan: &Arc<RunPlan>,
    ) -> Result<Committed<()>, RunError<()>> {
        let (doer, plan) = (self.clone(), Arc::clone(plan));
        executor
            .guarded_async(async move |tx| doer.work(tx, &plan).await)
            .await
    }

    fn begins(&self) {
        let mut state = self.ctx.shared.lock();
        state.runs.all[self.run].entered = true;
        state.run_begins(&self.leases);
    }

    async fn work(&self, tx: &AsyncTx, plan: &RunPlan) -> Result<(), Abort> {
        self.begins();
        self.asks_for_its_own(tx);
        let _turn = plan.in_turn.then(|| {
            self.ctx.shared.lock().turn_begins(self.run);
            InTurn::begins(&self.ctx.shared, &self.leases)
        });
        let clock = Clock::from(self.ctx.clock.clone());
        for &act in &plan.acts {
            match act {
                Act::Work(span) => {
                    let span = self.ctx.shortened(span);
                    clock.sleep(Duration::from_nanos(span)).await;
                }
                Act::Stall(span) => self.ctx.stall(span),
                Act::Check => self.checked(tx.check())?,
                Act::Undo { fails, panics } => tx.undo(self.hook(fails, panics)),
                Act::Step {
                    is_refused,
                    is_unknown,
                    goes_on,
                } => {
                    let done = self.step(tx, is_refused, is_unknown).await;
                    match done {
                        Err(error) if !goes_on => return Err(error.into()),
                        _ => {}
                    }
                }
            }
        }
        if plan.writes_cell {
            tx.write(&self.cell(tx.key(), plan)).number += 1;
            self.wrote(tx.key());
        }
        assert!(!plan.panics, "the work panics, as planned");
        if plan.fails {
            return Err("the work fails, as planned".into());
        }
        if plan.commit != Commit::None {
            let (doer, commit, stalls) = (self.clone(), plan.commit, plan.stalls);
            let watched = self.clone();
            tx.commit_with(move |permit| {
                watched.watch(
                    true,
                    async move { doer.commit(permit, commit, stalls).await },
                )
            });
        }
        Ok(())
    }

    /// O13: what is read under a lease is served only while the lease is live. The reader may sleep
    /// or stop in the middle.
    async fn reads(&self, lease: &Lease) {
        let span = lease.remaining() * (self.run / 6 % 4) as u32 / 2;
        let read = lease.read(async || {
            if self.run.is_multiple_of(12) {
                self.ctx.stall(span.as_nanos() as u64);
            } else {
                Clock::from(self.ctx.clock.clone()).sleep(span).await;
            }
        });
        let is_served = read.await.is_ok();
        let mut state = self.ctx.shared.lock();
        if is_served {
            state.records_act("check", &self.leases);
        }
        if !is_served {
            state.coverage.sometimes("a read was not served");
            return;
        }
        if let Some(over) = self
            .leases
            .iter()
            .find(|&&number| !state.is_believed(number))
        {
            let what = format!("a value that was read under lease {over} is served after it");
            state.fail("O13 reads", || what);
        }
    }

    /// O11: a run that asks for its own lock is told so at once, unless a handler takes its time:
    /// it would wait for itself.
    fn asks_for_its_own(&self, tx: &AsyncTx) {
        let has_handlers = self.ctx.shared.lock().setup.handlers;
        if has_handlers || !self.run.is_multiple_of(4) {
            return;
        }
        for held in tx.locks() {
            let lock = self.ctx.locks.lock(held.key.as_str());
            let asked = lock.acquire_within(Duration::from_secs(1)).now_or_never();
            let is_refused =
                matches!(&asked, Some(Err(error)) if error.kind() == ErrorKind::Invalid);
            if !is_refused {
                let mut state = self.ctx.shared.lock();
                state.fail("O11 liveness", || {
                    format!(
                        "a run under {} asked for it again, and got {asked:?}",
                        held.key
                    )
                });
            }
        }
    }

    fn checked(&self, checked: Result<(), LeaseError>) -> Result<(), LeaseError> {
        let mut state = self.ctx.shared.lock();
        match checked {
            Ok(()) => state.records_act("check", &self.leases),
            Err(LeaseError::Lost(_)) => state.coverage.sometimes("a check found the lease lost"),
            Err(_) => {}
        }
        drop(state);
        checked
    }

    /// The cell to write. Where no call commits, the stall that is planned before the call's
    /// message comes after the cell's change.
    fn cell(&self, key: &leasehold::Key, plan: &RunPlan) -> GuardedCell<Value> {
        let cell = self.ctx.cell(key);
        let span = match plan.commit {
            Commit::None => plan.stalls[0],
            _ => 0,
        };
        takes_long_to_replace(&cell, self.ctx.thread(), span);
        cell
    }

    fn wrote(&self, key: &leasehold::Key) {
        let mut state = self.ctx.shared.lock();
        state.runs.all[self.run].wrote_cell = Some(key.clone());
    }

    fn hook(
        &self,
        fails: bool,
        panics: bool,
    ) -> impl FnOnce() -> Result<(), String> + Send + 'static {
        let hook = {
            let hooks = &mut self.ctx.shared.lock().runs.all[self.run].hooks;
            hooks.push(Hook::Local);
            hooks.len() - 1
        };
        let doer = self.clone();
        move || {
            if doer.ctx.is_alive() {
                let mut state = doer.ctx.shared.lock();
                state.runs.all[doer.run].called.push(hook);
                state.undone_locally(&doer.leases);
            }
            assert!(!panics, "the hook panics, as planned");
            if fails {
                Err("the hook fails, as planned".to_owned())
            } else {
                Ok(())
            }
        }
    }

    async fn step(
        &self,
        tx: &AsyncTx,
        is_refused: bool,
        is_unknown: bool,
    ) -> Result<(), StepError> {
        let is_fenced = self.ctx.is_fenced;
        let (step, hook) = self.new_step();
        let effect = Effect::new(step_name(step));
        let effect = if is_fenced { effect.fenced() } else { effect };
        let locks = tx.locks().to_vec();
        let sent = {
            let (doer, locks) = (self.clone(), locks.clone());
            let sent = async move { doer.send_step(step, locks, is_refused, is_unknown).await };
            self.clone().watch(false, sent)
        };
        let doer = self.clone();
        let undo = move |_: Compensation| async move { doer.undo_step(step, hook, locks).await };
        let done = tx.step(effect, sent, undo).await;
        let mut state = self.ctx.shared.lock();
        state.runs.all[self.run].is_open = false;
        match &done {
            Err(StepError::InDoubt(_)) => {
                state.coverage.sometimes("step in doubt");
                state.are_in_doubt(&self.leases);
            }
            Err(StepError::Fenced { .. }) => state.coverage.sometimes("step fenced"),
            Ok(()) => state.coverage.sometimes("step done"),
            Err(_) => {}
        }
        done
    }

    /// O5: neither a step nor a commit is polled again after its lease, since it could send. A
    /// commit that stopped the process within its first poll may be, since it has sent already.
    async fn watch<F: Future>(self, may_stop: bool, call: F) -> F::Output {
        let mut call = std::pin::pin!(call);
        let (mut is_first, mut is_stopped) = (true, false);
        std::future::poll_fn(move |cx| {
            if !is_first && !is_stopped && self.ctx.is_alive() {
                let mut state = self.ctx.shared.lock();
                if let Some(&over) = self
                    .leases
                    .iter()
                    .find(|&&number| !state.is_believed(number))
                {
                    state.fail("O5 polls", || {
                        format!("an effect was polled after its lease {over}")
                    });
                }
            }
            let begun = crate::truth::boot(&self.ctx.clock);
            let answer = call.as_mut().poll(cx);
            if is_first {
                is_first = false;
                is_stopped = may_stop && crate::truth::boot(&self.ctx.clock) > begun;
            }
            answer
        })
        .await
    }

    async fn send_step(
        &self,
        step: u64,
        locks: Vec<leasehold::run::HeldKey>,
        is_refused: bool,
        is_unknown: bool,
    ) -> Result<(), EffectError> {
        if is_refused {
            return Err(EffectError::not_applied("refused, as planned"));
        }
        {
            let record = &mut self.ctx.shared.lock().runs.all[self.run];
            record.steps.push(step);
            record.is_open = true;
        }
        let is_fenced = self.ctx.is_fenced;
        let asked = self.ctx.net.send(To::Resource, Op::Step, move |state| {
            state.at_resource(&locks, Deed::Stepped(step), is_fenced)
        });
        if is_unknown {
            return Err(EffectError::unknown(
                "nobody waits for the answer, as planned",
            ));
        }
        // A step has no time limit of its own while its lease is renewed.
        let clock = Clock::from(self.ctx.clock.clone());
        let answer = async { answered(asked.await).await };
        let answer = clock.timeout(Duration::from_secs(2), answer).await;
        answer.unwrap_or_else(|| Err(EffectError::unknown("no answer within two seconds")))
    }

    async fn undo_step(
        &self,
        step: u64,
        hook: usize,
        locks: Vec<leasehold::run::HeldKey>,
    ) -> Result<(), String> {
        let is_fenced = self.ctx.is_fenced;
        self.compensates(hook);
        let asked = self.ctx.net.send(To::Resource, Op::Undo, move |state| {
            state.at_resource(&locks, Deed::Undone(step), is_fenced)
        });
        let clock = Clock::from(self.ctx.clock.clone());
        let answer = async { answered(asked.await).await };
        match clock.timeout(Duration::from_secs(1), answer).await {
            Some(answer) => answer.map_err(|error| format!("{error:?}")),
            None => Err("no answer within a second".to_owned()),
        }
    }

    async fn commit(
        &self,
        permit: leasehold::run::CommitPermit,
        commit: Commit,
        stalls: [u64; 2],
    ) -> Result<Applied, EffectError> {
        let (locks, txn) = (permit.locks().to_vec(), permit.txn_id);
        let is_fenced = self.ctx.is_fenced;
        self.ctx.doing(Doing::Committing);
        if commit == Commit::NotApplied {
            self.ctx.shared.lock().commit_begins(&self.leases);
            return Err(EffectError::not_applied("refused, as planned"));
        }
        {
            let mut state = self.ctx.shared.lock();
            state.commit_begins(&self.leases);
            state.records_commit(self.run, txn, &locks, is_fenced);
            let record = &mut state.runs.all[self.run];
            record.txn = Some(txn);
            record.is_open = true;
        }
        self.ctx.stall(stalls[0]);
        let asked = self.ctx.net.send(To::Resource, Op::Commit, move |state| {
            state.at_resource(&locks, Deed::Committed(txn), is_fenced)
        });
        self.ctx.stall(stalls[1]);
        if commit == Commit::Unknown {
            return Err(EffectError::unknown(
                "nobody waits for the answer, as planned",
            ));
        }
        let answer = answered(asked.await).await;
        self.ctx.shared.lock().runs.all[self.run].is_open = false;
        answer.map(|()| {
            if is_fenced {
                Applied::fenced()
            } else {
                Applied::plain()
            }
        })
    }

    /// The same on the caller's thread, at one instant: it sends nothing that could be answered
    /// later.
    fn blocking(&self, tx: &Tx<'_>, plan: &RunPlan) -> Result<(), Abort> {
        self.begins();
        for &act in &plan.acts {
            match act {
                Act::Check => self.checked(tx.check())?,
                Act::Undo { fails, panics } => tx.undo(self.hook(fails, panics)),
                Act::Work(span) | Act::Stall(span) => self.ctx.stall(span),
                Act::Step {
                    is_refused,
                    goes_on,
                    ..
                } => {
                    let done = self.step_now(tx, is_refused);
                    if !goes_on {
                        done?;
                    }
                }
            }
        }
        if plan.writes_cell {
            tx.write(&self.cell(tx.key(), plan)).number += 1;
            self.wrote(tx.key());
        }
        assert!(!plan.panics, "the work panics, as planned");
        if plan.fails {
            return Err("the work fails, as planned".into());
        }
        if plan.commit != Commit::None {
            let (doer, commit, stalls) = (self.clone(), plan.commit, plan.stalls);
            tx.commit_with(move |permit| {
                let done = doer.commit_now(&permit, commit);
                doer.ctx.stall(stalls[1]);
                done
            });
        }
        Ok(())
    }

    /// A step at one instant, and its compensation.
    fn step_now(&self, tx: &Tx<'_>, is_refused: bool) -> Result<(), StepError> {
        let is_fenced = self.ctx.is_fenced;
        let (step, hook) = self.new_step();
        let effect = Effect::new(step_name(step));
        let effect = if is_fenced { effect.fenced() } else { effect };
        let locks = tx.locks().to_vec();
        let call = || {
            if is_refused {
                return Err(EffectError::not_applied("refused, as planned"));
            }
            let mut state = self.ctx.shared.lock();
            state.runs.all[self.run].steps.push(step);
            let done = state.at_resource(&locks, Deed::Stepped(step), is_fenced);
            done.map_err(refused)
        };
        let (doer, locks) = (self.clone(), tx.locks().to_vec());
        let undo = move |_: Compensation| {
            doer.compensates(hook);
            let mut state = doer.ctx.shared.lock();
            let done = state.at_resource(&locks, Deed::Undone(step), is_fenced);
            done.map_err(|refusal| format!("{refusal:?}"))
        };
        tx.step(effect, call, undo)
    }

    fn new_step(&self) -> (u64, usize) {
        let record = &mut self.ctx.shared.lock().runs.all[self.run];
        let step = (self.run * 100 + record.hooks.len()) as u64;
        record.hooks.push(Hook::Step(step));
        (step, record.hooks.len() - 1)
    }

    fn compensates(&self, hook: usize) {
        if !self.ctx.is_alive() {
            return;
        }
        let mut state = self.ctx.shared.lock();
        state.runs.all[self.run].called.push(hook);
        state.coverage.sometimes("step compensated");
        if !self.ctx.is_fenced {
            state.compensation_begins(&self.leases);
        }
    }

    fn commit_now(
        &self,
        permit: &leasehold::run::CommitPermit,
        commit: Commit,
    ) -> Result<Applied, EffectError> {
        let is_fenced = self.ctx.is_fenced;
        let mut state = self.ctx.shared.lock();
        state.commit_begins(&self.leases);
        if commit == Commit::NotApplied {
            return Err(EffectError::not_applied("refused, as planned"));
        }
        state.runs.all[self.run].txn = Some(permit.txn_id);
        state.records_commit(self.run, permit.txn_id, permit.locks(), is_fenced);
        let done = state.at_resource(permit.locks(), Deed::Committed(permit.txn_id), is_fenced);
        if commit == Commit::Unknown {
            return Err(EffectError::unknown("the answer is ignored, as planned"));
        }
        match done {
            Ok(()) if is_fenced => Ok(Applied::fenced()),
            Ok(()) => Ok(Applied::plain()),
            Err(refusal) => Err(refused(refusal)),
        }
    }
}

/// An answer of the resource; one that was lost never comes.
async fn answered(
    answer: Result<Result<(), Refusal>, tokio::sync::oneshot::error::RecvError>,
) -> Result<(), EffectError> {
    match answer {
        Ok(Ok(())) => Ok(()),
        Ok(Err(refusal)) => Err(refused(refusal)),
        Err(_) => std::future::pending().await,
    }
}

fn refused(refusal: Refusal) -> EffectError {
    match refusal {
        Refusal::Fenced { seen } => EffectError::Fenced { seen: Some(seen) },
        refusal => EffectError::not_applied(refusal),
    }
}
