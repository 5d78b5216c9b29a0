//! One worker of a process: it asks for locks of every kind, works under them, and gives them back
//! in every way.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::election::Leadership;
use leasehold::multi::MultiGuard;
use leasehold::permits::PermitsGuard;
use leasehold::read_write::{ReadGuard, WriteGuard};
use leasehold::reentrant::{ReentrantGuard, ReentrantLock, Scope};
use leasehold::semaphore::SemaphorePermit;
use leasehold::store::{Released, Revoke};
use leasehold::{Error, Executor, Lease, LockGuard};

use crate::coverage::Doing;
use crate::dice::Dice;
use crate::leases::{Born, Given, Mode};
use crate::node::Ctx;
use crate::resource::SimFence;
use crate::setup::{Fault, SECOND, STORM};
use crate::work::{Cut, RunPlan, run};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Plain,
    Fair,
    Read,
    Write,
    Downgraded,
    Reentrant,
    Multi,
    Semaphore,
    /// So many of all permits.
    Permits(u32),
    Election,
}

/// All permits.
const PERMITS: u32 = 3;

/// How a hold ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    Release,
    ReleaseWithin,
    ReleaseCut,
    Drop,
    KeepUntilLost,
}

enum Guard {
    Lock(LockGuard),
    Read(ReadGuard),
    Write(WriteGuard),
    Multi(MultiGuard),
    Reentrant(Entered),
    Permit(SemaphorePermit),
    Permits(PermitsGuard),
    Leader(Leadership),
}

/// A hold that was entered, once or twice, and may be entered again.
struct Entered {
    lock: ReentrantLock,
    scope: Scope,
    outer: ReentrantGuard,
    inner: Option<ReentrantGuard>,
}

struct Plan {
    kind: Kind,
    key: usize,
    pause: u64,
    cut: Cut,
    runs: Vec<RunPlan>,
    beside: Vec<RunPlan>,
    late: Option<RunPlan>,
    hold: u64,
    ending: Ending,
    patience: u64,
}

pub(crate) async fn worker(ctx: Ctx, mut dice: Dice) {
    loop {
        let (is_over, is_calm) = {
            let state = ctx.shared.lock();
            (state.is_over, state.is_calm)
        };
        if is_over || !one_hold(&ctx, &mut dice, is_calm).await {
            break;
        }
    }
    ctx.doing(Doing::Idle);
    ctx.left.fetch_sub(1, Ordering::SeqCst);
}

fn plan(ctx: &Ctx, dice: &mut Dice, is_calm: bool) -> Plan {
    let state = ctx.shared.lock();
    let ttl = state.setup.settings.ttl.as_nanos() as u64;
    let ttl_ms = ttl as f64 / 1e6;
    // Without a queue, as a register.
    let is_quorum = state.setup.members > 1 || state.setup.is_register;
    let kinds: &[Kind] = if is_quorum {
        &[
            Kind::Plain,
            Kind::Plain,
            Kind::Plain,
            Kind::Plain,
            Kind::Reentrant,
            Kind::Multi,
            Kind::Semaphore,
            Kind::Election,
        ]
    } else {
        &[
            Kind::Plain,
            Kind::Plain,
            Kind::Plain,
            Kind::Plain,
            Kind::Fair,
            Kind::Fair,
            Kind::Read,
            Kind::Write,
            Kind::Downgraded,
            Kind::Reentrant,
            Kind::Multi,
            Kind::Semaphore,
            Kind::Election,
        ]
    };
    let (mut kind, mut key) = (dice.pick(kinds), dice.below(state.setup.keys));
    if state.setup.is_joint {
        key = state.setup.keys - 1;
        if !matches!(kind, Kind::Plain | Kind::Reentrant) {
            kind = Kind::Multi;
        }
    }
    let runs = |dice: &mut Dice, most: usize| -> Vec<_> {
        (0..dice.below(most))
            .map(|_| RunPlan::draw(dice, ttl, is_calm, kind == Kind::Multi))
            .collect()
    };
    let mut plan = Plan {
        kind,
        key,
        pause: dice.ms(0.0, 150.0),
        cut: Cut::draw(dice, 0.06, 1_500.0),
        runs: runs(dice, 4),
        beside: if dice.falls(0.25) {
            runs(dice, 6)
        } else {
            Vec::new()
        },
        late: runs(dice, 2).pop(),
        hold: if dice.falls(0.15) {
            dice.ms(0.0, 3.0 * ttl_ms)
        } else {
            dice.ms(0.0, 30.0)
        },
        ending: match dice.below(20) {
            0..=10 => Ending::Release,
            11 | 12 => Ending::ReleaseWithin,
            13 => Ending::ReleaseCut,
            14..=17 => Ending::Drop,
            _ => Ending::KeepUntilLost,
        },
        patience: dice.ms(0.0, 12_000.0),
    };
    if plan.kind == Kind::Semaphore && !is_quorum && plan.hold % 2 == 1 {
        // Without a draw of its own: worlds that found something stay what they are.
        plan.kind = Kind::Permits(1 + (plan.pause % u64::from(PERMITS)) as u32);
    }
    if is_calm {
        // So few that whoever waits for long has been forgotten.
        plan.pause *= 8;
        plan.hold = plan.hold.min(30_000_000);
        if !matches!(plan.cut, Cut::Polls(_)) || plan.kind == Kind::Multi {
            plan.cut = Cut::No;
        }
        plan.patience = 12_000_000_000;
        if plan.ending == Ending::KeepUntilLost {
            plan.ending = Ending::Release;
        }
    }
    plan
}

