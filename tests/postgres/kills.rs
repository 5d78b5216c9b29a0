//! A server that is killed in every phase of a transaction, and one that a standby replaces.

use std::time::Duration;

use leasehold::RunError;
use leasehold::fence::{Fence, Resolve};
use leasehold::postgres::PgFence;
use leasehold::run::Resolution;

use crate::proxy::{Fate, Proxy, Wire};
use crate::server::{PgServer, breathe};
use crate::world::{ACCOUNTS, TAKE, hold_for, key, take_ten, token, until};

/// Long enough that a run resolves its own doubt when the server is back.
const LONG: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    BeforeBegin,
    Entered,
    Working,
    CommitOnItsWay,
    Committed,
    Answered,
}

const PHASES: [(Phase, bool); 6] = [
    (Phase::BeforeBegin, false),
    (Phase::Entered, false),
    (Phase::Working, false),
    (Phase::CommitOnItsWay, false),
    (Phase::Committed, true),
    (Phase::Answered, true),
];

/// Whether a run was applied, as itself or the resolver says.
async fn was_applied(end: Result<i64, RunError<i64>>, fence: &PgFence) -> bool {
    let doubt = match end {
        Ok(_) => return true,
        Err(RunError::RolledBack { .. }) => return false,
        Err(other) => other.doubt().unwrap_or_else(|| panic!("{other:?}")),
    };
    loop {
        match fence.resolve(&doubt).await {
            Ok(resolution) => return resolution == Resolution::Applied,
            Err(_) => breathe().await,
        }
    }
}

#[tokio::test]
async fn a_server_that_is_killed_in_any_phase_and_started_again_leaves_a_true_outcome() {
    let mut server = PgServer::start();
    let proxy = Proxy::before(server.port());
    let url = crate::server::url(proxy.port());
    let fence = PgFence::connect(&url).await.unwrap();
    fence.create_schema().await.unwrap();
    server.psql(ACCOUNTS);
    let mut expected = 100;
    for (phase, is_applied) in PHASES {
        let wire = proxy.wires().pop().unwrap();
        if phase == Phase::BeforeBegin {
            server.kill();
        }
        let (reached, reaches) = tokio::sync::oneshot::channel();
        let (go_on, may_go_on) = tokio::sync::oneshot::channel::<()>();
        let on_the_way = std::sync::Arc::clone(&wire);
        let call = fence.transaction(async move |t| {
            if phase == Phase::Entered {
                reached.send(()).unwrap();
                may_go_on.await.unwrap();
            }
            let left: i64 = t.query_one(TAKE, &[&10_i64]).await?.get(0);
            if phase == Phase::Working {
                t.execute("SELECT pg_sleep(600)", &[]).await?;
            }
            spoil(phase, &on_the_way);
            t.done(left)
        });
        let run = tokio::spawn(async move {
            let done = hold_for(1, LONG).executor().commit(call).await;
            done.map(|done| done.value)
        });
        match phase {
            Phase::BeforeBegin => {}
            Phase::Entered => reaches.await.unwrap(),
            Phase::Working => {
                let sleeps = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
                until("it sleeps", || server.psql(sleeps) == "1").await;
            }
            Phase::CommitOnItsWay => {
                until("COMMIT was sent", || wire.came() > wire.carried().0).await;
            }
            Phase::Committed => {
                let cents = "SELECT cents FROM account WHERE id = 1";
                let after = (expected - 10).to_string();
                until("it is committed", || server.psql(cents) == after).await;
            }
            Phase::Answered => until("it is answered", || run.is_finished()).await,
        }
        server.kill();
        if phase == Phase::BeforeBegin {
            // It finds no server.
            until("the run has ended", || run.is_finished()).await;
        }
        // Whoever waits for it is gone where the run never began.
        let _ = go_on.send(());
        wire.set(Fate::KIND);
        server.restart();
        let applied = was_applied(run.await.unwrap(), &fence).await;
        assert_eq!(applied, is_applied, "{phase:?}");
        expected -= if applied { 10 } else { 0 };
        let cents = server.psql("SELECT cents FROM account WHERE id = 1");
        assert_eq!(cents, expected.to_string(), "{phase:?}");
        // The next run finds no trace of it; at most a connection whose end nobody has noticed.
        let left = loop {
            match take_ten(&hold_for(1, LONG).executor(), &fence).await {
                Err(RunError::RolledBack { .. }) => breathe().await,
                end => break end.unwrap(),
            }
        };
        expected -= 10;
        assert_eq!(left, expected, "{phase:?}");
    }
}

fn spoil(phase: Phase, wire: &Wire) {
    match phase {
        Phase::CommitOnItsWay => wire.set(Fate {
            hold_up: true,
            ..Fate::KIND
        }),
        Phase::Committed => wire.set(Fate {
            swallow_down: true,
            ..Fate::KIND
        }),
        _ => {}
    }
}

