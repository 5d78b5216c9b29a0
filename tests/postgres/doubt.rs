//! Commits that are not answered, and what becomes of the doubt.

use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::fence::{Fence, Resolve};
use leasehold::postgres::PgFence;
use leasehold::run::{CommitProof, Doubt, Resolution};
use leasehold::{ErrorKind, RunError};

use crate::proxy::{Fate, Proxy, Wire};
use crate::server::PgServer;
use crate::world::{
    ACCOUNTS, Bank, TAKE, assert_not_applied, hold, hold_for, key, take_ten, token, until,
};

/// For a run that ends with its lease, and is waited for: short, and longer than a busy machine
/// stands still.
const SHORT: Duration = Duration::from_secs(6);
/// How often a scene is played when the machine stood still in it.
const SCENES: usize = 10;

/// A fence whose only connection goes through a proxy.
async fn behind(bank: &Bank) -> (PgFence, Proxy) {
    let proxy = Proxy::before(bank.server().port());
    let fence = PgFence::connect(&bank.url_at(proxy.port())).await.unwrap();
    (fence, proxy)
}

/// Takes ten, and lets `spoil` change the fate of its connection just before `COMMIT` is sent.
async fn take_and(
    fence: &PgFence,
    proxy: &Proxy,
    ttl: Duration,
    spoil: impl FnOnce(&Wire) + Send + 'static,
) -> Result<CommitProof, RunError<()>> {
    let wire = proxy.wires().pop().unwrap();
    let call = fence.transaction(async move |t| {
        t.execute(TAKE, &[&10_i64]).await?;
        spoil(&wire);
        t.done(())
    });
    let done = hold_for(1, ttl).executor().commit(call).await;
    done.map(|done| done.proof)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_is_resolved_as_committed_within_the_run() {
    let bank = Bank::open().await;
    let (fence, proxy) = behind(&bank).await;
    let done = take_and(&fence, &proxy, Duration::from_secs(20), |wire| {
        let cut_down = wire.carried().1;
        wire.set(Fate {
            cut_down,
            ..Fate::KIND
        });
    });
    assert_eq!(done.await.unwrap(), CommitProof::Fenced);
    assert_eq!(bank.cents(), 90);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_never_arrived_is_resolved_as_rolled_back_within_the_run() {
    let bank = Bank::open().await;
    let (fence, proxy) = behind(&bank).await;
    let done = take_and(&fence, &proxy, Duration::from_secs(20), |wire| {
        let cut_up = wire.carried().0;
        wire.set(Fate {
            cut_up,
            ..Fate::KIND
        });
    });
    let failed = done.await.unwrap_err();
    assert_not_applied(&failed);
    assert_eq!(bank.cents(), 100);
    assert_eq!(bank.psql("SELECT applied FROM leasehold.txn"), "f");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_held_back_is_in_doubt_until_it_is_resolved_and_refused_when_it_arrives() {
    let bank = Bank::open().await;
    let (fence, proxy) = behind(&bank).await;
    let done = take_and(&fence, &proxy, SHORT, |wire| {
        wire.set(Fate {
            hold_up: true,
            ..Fate::KIND
        });
    });
    let in_doubt = done.await.unwrap_err();
    assert!(matches!(in_doubt, RunError::InDoubt { .. }), "{in_doubt:?}");
    let doubt = in_doubt.doubt().unwrap();
    // Another process resolves it: it waits until the server has ended the transaction of the
    // client that hangs.
    let other = bank.fence().await;
    assert_eq!(other.resolve(&doubt).await.unwrap(), Resolution::NotApplied);
    let wire = proxy.wires().remove(0);
    let before = wire.carried().0;
    wire.set(Fate::KIND);
    until("the late COMMIT arrives", || wire.carried().0 > before).await;
    assert_eq!(other.resolve(&doubt).await.unwrap(), Resolution::NotApplied);
    assert_eq!(bank.cents(), 100);
}

/// The whole transaction is late: nobody has raised the fence, and still its name is taken.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_commit_that_was_resolved_as_void_is_refused() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    let (fenced, proxy) = behind(&bank).await;
    let in_doubt = take_and(&fenced, &proxy, SHORT, |wire| {
        wire.set(Fate {
            hold_up: true,
            ..Fate::KIND
        })
    });
    let doubt = in_doubt.await.unwrap_err().doubt().unwrap();
    assert_eq!(fence.resolve(&doubt).await.unwrap(), Resolution::NotApplied);
    let late = bank.connect().await;
    late.batch_execute("BEGIN").await.unwrap();
    let enter = format!(
        "SELECT leasehold.enter(ARRAY['a'], ARRAY[1::bigint], '{}', 60000)",
        doubt.txn_id
    );
    let refused = late.query_one(&enter, &[]).await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "23505");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doubt_about_what_was_committed_is_resolved_as_applied_again_and_again() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    take_ten(&hold(1).executor(), &fence).await.unwrap();
    let txn_id = bank
        .psql("SELECT txn_id FROM leasehold.txn")
        .replace('-', "")
        .parse()
        .unwrap();
    let locks = vec![leasehold::run::HeldKey {
        key: key("a"),
        token: token(1),
    }];
    let doubt = Doubt::new(locks, txn_id);
    for _ in 0..2 {
        assert_eq!(fence.resolve(&doubt).await.unwrap(), Resolution::Applied);
    }
    // Its name is deleted when it is old and its holder is gone. Then nothing can be known, and
    // nothing is claimed.
    bank.psql("UPDATE leasehold.txn SET at = at - interval '8 days'; UPDATE leasehold.fence_meta SET swept_at = '-infinity'");
    assert_eq!(
        bank.psql("SELECT leasehold.sweep()"),
        "0",
        "its holder is the newest"
    );
    fence.raise(&key("a"), token(2)).await.unwrap();
    bank.psql("UPDATE leasehold.fence_meta SET swept_at = '-infinity'");
    assert_eq!(bank.psql("SELECT leasehold.sweep()"), "1");
    let error = fence.resolve(&doubt).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    // Nor by its name with other locks, of which no name was deleted.
    for other in [("b", 1), ("a", 3)] {
        let lock = leasehold::run::HeldKey {
            key: key(other.0),
            token: token(other.1),
        };
        let error = fence.resolve(&Doubt::new(vec![lock], txn_id)).await;
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Invalid, "{other:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_work_that_does_not_end_within_the_lease_is_rolled_back_with_proof() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    let clock = Clock::system().unwrap();
    for _ in 0..SCENES {
        let call = fence.transaction::<(), _, _>(async |t| {
            t.execute(TAKE, &[&10_i64]).await?;
            std::future::pending().await
        });
        let began = clock.stamp();
        let run = hold_for(1, SHORT);
        let failed = run.executor().commit(call).await.unwrap_err();
        let was_stopped = clock.stamp().since(&began) > SHORT * 85 / 100;
        if was_stopped && matches!(failed, RunError::InDoubt { .. }) {
            // The process stood still until the lease was over: then nothing is proven, and the run
            // says so.
            continue;
        }
        assert_not_applied(&failed);
        fence.raise(&key("a"), token(2)).await.unwrap();
        assert_eq!(bank.cents(), 100);
        return;
    }
    panic!("the machine stood still {SCENES} times");
}

/// Whatever byte a connection is lost at, the outcome is what the table shows.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_lost_at_any_byte_has_a_true_outcome() {
    let bank = Bank::open().await;
    let (fence, proxy) = behind(&bank).await;
    for fence in [fence.clone(), fence.pipelined()] {
        let run = async || take_ten(&hold_for(1, Duration::from_secs(20)).executor(), &fence).await;
        run().await.unwrap();
        let wire = proxy.wires().pop().unwrap();
        let before = wire.carried();
        run().await.unwrap();
        let after = wire.carried();
        let mut expected = bank.cents();
        for (way, length) in [(0, after.0 - before.0), (1, after.1 - before.1)] {
            for byte in 0..=length {
                let wire = proxy.wires().pop().unwrap();
                let (up, down) = wire.carried();
                wire.set(match way {
                    0 => Fate {
                        cut_up: up + byte,
                        ..Fate::KIND
                    },
                    _ => Fate {
                        cut_down: down + byte,
                        ..Fate::KIND
                    },
                });
                match run().await {
                    Ok(left) => {
                        expected -= 10;
                        assert_eq!(left, expected, "way {way} byte {byte}");
                    }
                    Err(RunError::RolledBack { .. }) => {}
                    Err(other) => panic!("way {way} byte {byte}: {other:?}"),
                }
                wire.set(Fate::KIND);
            }
        }
        assert_eq!(bank.cents(), expected);
    }
}

async fn own_server() -> (PgServer, Proxy, PgFence) {
    let server = PgServer::start();
    let proxy = Proxy::before(server.port());
    let fence = PgFence::connect(&crate::server::url(proxy.port()))
        .await
        .unwrap();
    fence.create_schema().await.unwrap();
    server.psql(ACCOUNTS);
    (server, proxy, fence)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_before_the_commit_has_rolled_back() {
    let (mut server, _proxy, fence) = own_server().await;
    let (entered, in_work) = tokio::sync::oneshot::channel();
    let (go_on, may_go_on) = tokio::sync::oneshot::channel();
    let call = fence.transaction(async move |t| {
        t.execute(TAKE, &[&10_i64]).await?;
        entered.send(()).unwrap();
        may_go_on.await.unwrap();
        t.done(())
    });
    let run = tokio::spawn(async move { hold_for(1, SHORT).executor().commit(call).await });
    in_work.await.unwrap();
    server.kill();
    go_on.send(()).unwrap();
    let end = run.await.unwrap().unwrap_err();
    server.restart();
    // The connection was found closed, or COMMIT went into it: then the name decides.
    match &end {
        RunError::RolledBack { .. } => {}
        RunError::InDoubt { .. } => {
            let doubt = end.doubt().unwrap();
            assert_eq!(fence.resolve(&doubt).await.unwrap(), Resolution::NotApplied);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(server.psql("SELECT cents FROM account WHERE id = 1"), "100");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_after_the_commit_has_committed() {
    let (mut server, proxy, fence) = own_server().await;
    let run = take_and(&fence, &proxy, SHORT, |wire| {
        wire.set(Fate {
            swallow_down: true,
            ..Fate::KIND
        });
    });
    let cents = || server.psql("SELECT cents FROM account WHERE id = 1");
    assert_eq!(
        run.await.unwrap(),
        CommitProof::Fenced,
        "resolved over another connection"
    );
    assert_eq!(cents(), "90");

    let run = take_and(&fence, &proxy, SHORT, |wire| {
        wire.set(Fate {
            swallow_down: true,
            ..Fate::KIND
        });
    });
    let mut run = std::pin::pin!(run);
    tokio::select! {
        end = &mut run => panic!("too early: {end:?}"),
        () = until("it is committed", || cents() == "80") => {}
    }
    server.kill();
    let end = run.await.unwrap_err();
    assert!(matches!(end, RunError::InDoubt { .. }), "{end:?}");
    server.restart();
    let doubt = end.doubt().unwrap();
    assert_eq!(fence.resolve(&doubt).await.unwrap(), Resolution::Applied);
    assert_eq!(server.psql("SELECT cents FROM account WHERE id = 1"), "80");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_no_standby_confirmed_is_in_doubt() {
    let (server, _proxy, fence) = own_server().await;
    server.psql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    server.psql("SELECT pg_reload_conf()");
    let hold = hold(1);
    let executor = hold.executor();
    let cancel =
        "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    // Whether a commit has waited for a standby that does not exist, and its wait was cancelled.
    let has_waited = std::cell::Cell::new(false);
    let operator = async {
        loop {
            has_waited.set(has_waited.get() || server.psql(cancel) == "1");
            crate::server::breathe().await;
        }
    };
    let first_that_waits = async {
        // A background process applies the setting some time after the reload; until then a commit
        // does not wait.
        for _ in 0..1_000 {
            let call = fence.transaction(async move |t| {
                t.execute("UPDATE account SET cents = cents + 1", &[])
                    .await?;
                t.done(())
            });
            if let Err(end) = executor.commit(call).await {
                return end;
            }
            assert!(!has_waited.get(), "reported as committed");
        }
        panic!("no commit waited for a standby");
    };
    let end = tokio::select! {
        end = first_that_waits => end,
        () = operator => unreachable!("it never ends"),
    };
    assert!(matches!(end, RunError::InDoubt { .. }), "{end:?}");
}

/// It is connected once. As if an hour went by after each run, and the names were old by then.
#[tokio::test(flavor = "multi_thread")]
async fn names_are_deleted_while_a_service_runs_on() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    bank.psql("UPDATE leasehold.fence_meta SET names_kept = '0'");
    for runs in 1..=1_000 {
        bank.psql("UPDATE leasehold.fence_meta SET swept_at = '-infinity'");
        take_ten(&hold(runs).executor(), &fence).await.unwrap();
        let names = bank.psql("SELECT count(*) FROM leasehold.txn");
        if names.parse::<u64>().unwrap() < runs {
            return;
        }
    }
    panic!("no name was deleted");
}

/// A leader holds one token for months.
#[tokio::test(flavor = "multi_thread")]
async fn old_names_of_the_newest_holder_are_deleted_too_and_prove_nothing_from_then_on() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    fence.raise(&key("a"), token(1)).await.unwrap();
    let begin = "SELECT rpad(lpad(to_hex((extract(epoch FROM now() - interval '8 days') * 1000)::bigint), 12, '0'), 30, '0')";
    let begin = bank.psql(begin);
    let [old, older] = ["02", "01"].map(|end| format!("{begin}{end}"));
    let commit = async |name: &str| {
        let client = bank.connect().await;
        let enter = format!(
            "BEGIN; SELECT leasehold.enter('{{a}}', '{{1}}', '{name}', 60000); SELECT leasehold.seal('{name}', NULL); COMMIT"
        );
        client.batch_execute(&enter).await
    };
    commit(&old).await.unwrap();
    bank.psql("UPDATE leasehold.txn SET at = at - interval '8 days'; UPDATE leasehold.fence_meta SET swept_at = '-infinity'");
    take_ten(&hold(1).executor(), &fence).await.unwrap();
    assert_eq!(bank.psql("SELECT leasehold.sweep()"), "1");
    assert_eq!(bank.psql("SELECT count(*) FROM leasehold.txn"), "1");
    let doubt = |name: &str| {
        let lock = leasehold::run::HeldKey {
            key: key("a"),
            token: token(1),
        };
        Doubt::new(vec![lock], name.parse().unwrap())
    };
    for name in [&old, &older] {
        let error = bank.psql_error(&format!(
            "SELECT leasehold.resolve('{{a}}', '{{1}}', '{name}', 1000)"
        ));
        assert!(error.contains("were deleted"), "{error}");
        // A copy of it that comes late: it may have been resolved as void.
        let refused = commit(name).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "LH004");
    }
    let run = hold(1).executor().guarded(|tx| Ok(tx.txn_id()?));
    let doubt = doubt(&run.unwrap().value.to_string());
    let resolution = fence.resolve(&doubt).await.unwrap();
    assert_eq!(resolution, Resolution::NotApplied);
    assert_eq!(take_ten(&hold(1).executor(), &fence).await.unwrap(), 80);
}

/// What waits for a standby that does not exist is ended by an operator: then it is on the primary
/// only.
const END_WHAT_WAITS: &str =
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

fn wait_for_standbys(server: &PgServer, names: &str) {
    server.psql(&format!(
        "ALTER SYSTEM SET synchronous_standby_names = '{names}'"
    ));
    server.psql("SELECT pg_reload_conf()");
}

/// A promoted standby would not have the commit.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_on_the_primary_only_is_not_resolved_as_applied() {
    let (server, _proxy, fence) = own_server().await;
    let resolver = PgFence::connect(&server.url()).await.unwrap();
    let resolver = resolver.wait(Duration::from_secs(1));
    wait_for_standbys(&server, "nobody");
    let has_waited = std::cell::Cell::new(false);
    let operator = async {
        loop {
            has_waited.set(server.psql(END_WHAT_WAITS) != "0" || has_waited.get());
            crate::server::breathe().await;
        }
    };
    let first_that_waits = async {
        // A background process applies the setting some time after the reload; until then a commit
        // does not wait.
        loop {
            let call = fence.transaction(async move |t| {
                t.execute(TAKE, &[&1_i64]).await?;
                t.done(())
            });
            let run = hold_for(1, SHORT);
            let end = run.executor().commit(call).await;
            assert!(!has_waited.get() || end.is_err(), "{end:?}");
            match end {
                Err(end @ RunError::InDoubt { .. }) if has_waited.get() => {
                    return end.doubt().unwrap();
                }
                _ => crate::server::breathe().await,
            }
        }
    };
    let doubt = tokio::select! {
        doubt = first_that_waits => doubt,
        () = operator => unreachable!("it never ends"),
    };
    until("it can be seen", || {
        server.psql(END_WHAT_WAITS) == "0"
            && server.psql(&format!(
                "SELECT count(*) FROM leasehold.txn WHERE txn_id = '{}'",
                doubt.txn_id
            )) == "1"
    })
    .await;
    let unknown = resolver.resolve(&doubt).await;
    assert!(unknown.is_err(), "{unknown:?}");
    wait_for_standbys(&server, "");
    loop {
        match resolver.resolve(&doubt).await {
            Ok(resolution) => break assert_eq!(resolution, Resolution::Applied),
            Err(_) => crate::server::breathe().await,
        }
    }
}

/// A promoted standby would let a former holder in.
#[tokio::test(flavor = "multi_thread")]
async fn a_fence_that_is_raised_on_the_primary_only_is_not_raised() {
    let (server, _proxy, fence) = own_server().await;
    let fence = fence.wait(Duration::from_secs(1));
    fence.raise(&key("a"), token(1)).await.unwrap();
    wait_for_standbys(&server, "nobody");
    let mut last = 1;
    let error = loop {
        last += 1;
        // Until the setting is applied a commit does not wait.
        if let Err(error) = fence.raise(&key("a"), token(last)).await {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let raised = format!("SELECT count(*) FROM leasehold.fence WHERE token = {last}");
    until("it can be seen", || {
        server.psql(END_WHAT_WAITS);
        server.psql(&raised) == "1"
    })
    .await;
    let again = fence.raise(&key("a"), token(last)).await;
    assert!(again.is_err(), "it is on the primary only");
    wait_for_standbys(&server, "");
    while fence.raise(&key("a"), token(last)).await.is_err() {
        crate::server::breathe().await;
    }
}

/// What waits for a standby is set free by an operator who demands none any more, without a notice.
#[tokio::test(flavor = "multi_thread")]
async fn what_waited_for_a_standby_until_nobody_demanded_it_proves_nothing() {
    let (server, _proxy, fence) = own_server().await;
    let fence = fence.wait(Duration::from_secs(60));
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    // Whether it waited, and what it came to.
    let freed = async |call: std::pin::Pin<Box<dyn Future<Output = bool> + '_>>| {
        wait_for_standbys(&server, "nobody");
        // The server asks for standbys before all its sessions have read the setting. A
        // statement of a session in between waits, and does not say that it will.
        crate::server::breathe().await;
        let mut call = call;
        loop {
            tokio::select! {
                biased;
                is_proven = &mut call => return (false, is_proven),
                () = crate::server::breathe() => {}
            }
            if server.psql(waits) != "0" {
                wait_for_standbys(&server, "");
                return (true, call.await);
            }
        }
    };
    // Until the setting is applied a commit does not wait.
    let mut last = 0;
    loop {
        last += 1;
        let raised = async { fence.raise(&key("a"), token(last)).await.is_ok() };
        if let (true, is_proven) = freed(Box::pin(raised)).await {
            break assert!(!is_proven, "raised");
        }
    }
    loop {
        let committed = async {
            let call = fence.transaction(async move |t| {
                t.execute(TAKE, &[&1_i64]).await?;
                t.done(())
            });
            let end = hold_for(last, Duration::from_secs(60))
                .executor()
                .commit(call)
                .await;
            !matches!(end, Err(RunError::InDoubt { .. }))
        };
        if let (true, is_proven) = freed(Box::pin(committed)).await {
            break assert!(!is_proven, "committed");
        }
    }
    fence.raise(&key("a"), token(last + 1)).await.unwrap();
}