/// One hold from the first request to its end. False if the manager is closed.
async fn one_hold(ctx: &Ctx, dice: &mut Dice, is_calm: bool) -> bool {
    let plan = plan(ctx, dice, is_calm);
    // In a world with fences a lock has none now and then.
    let ctx = &Ctx {
        is_fenced: ctx.is_fenced && dice.falls(0.9),
        ..ctx.clone()
    };
    let clock = Clock::from(ctx.clock.clone());
    ctx.doing(Doing::Idle);
    clock.sleep(Duration::from_nanos(plan.pause)).await;
    let may_revoke = dice.falls(0.03);
    if may_revoke && !is_calm && ctx.shared.lock().setup.has(Fault::Revoke) {
        revoke(ctx, plan.key).await;
    }
    ctx.doing(Doing::Asking);
    {
        let mut state = ctx.shared.lock();
        let now = state.now;
        state.log.say(now, || {
            format!(
                "asks {} {} {:?} {} {} {:?}",
                ctx.node, ctx.worker, plan.kind, plan.key, plan.patience, plan.cut
            )
        });
    }
    let patience = Duration::from_nanos(plan.patience);
    let asked_at = ctx.shared.lock().now;
    let asked = plan
        .cut
        .limit(&clock, acquire(ctx, plan.kind, plan.key, patience))
        .await;
    ctx.doing(Doing::Idle);
    let guard = match asked {
        Some(Ok(Some(guard))) => guard,
        Some(Err(error)) if error.kind() == leasehold::ErrorKind::Closed => return false,
        Some(Err(error)) => {
            ctx.shared.lock().coverage.sometimes("an acquire failed");
            return unexpected(ctx, &error);
        }
        Some(Ok(None)) => {
            ctx.shared.lock().coverage.sometimes("a wait was in vain");
            return true;
        }
        None => {
            ctx.shared
                .lock()
                .coverage
                .sometimes("an acquire was dropped");
            return true;
        }
    };
    ctx.doing(Doing::Holding);
    ctx.shared.lock().held_in_calm(ctx.node, ctx.worker);
    let leases = register(ctx, plan.kind, &guard, asked_at);
    under(ctx, &plan, &guard, &leases).await;
    if let Guard::Reentrant(entered) = &guard
        && let Ok(Some(_again)) = entered.lock.try_acquire(&entered.scope).await
    {
        ctx.shared.lock().handed_out(leases[0]);
    }
    {
        let mut state = ctx.shared.lock();
        if is_calm {
            // A clock that was put back at the end of the storm is found at the next heartbeat, in
            // the calm.
            let is_unexplained = |number: &&usize| {
                !state.is_believed(**number) && !state.is_lost_to_a_clock(**number)
            };
            let lost = leases.iter().find(is_unexplained);
            // A connection that broke in the storm is noticed, and made again, in the calm; a dead
            // holder of the storm is observed there.
            let has_connections =
                state.setup.is_zookeeper || state.setup.is_redis || state.setup.is_register;
            let is_mended = !has_connections || asked_at > STORM + 10 * SECOND;
            // Of several locks the first is held while the last is waited for.
            let held_for = Duration::from_nanos(state.now - asked_at);
            let max_hold = state.setup.settings.max_hold;
            let is_young = max_hold.is_none_or(|most| held_for < most);
            if let Some(&lost) = lost
                && !state.is_over
                && is_mended
                && is_young
            {
                let why = state.leases.all[lost].lease.lost_reason();
                state.fail("O11 liveness", || {
                    format!("a lease was lost while nothing failed: {why:?}")
                });
            }
        }
    }
    ctx.doing(Doing::Releasing);
    end(ctx, &plan, guard, &leases).await;
    true
}

