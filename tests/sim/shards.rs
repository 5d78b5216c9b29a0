//! Members that share the work of one name: they join, leave in order, are dropped, and die; and
//! the judge of who owns what.
//!
//! That nobody believes in a shard beside its owner, and that nothing of a former owner lands
//! behind a fence, is what the judges of all leases and of the resource look for.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold::ErrorKind;
use leasehold::clock::Clock;
use leasehold::shards::{Shard, Shards};
use leasehold::store::{Revoke, Revoked, Store};
use tokio_util::sync::CancellationToken;

use crate::coverage::Doing;
use crate::dice::Dice;
use crate::leases::{Born, Mode};
use crate::node::Ctx;
use crate::resource::SimFence;
use crate::setup::{Fault, SECOND, STORM};
use crate::state::State;
use crate::work::{RunPlan, run};

const NAME: &str = "s";
/// Messages of the storm arrive until then.
const QUIET: u64 = STORM + 5 * SECOND;
/// What requests and the last runs of an owner take.
const SLACK: u64 = 2 * SECOND;
/// How long its work may go on after a lease, while the process runs.
const NOTICED: u64 = SECOND;

/// Who serves, and who works on which shard.
#[derive(Default)]
pub(crate) struct Served {
    /// The weight of each member, by node and worker.
    members: BTreeMap<(usize, usize), u32>,
    /// By lease.
    works: BTreeMap<usize, Work>,
    /// When a member came or went last.
    changed_at: u64,
    /// Something has changed since the shards were judged last.
    is_new: bool,
    judged_at: u64,
}

struct Work {
    shard: u32,
    member: (usize, usize),
    /// How long its process had run when its lease was seen to be over.
    over_since: Option<u64>,
}

/// How a member ends its part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Leave,
    LeaveCut,
    Drop,
}

/// Serves, ends its part, and comes back, until the world is over.
pub(crate) async fn member(ctx: Ctx, mut dice: Dice) {
    while serves(&ctx, &mut dice).await {}
    ctx.doing(Doing::Idle);
    ctx.left.fetch_sub(1, Ordering::SeqCst);
}

/// Takes part once. False if the world is over.
async fn serves(ctx: &Ctx, dice: &mut Dice) -> bool {
    let clock = Clock::from(ctx.clock.clone());
    let (is_soon, is_short) = (dice.falls(0.7), dice.falls(0.3));
    let pause = dice.ms(0.0, if is_soon { 300.0 } else { 4_000.0 });
    let stay = dice.ms(0.0, if is_short { 2_000.0 } else { 20_000.0 });
    let ending = dice.pick(&[Ending::Leave, Ending::Leave, Ending::LeaveCut, Ending::Drop]);
    let (cut, weight) = (dice.ms(0.0, 1_500.0), dice.pick(&[1, 1, 2, 3]));
    let drain_limit = Duration::from_nanos(dice.ms(0.0, 1_500.0));
    let (may_revoke, work_dice) = (dice.falls(0.2), dice.next());
    ctx.doing(Doing::Idle);
    stays(ctx, pause, false).await;
    if ctx.shared.lock().is_over {
        return false;
    }
    let shards = {
        let count = ctx.shared.lock().setup.shards;
        let shards = ctx.locks.shards(NAME, count);
        let shards = shards.weight(weight).drain_limit(drain_limit);
        match ctx.is_fenced {
            true => shards.fence(SimFence(ctx.net.clone())),
            false => shards,
        }
    };
    if may_revoke {
        revokes(ctx, dice).await;
    }
    ctx.doing(Doing::Asking);
    ctx.shared.lock().member_joins(ctx, weight);
    let stop = CancellationToken::new();
    let ended = {
        let mut serving = pin!(serve(ctx, &shards, work_dice).until(stop.clone()));
        let until_end = async {
            stays(ctx, stay, true).await;
            let is_over = ctx.shared.lock().is_over;
            let ending = if is_over { Ending::Leave } else { ending };
            ctx.doing(Doing::Releasing);
            if ending != Ending::Drop {
                ctx.shared
                    .lock()
                    .coverage
                    .sometimes("a member left in order");
                stop.cancel();
            }
            match ending {
                Ending::Leave => std::future::pending().await,
                Ending::LeaveCut => clock.sleep(Duration::from_nanos(cut)).await,
                Ending::Drop => {}
            }
        };
        tokio::select! {
            biased;
            ended = &mut serving => Some(ended),
            () = until_end => None,
        }
    };
    let mut state = ctx.shared.lock();
    state.member_goes((ctx.node, ctx.worker));
    match ended {
        None => state.coverage.sometimes("a member was dropped"),
        Some(Ok(())) => {}
        Some(Err(error)) if error.kind() == ErrorKind::Closed => return false,
        Some(Err(error)) => {
            state.fail("O4 outcomes", || format!("a member ended with {error:?}"));
        }
    }
    true
}