/// Whichever of them is a primary; `first` is asked first.
async fn of_both(first: u16, second: u16) -> PgFence {
    let url = format!("postgres://postgres@127.0.0.1:{first},127.0.0.1:{second}/postgres");
    PgFence::connect(&url).await.unwrap()
}

/// A primary, a standby that streams from it, and a fence that knows both.
struct Pair {
    primary: PgServer,
    proxy: Proxy,
    standby: PgServer,
    fence: PgFence,
}

impl Pair {
    async fn start() -> Self {
        let primary = PgServer::start();
        let proxy = Proxy::before(primary.port());
        let direct = PgFence::connect(&primary.url()).await.unwrap();
        direct.create_schema().await.unwrap();
        primary.psql(ACCOUNTS);
        let standby = primary.standby();
        let streams = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
        until("the standby streams", || primary.psql(streams) == "1").await;
        let fence = of_both(proxy.port(), standby.port()).await;
        Self {
            primary,
            proxy,
            standby,
            fence,
        }
    }

    /// From here a commit waits for the standby.
    async fn be_synchronous(&self) {
        self.primary
            .psql("ALTER SYSTEM SET synchronous_standby_names = '*'");
        self.primary.psql("SELECT pg_reload_conf()");
        let is_synchronous = "SELECT sync_state FROM pg_stat_replication";
        until("the standby is synchronous", || {
            self.primary.psql(is_synchronous) == "sync"
        })
        .await;
    }
}

#[tokio::test]
async fn a_commit_that_is_in_flight_at_a_promotion_is_what_the_new_primary_shows() {
    for is_replicated in [true, false] {
        let mut pair = Pair::start().await;
        pair.be_synchronous().await;
        if !is_replicated {
            // The standby receives nothing more, so no commit is confirmed.
            pair.standby.psql("ALTER SYSTEM SET primary_conninfo = ''");
            pair.standby.psql("SELECT pg_reload_conf()");
            let receives = "SELECT count(*) FROM pg_stat_wal_receiver";
            until("it receives nothing", || pair.standby.psql(receives) == "0").await;
        }
        let wire = pair.proxy.wires().pop().unwrap();
        let call = pair.fence.transaction(async move |t| {
            let left: i64 = t.query_one(TAKE, &[&10_i64]).await?.get(0);
            spoil(Phase::Committed, &wire);
            t.done(left)
        });
        let run = tokio::spawn(async move {
            let done = hold_for(1, LONG).executor().commit(call).await;
            done.map(|done| done.value)
        });
        let cents = "SELECT cents FROM account WHERE id = 1";
        if is_replicated {
            let confirmed = || pair.standby.psql(cents) == "90";
            until("the standby has it", confirmed).await;
        } else {
            let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
            until("the commit waits", || pair.primary.psql(waits) != "0").await;
        }
        pair.primary.kill();
        pair.standby.promote();
        let applied = was_applied(run.await.unwrap(), &pair.fence).await;
        assert_eq!(applied, is_replicated);
        let left = if applied { "90" } else { "100" };
        assert_eq!(pair.standby.psql(cents), left);
    }
}

/// What is promised with two primaries: each refuses the former holders that it knows of. Not that
/// one knows of the other.
#[tokio::test]
async fn each_of_two_primaries_is_protected_against_its_own_transactions_only() {
    let pair = Pair::start().await;
    // The standby is asked first, and cannot raise anything.
    let backwards = of_both(pair.standby.port(), pair.proxy.port()).await;
    backwards.raise(&key("a"), token(1)).await.unwrap();
    let raised = "SELECT token FROM leasehold.fence";
    until("the standby knows", || pair.standby.psql(raised) == "1").await;
    pair.standby.promote();
    let new = PgFence::connect(&pair.standby.url()).await.unwrap();
    new.raise(&key("a"), token(2)).await.unwrap();
    let zombie = hold_for(1, LONG);
    let refused = take_ten(&zombie.executor(), &new).await.unwrap_err();
    assert!(
        matches!(refused, RunError::Fenced { seen: Some(seen), .. } if seen == token(2)),
        "{refused:?}"
    );
    let cents = "SELECT cents FROM account WHERE id = 1";
    // The old primary has not seen the newer holder.
    assert_eq!(take_ten(&zombie.executor(), &pair.fence).await.unwrap(), 90);
    assert_eq!(pair.primary.psql(cents), "90");
    assert_eq!(pair.standby.psql(cents), "100");
    pair.fence.raise(&key("a"), token(3)).await.unwrap();
    let refused = take_ten(&zombie.executor(), &pair.fence).await.unwrap_err();
    assert!(matches!(refused, RunError::Fenced { .. }), "{refused:?}");
}