fn unexpected(ctx: &Ctx, error: &Error) -> bool {
    use leasehold::ErrorKind as E;
    let is_known = matches!(
        error.kind(),
        E::Contended | E::Lost(_) | E::InDoubt | E::Unavailable | E::NotReady
    );
    if !is_known {
        let what = format!("an acquire failed with {error:?}");
        ctx.shared.lock().fail("O4 outcomes", || what);
    }
    true
}

async fn revoke(ctx: &Ctx, key: usize) {
    let revoked = ctx.locks.revoke(format!("x{key}"), Revoke::AfterTtl).await;
    if let Ok(leasehold::store::Revoked::Revoked { .. }) = revoked {
        ctx.shared
            .lock()
            .coverage
            .met(Fault::Revoke, Doing::Holding);
    }
}

async fn acquire(
    ctx: &Ctx,
    kind: Kind,
    key: usize,
    patience: Duration,
) -> Result<Option<Guard>, Error> {
    let fence = || SimFence(ctx.net.clone());
    let locks = &ctx.locks;
    let is_fenced = ctx.is_fenced;
    let shared_key = "w0";
    match kind {
        Kind::Plain | Kind::Fair => {
            let is_fair = kind == Kind::Fair;
            let lock = locks.lock(if is_fair {
                "f0".to_owned()
            } else {
                format!("x{key}")
            });
            let lock = if is_fair { lock.fair() } else { lock };
            let lock = lock.handoff(!ctx.shared.lock().refuses_handoffs(ctx.worker));
            let lock = if is_fenced { lock.fence(fence()) } else { lock };
            Ok(lock.acquire_within(patience).await?.map(Guard::Lock))
        }
        Kind::Read | Kind::Write | Kind::Downgraded => {
            let lock = locks.read_write(shared_key);
            let lock = if is_fenced { lock.fence(fence()) } else { lock };
            match kind {
                Kind::Read => Ok(lock.read_within(patience).await?.map(Guard::Read)),
                Kind::Write => Ok(lock.write_within(patience).await?.map(Guard::Write)),
                _ => match lock.write_within(patience).await? {
                    None => Ok(None),
                    Some(writer) => {
                        writes_first(ctx, &writer, patience).await;
                        Ok(Some(Guard::Read(writer.downgrade().await?)))
                    }
                },
            }
        }
        Kind::Reentrant => {
            let lock = locks.reentrant(format!("x{key}"));
            let lock = if is_fenced { lock.fence(fence()) } else { lock };
            let scope = Scope::new();
            let Some(outer) = lock.acquire_within(&scope, patience).await? else {
                return Ok(None);
            };
            let inner = lock.try_acquire(&scope).await.ok().flatten();
            Ok(Some(Guard::Reentrant(Entered {
                lock,
                scope,
                outer,
                inner,
            })))
        }
        Kind::Multi => {
            let keys = ctx.shared.lock().setup.keys;
            let lock = locks.lock_all((0..keys).map(|key| format!("x{key}")));
            let lock = if is_fenced { lock.fence(fence()) } else { lock };
            Ok(lock.acquire_within(patience).await?.map(Guard::Multi))
        }
        Kind::Semaphore => {
            let semaphore = locks.semaphore("s", 2);
            let semaphore = if is_fenced {
                semaphore.fence(fence())
            } else {
                semaphore
            };
            Ok(semaphore.acquire_within(patience).await?.map(Guard::Permit))
        }
        Kind::Permits(permits) => {
            let pool = locks.permits("p", PERMITS);
            let held = pool.acquire_many_within(permits, patience).await?;
            Ok(held.map(Guard::Permits))
        }
        Kind::Election => {
            let election = locks.election("e");
            let election = if is_fenced {
                election.fence(fence())
            } else {
                election
            };
            let name = format!("worker {}", ctx.worker);
            Ok(election
                .campaign_within(&name, patience)
                .await?
                .map(Guard::Leader))
        }
    }
}