/// Waits for so long, or until the calm; and then until the end, if it is to stay there.
async fn stays(ctx: &Ctx, span: u64, stays_in_calm: bool) {
    let clock = Clock::from(ctx.clock.clone());
    let mut left = span;
    loop {
        let (is_calm, is_over) = {
            let state = ctx.shared.lock();
            (state.is_calm, state.is_over)
        };
        let goes_on = match is_calm {
            true => stays_in_calm,
            false => left > 0,
        };
        if is_over || !goes_on {
            return;
        }
        let piece = if is_calm { SECOND } else { left.min(SECOND) };
        clock.sleep(Duration::from_nanos(piece)).await;
        left = left.saturating_sub(piece);
    }
}

fn serve(
    ctx: &Ctx,
    shards: &Shards,
    dice: u64,
) -> leasehold::shards::Serving<impl Future<Output = Result<(), leasehold::Error>> + use<>> {
    let ctx = ctx.clone();
    let begun = std::sync::atomic::AtomicU64::new(0);
    shards.serve(move |shard| {
        let stream = begun.fetch_add(1, Ordering::Relaxed);
        work(ctx.clone(), Dice::new(dice, stream), shard)
    })
}

/// Takes a shard from its owner, or from all members their membership.
async fn revokes(ctx: &Ctx, dice: &mut Dice) {
    let (of_member, count) = (dice.falls(0.3), {
        let state = ctx.shared.lock();
        if state.is_calm || !state.setup.has(Fault::Revoke) {
            return;
        }
        state.setup.shards as usize
    });
    let (key, what) = match of_member {
        true => (format!("{NAME}/shard-members"), "a membership was revoked"),
        false => (key(dice.below(count) as u32), "a shard was revoked"),
    };
    let revoked = ctx.locks.revoke(key, Revoke::AfterTtl).await;
    if let Ok(Revoked::Revoked { .. }) = revoked {
        ctx.shared.lock().coverage.sometimes(what);
    }
}

fn key(shard: u32) -> String {
    format!("{NAME}/shard/{shard:05}")
}

/// Work on a shard, from its begin to its end.
struct Entry {
    ctx: Ctx,
    lease: usize,
    /// It was not dropped.
    has_returned: bool,
}

impl Entry {
    fn begin(ctx: &Ctx, shard: &Shard) -> Self {
        let mut state = ctx.shared.lock();
        let asked_at = state.now;
        let lease = state.lease_born(&Born {
            lease: shard.lease(),
            node: ctx.node,
            life: ctx.life,
            mode: Mode::Alone,
            clock: &ctx.clock,
            refuses_handoffs: true,
            asked_at,
        });
        if ctx.is_fenced {
            state.begins_behind_fence(shard.key(), shard.token());
        }
        let work = Work {
            shard: shard.index(),
            member: (ctx.node, ctx.worker),
            over_since: None,
        };
        state.served.works.insert(lease, work);
        state.served.is_new = true;
        Self {
            ctx: ctx.clone(),
            lease,
            has_returned: false,
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if !self.ctx.is_alive() {
            return;
        }
        self.ctx.doing(Doing::Idle);
        let mut state = self.ctx.shared.lock();
        state.served.works.remove(&self.lease);
        state.served.is_new = true;
        if !self.has_returned {
            state.coverage.sometimes("work of a shard was dropped");
        }
    }
}

async fn work(ctx: Ctx, mut dice: Dice, shard: Shard) -> Result<(), String> {
    let mut entry = Entry::begin(&ctx, &shard);
    // Beside that of its member.
    let ctx = Ctx {
        worker: ctx.worker + 10 * (1 + shard.index() as usize),
        ..ctx
    };
    ctx.doing(Doing::Holding);
    let done = works(&ctx, &mut dice, &shard, entry.lease).await;
    ctx.doing(Doing::Idle);
    entry.has_returned = true;
    done
}

async fn works(ctx: &Ctx, dice: &mut Dice, shard: &Shard, lease: usize) -> Result<(), String> {
    let clock = Clock::from(ctx.clock.clone());
    let leases: Arc<[usize]> = Arc::new([lease]);
    let executor = shard.executor();
    let plan = |dice: &mut Dice| {
        let state = ctx.shared.lock();
        let ttl = state.setup.settings.ttl.as_nanos() as u64;
        RunPlan::draw(dice, ttl, state.is_calm, false)
    };
    loop {
        let is_calm = ctx.shared.lock().is_calm;
        let pause = dice.ms(1.0, if is_calm { 6_000.0 } else { 800.0 });
        let (fails, how) = (dice.falls(0.04), dice.below(3));
        let (is_deaf, deaf_for) = (dice.falls(0.1), dice.ms(0.0, 8_000.0));
        if is_deaf && !is_calm {
            // It neither sees that its lease is over nor that it is to leave.
            clock.sleep(Duration::from_nanos(deaf_for)).await;
        }
        let next = clock.sleep(Duration::from_nanos(pause));
        if shard.until_leaving(next).await.is_none() {
            break;
        }
        if fails && !is_calm {
            ctx.shared.lock().coverage.sometimes("work failed");
            match how {
                0 => return Ok(()),
                1 => return Err("it fails, as planned".to_owned()),
                _ => panic!("the work of a shard panics, as planned"),
            }
        }
        let (plan, is_cut) = (plan(dice), dice.falls(0.3));
        let run = run(ctx, &executor, &leases, plan);
        let goes_on = match is_cut {
            true => shard.until_leaving(run).await,
            false => Some(run.await),
        };
        if goes_on != Some(true) {
            break;
        }
    }
    if !shard.lease().is_live() {
        ctx.shared
            .lock()
            .coverage
            .sometimes("a lease of a shard was lost");
        return Ok(());
    }
    ctx.shared
        .lock()
        .coverage
        .sometimes("work was asked to leave");
    let last = ctx.shortened(dice.ms(0.0, 600.0));
    clock.sleep(Duration::from_nanos(last)).await;
    let plan = plan(dice);
    if run(ctx, &executor, &leases, plan).await && ctx.is_fenced {
        let what = "work wrote behind a fence as it left";
        ctx.shared.lock().coverage.sometimes(what);
    }
    Ok(())
}

impl State {
    fn member_joins(&mut self, ctx: &Ctx, weight: u32) {
        let served = &mut self.served;
        served.members.insert((ctx.node, ctx.worker), weight);
        (served.changed_at, served.is_new) = (self.now, true);
        let others = served.members.keys().filter(|(node, _)| *node == ctx.node);
        if others.count() > 1 {
            self.coverage.sometimes("two members of one process");
        }
        if self.is_calm {
            self.coverage.sometimes("a member came back in the calm");
        }
    }

