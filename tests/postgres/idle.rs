//! Connections that died while nobody used them.

use std::time::Duration;

use leasehold::fence::Fence;
use leasehold::postgres::PgFence;
use leasehold::{ErrorKind, RunError};

use crate::proxy::{Fate, Proxy};
use crate::world::{Bank, assert_not_applied, hold, hold_for, key, take_ten, token};

/// A fence that keeps a connection.
async fn behind(bank: &Bank) -> (PgFence, Proxy) {
    let proxy = Proxy::before(bank.server().port());
    let fence = PgFence::connect(&bank.url_at(proxy.port())).await.unwrap();
    assert_eq!(take_ten(&hold(1).executor(), &fence).await.unwrap(), 90);
    assert_eq!(proxy.wires().len(), 1);
    (fence, proxy)
}

/// The next byte to the server ends the connections: as when something between has forgotten them.
fn forget_all(proxy: &Proxy) {
    for wire in proxy.wires() {
        wire.set(Fate {
            cut_up: wire.carried().0,
            ..Fate::KIND
        });
    }
}

#[tokio::test]
async fn a_run_replaces_a_connection_that_died_while_it_was_idle() {
    let bank = Bank::open().await;
    let (fence, proxy) = behind(&bank).await;
    let carried = proxy.wires()[0].carried();
    forget_all(&proxy);
    assert_eq!(take_ten(&hold(1).executor(), &fence).await.unwrap(), 80);
    let wires = proxy.wires();
    assert_eq!((wires.len(), wires[0].carried()), (2, carried));
}

/// What was executed over it is rolled back, so nothing is done twice.
#[tokio::test]
async fn a_run_whose_first_answer_was_lost_enters_again() {
    let bank = Bank::open().await;
    let (fence, proxy) = behind(&bank).await;
    let wire = proxy.wires().pop().unwrap();
    wire.set(Fate {
        cut_down: wire.carried().1,
        ..Fate::KIND
    });
    assert_eq!(take_ten(&hold(1).executor(), &fence).await.unwrap(), 80);
    assert_eq!(bank.psql("SELECT count(*) FROM leasehold.txn"), "2");
}

/// All that were kept may have died together: the next one is not taken from them.
#[tokio::test]
async fn a_raise_replaces_a_connection_that_died_while_it_was_idle() {
    let bank = Bank::open().await;
    let (fence, proxy) = behind(&bank).await;
    let (one, two) = (fence.clone(), fence.clone());
    let both = fence.transaction(async move |t| {
        // Another connection while this one is in use.
        take_ten(&hold(1).executor(), &one).await.unwrap();
        t.done(())
    });
    hold(1).executor().commit(both).await.unwrap();
    assert_eq!(proxy.wires().len(), 2);
    forget_all(&proxy);
    two.raise(&key("a"), token(2)).await.unwrap();
    assert_eq!(take_ten(&hold(2).executor(), &two).await.unwrap(), 70);
}

/// Its work has begun, and cannot begin again.
#[tokio::test]
async fn a_pipelined_run_over_a_connection_that_died_is_rolled_back() {
    let bank = Bank::open().await;
    let (fence, proxy) = behind(&bank).await;
    let fence = fence.pipelined();
    assert_eq!(take_ten(&hold(1).executor(), &fence).await.unwrap(), 80);
    forget_all(&proxy);
    let end = take_ten(&hold(1).executor(), &fence).await.unwrap_err();
    assert!(matches!(end, RunError::RolledBack { .. }), "{end:?}");
    assert_eq!(take_ten(&hold(1).executor(), &fence).await.unwrap(), 70);
}

/// A server that ends every connection is asked twice, not for ever.
#[tokio::test]
async fn a_run_is_begun_again_once() {
    let bank = Bank::open().await;
    let (fence, proxy) = behind(&bank).await;
    bank.psql("ALTER FUNCTION leasehold.enter(text[], bigint[], uuid, int) RENAME TO entered");
    bank.psql(
        "CREATE FUNCTION leasehold.enter(text[], bigint[], uuid, int) RETURNS void LANGUAGE sql \
         AS 'SELECT pg_terminate_backend(pg_backend_pid())'",
    );
    let end = take_ten(&hold(1).executor(), &fence).await.unwrap_err();
    assert!(matches!(end, RunError::RolledBack { .. }), "{end:?}");
    assert_eq!(proxy.wires().len(), 2);
}

/// A server that is stopped takes connections and answers none of them.
#[tokio::test]
async fn a_server_that_takes_connections_and_is_silent_leaves_nothing_in_doubt() {
    let bank = Bank::open().await;
    let (fence, proxy) = behind(&bank).await;
    for wire in proxy.wires() {
        wire.cut();
    }
    proxy.next(Fate {
        swallow_down: true,
        ..Fate::KIND
    });
    for fence in [fence.clone(), fence.clone().pipelined()] {
        // Much longer than a connect may take.
        let held = hold_for(1, Duration::from_secs(30));
        let end = take_ten(&held.executor(), &fence).await.unwrap_err();
        assert!(matches!(end, RunError::RolledBack { .. }), "{end:?}");
    }
    let error = fence.raise(&key("a"), token(2)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

/// What the work leaves in its session is not the next run's.
#[tokio::test]
async fn a_run_finds_nothing_that_the_run_before_left_in_its_session() {
    let bank = Bank::open().await;
    bank.psql("CREATE SEQUENCE numbers");
    let (fence, proxy) = behind(&bank).await;
    for is_done in [true, false] {
        let call = fence.transaction(async move |t| {
            for statement in [
                "CREATE TEMPORARY TABLE account (id int)",
                "SELECT nextval('numbers')",
                "SET search_path = nowhere",
                "SET ROLE pg_read_all_data",
                "SELECT pg_advisory_lock(7)",
            ] {
                t.execute(statement, &[]).await?;
            }
            if is_done { t.done(()) } else { t.refuse("no") }
        });
        let _ = hold(1).executor().commit(call).await;
        let call = fence.transaction(async |t| {
            let state = "SELECT current_setting('search_path') || ' ' || current_user || ' ' || (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))";
            let state: String = t.query_one(state, &[]).await?.get(0);
            t.query_one("SELECT cents FROM account WHERE id = 1", &[]).await?;
            t.done(state)
        });
        let found = hold(1).executor().commit(call).await.unwrap().value;
        assert_eq!(found, "\"$user\", public postgres 0", "{is_done}");
        let call = fence.transaction(async |t| {
            let last: i64 = t.query_one("SELECT lastval()", &[]).await?.get(0);
            t.done(last)
        });
        let none = hold(1).executor().commit(call).await.unwrap_err();
        assert_not_applied(&none);
    }
    // Over one connection.
    assert_eq!(proxy.wires().len(), 1);
}