/// Holds the lock as its writer for a while, in some worlds.
async fn writes_first(ctx: &Ctx, writer: &WriteGuard, patience: Duration) {
    let span = {
        let mut state = ctx.shared.lock();
        if !state.setup.writes_first {
            return;
        }
        let asked_at = state.now;
        state.lease_born(&Born {
            lease: writer.lease(),
            node: ctx.node,
            life: ctx.life,
            mode: Mode::Writer,
            clock: &ctx.clock,
            asked_at,
            refuses_handoffs: ctx.is_fenced,
        });
        patience.as_nanos() % state.setup.settings.ttl.as_nanos()
    };
    let clock = Clock::from(ctx.clock.clone());
    let span = Duration::from_nanos(ctx.shortened(span as u64));
    clock.sleep(span).await;
}

impl Guard {
    fn leases(&self) -> Vec<Lease> {
        match self {
            Self::Lock(guard) => vec![guard.lease().clone()],
            Self::Read(guard) => vec![guard.lease().clone()],
            Self::Write(guard) => vec![guard.lease().clone()],
            Self::Multi(guard) => guard
                .keys()
                .map(|key| guard.lease(key.as_str()).expect("its own key").clone())
                .collect(),
            Self::Reentrant(entered) => vec![entered.outer.lease().clone()],
            Self::Permit(permit) => vec![permit.lease().clone()],
            Self::Permits(permits) => vec![permits.lease().clone()],
            Self::Leader(leader) => vec![leader.lease().clone()],
        }
    }

    fn executor(&self) -> Option<Executor> {
        Some(match self {
            Self::Lock(guard) => guard.executor(),
            Self::Read(_) | Self::Permits(_) => return None,
            Self::Write(guard) => guard.executor(),
            Self::Multi(guard) => guard.executor(),
            Self::Reentrant(Entered { outer, inner, .. }) => {
                inner.as_ref().unwrap_or(outer).executor()
            }
            Self::Permit(permit) => permit.executor(),
            Self::Leader(leader) => leader.executor(),
        })
    }
}

fn register(ctx: &Ctx, kind: Kind, guard: &Guard, asked_at: u64) -> Arc<[usize]> {
    let mode = match kind {
        Kind::Read | Kind::Downgraded => Mode::Reader,
        Kind::Write => Mode::Writer,
        Kind::Permits(permits) => Mode::Share(permits, PERMITS),
        _ => Mode::Alone,
    };
    let mut state = ctx.shared.lock();
    let refuses_handoffs = ctx.is_fenced
        || kind == Kind::Fair
        || kind == Kind::Plain && state.refuses_handoffs(ctx.worker);
    let born = |lease: &Lease| {
        state.lease_born(&Born {
            lease,
            node: ctx.node,
            life: ctx.life,
            mode,
            clock: &ctx.clock,
            asked_at,
            refuses_handoffs,
        })
    };
    let leases: Arc<[usize]> = guard.leases().iter().map(born).collect();
    // A downgrade asks the store after the guard was handed out.
    if kind != Kind::Downgraded {
        leases.iter().for_each(|&number| state.handed_out(number));
    }
    leases
}