    fn member_goes(&mut self, member: (usize, usize)) {
        self.served.members.remove(&member);
        (self.served.changed_at, self.served.is_new) = (self.now, true);
    }

    pub(crate) fn members_died(&mut self, node: usize) {
        let served = &mut self.served;
        served.members.retain(|(known, _), _| *known != node);
        served.works.retain(|_, work| work.member.0 != node);
        (served.changed_at, served.is_new) = (self.now, true);
    }

    /// O14: work ends soon after its lease; and two TTLs after the last change, once nothing fails
    /// any more, every shard is with the owner that all members agree on, and stays there.
    pub(crate) fn judge_shards(&mut self) {
        if self.setup.shards == 0 {
            return;
        }
        self.judge_works();
        let settings = &self.setup.settings;
        let two = 2 * (settings.ttl + settings.lock_delay).as_nanos() as u64;
        let stalled = self.stalled.iter().max().copied().unwrap_or(0);
        let since = QUIET.max(stalled).max(self.served.changed_at);
        let is_due = self.served.is_new || self.now >= self.served.judged_at + SECOND;
        if self.is_over || !is_due || self.now < since + two + SLACK {
            return;
        }
        (self.served.is_new, self.served.judged_at) = (false, self.now);
        match self.unsettled() {
            Some(what) => self.fail("O14 shards", || what),
            None => self.coverage.sometimes("all shards are with their owners"),
        }
    }

    fn judge_works(&mut self) {
        let mut late = None;
        for (&lease, work) in &mut self.served.works {
            if self.leases.all[lease].left().is_some() {
                continue;
            }
            let ran = self.now - self.paused_for[work.member.0];
            if ran - *work.over_since.get_or_insert(ran) > NOTICED {
                late = Some((lease, work.shard));
            }
        }
        if let Some((lease, shard)) = late {
            self.fail("O14 shards", || {
                format!("the work of shard {shard} goes on after its lease {lease}")
            });
        }
    }

    /// Why the shards are not divided as they have to be.
    fn unsettled(&self) -> Option<String> {
        let (count, served) = (self.setup.shards, &self.served);
        let live = served
            .works
            .iter()
            .filter(|(lease, _)| self.is_believed(**lease));
        let owners: BTreeMap<u32, _> = live.map(|(_, work)| (work.shard, work.member)).collect();
        if served.members.is_empty() {
            return None;
        }
        if let Some(free) = (0..count).find(|shard| !owners.contains_key(shard)) {
            return Some(format!("shard {free} has no owner: {owners:?}"));
        }
        // Whoever is to own a shard waits for it until it does.
        let server = &self.truth.servers[0].store;
        let is_waited_for = |shard: &u32| {
            let key = key(*shard).parse().expect("a short key");
            let info = server.inspect(&key).now_or_never();
            let info = info.and_then(Result::ok).flatten();
            info.is_some_and(|info| info.queue > Some(0))
        };
        if let Some(shard) = (0..count).find(is_waited_for) {
            return Some(format!("somebody waits for shard {shard}: {owners:?}"));
        }
        let weights: u32 = served.members.values().sum();
        let is_uneven = |(member, weight): &(&(usize, usize), &u32)| {
            let load = owners.values().filter(|owner| owner == member).count() as u32;
            let share = count * **weight;
            load * weights >= share + weights || (load + 1) * weights <= share
        };
        let uneven = served.members.iter().find(is_uneven);
        uneven.map(|(member, weight)| {
            format!("{member:?} of weight {weight} in {weights} has not its share: {owners:?}")
        })
    }
}