/// The time of the hold: runs one after the other, and runs beside them.
async fn under(ctx: &Ctx, plan: &Plan, guard: &Guard, leases: &Arc<[usize]>) {
    let clock = Clock::from(ctx.clock.clone());
    if let Some(executor) = guard.executor() {
        if !plan.beside.is_empty() {
            let (ctx, executor, leases) = (ctx.clone(), executor.clone(), Arc::clone(leases));
            let beside = plan.beside.clone();
            tokio::spawn(async move {
                for plan in beside {
                    if !run(&ctx, &executor, &leases, plan).await {
                        break;
                    }
                }
            });
        }
        for plan in &plan.runs {
            if !run(ctx, &executor, leases, plan.clone()).await {
                break;
            }
        }
    } else if let Guard::Read(guard) = guard {
        let _ = guard.read(|check| check.check());
    }
    clock
        .sleep(Duration::from_nanos(ctx.shortened(plan.hold)))
        .await;
    if plan.ending == Ending::KeepUntilLost {
        loop {
            let goes_on = {
                let state = ctx.shared.lock();
                !state.is_calm && leases.iter().all(|&number| state.is_believed(number))
            };
            if !goes_on {
                return;
            }
            clock.sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Whether a release says that the lock is free.
fn is_free(released: Result<Released, Error>) -> bool {
    matches!(released, Ok(Released::Released | Released::AlreadyGone))
}

fn released(ctx: &Ctx, leases: &[usize], is_free: bool) {
    if is_free {
        ctx.shared.lock().records_released(leases);
    }
}

async fn end(ctx: &Ctx, plan: &Plan, guard: Guard, leases: &Arc<[usize]>) {
    let clock = Clock::from(ctx.clock.clone());
    let given = |how: Given| ctx.shared.lock().give(leases, how);
    if plan.ending == Ending::Drop {
        // A run that is about to begin: it comes before the manager learns of the drop.
        if let (Some(late), Some(executor)) = (plan.late.clone(), guard.executor()) {
            let (ctx, leases) = (ctx.clone(), Arc::clone(leases));
            tokio::spawn(async move { run(&ctx, &executor, &leases, late).await });
        }
        drop(guard);
        return given(Given::Dropped);
    }
    let is_plain = matches!(guard, Guard::Lock(_));
    let limit = match plan.ending {
        Ending::ReleaseWithin => Duration::from_millis(200),
        _ => Duration::MAX,
    };
    let begun = {
        let mut state = ctx.shared.lock();
        state.ends(leases);
        state.awake(ctx.node)
    };
    let release = async move {
        match guard {
            Guard::Lock(guard) => is_free(guard.release_within(limit).await),
            Guard::Read(guard) => is_free(guard.release().await),
            Guard::Write(guard) => is_free(guard.release().await),
            Guard::Multi(guard) => guard
                .release()
                .await
                .is_ok_and(|all| all.into_iter().all(|(_, released)| is_free(Ok(released)))),
            Guard::Reentrant(entered) => {
                if let Some(inner) = entered.inner {
                    let _ = inner.release().await;
                }
                let released = entered.outer.release().await;
                released.is_ok_and(|last| last.is_some_and(|released| is_free(Ok(released))))
            }
            Guard::Permit(permit) => is_free(permit.release().await),
            Guard::Permits(permits) => is_free(permits.release().await),
            Guard::Leader(leader) => is_free(leader.resign().await),
        }
    };
    let mut release = Box::pin(release);
    // The first poll closes the gate.
    let first = futures_util::poll!(&mut release);
    if is_plain || first.is_ready() {
        given(Given::Released);
    }
    if let Poll::Ready(is_free) = first {
        return released(ctx, leases, is_free);
    }
    if plan.ending == Ending::ReleaseCut {
        let limit = Duration::from_millis(plan.hold / 1_000_000);
        let is_free = clock.timeout(limit, release).await;
        released(ctx, leases, is_free.unwrap_or(false));
    } else {
        let is_free = release.await;
        released(ctx, leases, is_free);
        if is_plain && limit < Duration::MAX {
            ctx.shared.lock().released_within(ctx.node, limit, begun);
        }
    }
    given(Given::Released);
}
