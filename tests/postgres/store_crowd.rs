//! Many waiters of one key, and one key that blocks beside others that do not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::postgres::{PostgresStore, tokio_postgres};
use leasehold::store::{Acquired, Released, Renewed, Store};
use leasehold::{ErrorKind, postgres};

use crate::claims::{claim, grant, release};
use crate::server::PgServer;
use crate::store_world::{Locks, manager};
use crate::world::connect;

/// How many waiters the crowd has, in four processes. A place is asked for again after half of the
/// TTL, which is an hour.
const CROWD: usize = 400;

async fn plain(locks: &Locks) -> tokio_postgres::Client {
    connect(locks.url("").trim_end_matches('?')).await
}

/// The rows that a statement read in the table of claims.
fn rows_read(locks: &Locks, statement: &str) -> u64 {
    let read = "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables WHERE relname = 'claim'";
    let answer = locks.psql(&format!("BEGIN; {statement}; {read}; ROLLBACK"));
    answer.lines().last().unwrap().parse().unwrap()
}

#[tokio::test]
async fn an_attempt_and_a_release_read_no_more_rows_the_longer_the_queue_is() {
    let locks = Locks::open().await;
    let [first, holder] = [1, 2].map(|n| format!("'00000000-0000-0000-0000-00000000000{n}'::uuid"));
    let ask = |owner: &str, mode: &str| {
        format!("SELECT leasehold.ask('a', {owner}, '{mode}', 10000, 600000, 'a', true)")
    };
    locks.psql(&ask(&holder, "x"));
    locks.psql(&ask(&first, "x"));
    // Planned before the queue was long.
    locks.psql("VACUUM ANALYZE leasehold.claim");
    locks.psql(
        "INSERT INTO leasehold.claim SELECT gen_random_uuid(), 'a', n, CASE WHEN n % 2 = 0 THEN 'x' ELSE 'r' END, NULL,
           clock_timestamp() + interval '1 h', '10 s', 'a', true, false FROM generate_series(2, 2001) AS n",
    );
    let leave = format!("SELECT leasehold.leave('a', {holder}, false)");
    for statement in [
        ask("gen_random_uuid()", "x"),
        ask("gen_random_uuid()", "r"),
        ask(&first, "x"),
        leave.clone(),
        format!("{leave}; {}", ask(&first, "x")),
        format!("{leave}; {}", ask("gen_random_uuid()", "r")),
    ] {
        let read = rows_read(&locks, &statement);
        // A loop reads its first ten rows at once, and whoever is far behind the first 17 of those
        // before it.
        assert!(read <= 64, "{read}: {statement}");
    }
}

/// Without polls that keep the store from serving them, and over the connections that there were.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_a_crowd_is_served_after_two_requests_over_the_same_connections() {
    let server = PgServer::start_with(&["fsync=on", "track_functions=pl"]);
    let url = format!(
        "{}?create=auto&max_ttl=2h&timeout_millis=60000",
        server.url()
    );
    let mut managers = Vec::new();
    for _ in 0..4 {
        let locks = manager(&url, |settings| {
            settings.ttl = Duration::from_secs(3_600);
            settings.max_ttl = Duration::from_secs(7_200);
            settings.request_timeout = Duration::from_secs(60);
            settings.wait = Duration::from_secs(600);
        });
        managers.push(locks.await);
    }
    let first = managers[0].lock("a").acquire().await.unwrap();
    let inside = Arc::new(AtomicU32::new(0));
    let mut crowd = Vec::new();
    for number in 0..CROWD {
        let (locks, inside) = (managers[number % 4].clone(), Arc::clone(&inside));
        crowd.push(tokio::spawn(async move {
            let guard = locks.lock("a").fair().acquire().await.unwrap();
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two inside");
            tokio::task::yield_now().await;
            inside.fetch_sub(1, Ordering::SeqCst);
            guard.release().await.unwrap();
        }));
    }
    let places = "SELECT count(*) FROM leasehold.claim WHERE token IS NULL";
    crate::world::until("all of them wait", || {
        server.psql(places) == CROWD.to_string()
    })
    .await;
    let backends = "SELECT string_agg(pid::text, ' ' ORDER BY pid) FROM pg_stat_activity WHERE application_name = 'leasehold'";
    let connections = server.psql(backends);
    first.release().await.unwrap();
    for one in crowd {
        one.await.unwrap();
    }
    assert_eq!(server.psql(backends), connections);
    for locks in managers {
        locks.shutdown().await;
    }
    // The server counts what a connection called when that ends.
    crate::world::until("the connections end", || server.psql(backends).is_empty()).await;
    let asks = "SELECT calls FROM pg_stat_user_functions WHERE funcname = 'ask'";
    let asks: usize = server.psql(asks).parse().unwrap();
    assert!(2 * asks <= 5 * CROWD, "{asks} asks for {CROWD} waiters");
}

/// Gives up later than the requests for one blocked key may take together.
async fn patient(locks: &Locks) -> PostgresStore {
    let url = locks.url("timeout_millis=4000");
    PostgresStore::connect(&url).await.unwrap()
}

/// A client that leaves a transaction open which asked for the key `blocked`.
async fn blocks(locks: &Locks) -> tokio_postgres::Client {
    let psql = plain(locks).await;
    let ask =
        "BEGIN; SELECT leasehold.ask('blocked', gen_random_uuid(), 'x', 1000, 0, 'psql', false)";
    psql.batch_execute(ask).await.unwrap();
    psql
}

#[tokio::test]
async fn a_blocked_key_delays_no_other_key_of_the_process() {
    let locks = Locks::open().await;
    let store = patient(&locks).await;
    let psql = blocks(&locks).await;
    let mut blocked = Vec::new();
    for _ in 0..40 {
        let store = store.clone();
        blocked.push(tokio::spawn(async move {
            store.acquire(&claim("blocked")).await.unwrap_err()
        }));
    }
    tokio::task::yield_now().await;
    for number in 0..6 {
        let held = grant(&store, &claim(&format!("free{number}"))).await;
        release(&store, &held).await;
    }
    for one in blocked {
        let error = one.await.unwrap();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    psql.batch_execute("ROLLBACK").await.unwrap();
    crate::server::until("it can be asked for again", async || {
        store.acquire(&claim("blocked")).await.is_ok()
    })
    .await;
}

/// Asks and ends alike. The others are never in doubt, because none of their requests waits for
/// longer than a request may take.
#[tokio::test]
async fn many_blocked_keys_put_no_other_key_in_doubt() {
    let locks = Locks::open().await;
    let store = patient(&locks).await;
    let mut held = Vec::new();
    for number in 0..30 {
        held.push(grant(&store, &claim(&format!("held{number}"))).await);
    }
    let psql = plain(&locks).await;
    let block = "BEGIN; SELECT leasehold.take_away('held' || n, true) FROM generate_series(0, 29) n;
        SELECT leasehold.ask('blocked' || n, gen_random_uuid(), 'x', 1000, 0, 'psql', false) FROM generate_series(0, 19) n";
    psql.batch_execute(block).await.unwrap();
    let mut tasks = Vec::new();
    for held in held {
        let store = store.clone();
        tasks.push(tokio::spawn(async move {
            let Released::Unknown(error) = store.release(&held).await else {
                panic!("another call holds it up");
            };
            // The server refused it, and no connection was given up.
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }));
    }
    for number in 0..20 {
        let store = store.clone();
        tasks.push(tokio::spawn(async move {
            for _ in 0..5 {
                let asked = store.acquire(&claim(&format!("blocked{number}"))).await;
                assert_eq!(asked.unwrap_err().kind(), ErrorKind::Unavailable);
            }
        }));
    }
    tokio::task::yield_now().await;
    for number in 0..10 {
        let free = claim(&format!("free{number}"));
        let held = loop {
            match store.acquire(&free).await {
                Ok(Acquired::Granted(held)) => break held,
                // No turn came in time, and nothing was sent.
                Err(error) if error.kind() == ErrorKind::Unavailable => {}
                other => panic!("free{number}: {other:?}"),
            }
        };
        release(&store, &held).await;
    }
    for task in tasks {
        task.await.unwrap();
    }
    psql.batch_execute("ROLLBACK").await.unwrap();
}

#[tokio::test]
async fn a_hold_that_another_call_is_about_costs_the_others_no_renewal() {
    let locks = Locks::open().await;
    let store = locks.store("").await;
    let mut held = Vec::new();
    for number in 0..10 {
        held.push(grant(&store, &claim(&format!("k{number}"))).await);
    }
    let psql = plain(&locks).await;
    psql.batch_execute("BEGIN; SELECT leasehold.take_away('k7', true)")
        .await
        .unwrap();
    for (number, answer) in store.renew(&held).await.iter().enumerate() {
        match answer {
            Renewed::Unknown(error) if number == 7 => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            }
            Renewed::Extended(_) if number != 7 => {}
            other => panic!("{number}: {other:?}"),
        }
    }
    psql.batch_execute("ROLLBACK").await.unwrap();
    let answers = store.renew(&held).await;
    let is_extended = |answer: &Renewed| matches!(answer, Renewed::Extended(_));
    assert!(answers.iter().all(is_extended), "{answers:?}");
}

/// A dump reads every table for as long as it takes; whoever waits for it with a lock of a table
/// keeps everybody out.
#[tokio::test]
async fn the_schema_is_run_again_beside_a_dump_and_beside_calls() {
    let locks = Locks::open().await;
    let store = locks.store("").await;
    let [dump, call, admin] = [
        plain(&locks).await,
        plain(&locks).await,
        plain(&locks).await,
    ];
    dump.batch_execute("BEGIN; LOCK TABLE leasehold.claim, leasehold.token, leasehold.withdrawn, leasehold.lock_meta IN ACCESS SHARE MODE")
        .await
        .unwrap();
    call.batch_execute(
        "BEGIN; SELECT leasehold.ask('b', gen_random_uuid(), 'x', 1000, 0, 'a', false)",
    )
    .await
    .unwrap();
    let again = format!("BEGIN; SET LOCAL lock_timeout = '1s'; {}", postgres::SCHEMA);
    admin.batch_execute(&again).await.unwrap();
    // Its transaction is open, and others are served.
    let held = grant(&store, &claim("a")).await;
    release(&store, &held).await;
    for client in [admin, call, dump] {
        client.batch_execute("COMMIT").await.unwrap();
    }
    let held = grant(&store, &claim("a")).await;
    release(&store, &held).await;
}

/// Keys share the rows in which their tokens are.
#[tokio::test]
async fn a_grant_whose_transaction_stays_open_delays_no_key_that_shares_its_slot() {
    let locks = Locks::open().await;
    let store = locks.store("").await;
    let psql = plain(&locks).await;
    for key in ["blocked", "blocked too"] {
        psql.batch_execute(&format!(
            "BEGIN; SELECT leasehold.ask('{key}', gen_random_uuid(), 'x', 1000, 0, 'psql', false)"
        ))
        .await
        .unwrap();
        let sharing = format!(
            "SELECT 's' || n FROM generate_series(1, 100000) AS n
              WHERE hashtext('s' || n) & 4095 = hashtext('{key}') & 4095 LIMIT 3"
        );
        for other in locks.psql(&sharing).lines() {
            let mut last = None;
            for _ in 0..3 {
                let held = grant(&store, &claim(other)).await;
                assert!(Some(held.token) > last);
                last = Some(held.token);
                release(&store, &held).await;
            }
        }
        psql.batch_execute("ROLLBACK").await.unwrap();
    }
    // One row more for each grant at one time, and no more.
    let rows = "SELECT count(*) - 4096 FROM leasehold.token";
    let rows: u32 = locks.psql(rows).parse().unwrap();
    assert!((1..=2).contains(&rows), "{rows}");
}

/// The server ends the first call as it ends one that waits for too long.
#[tokio::test]
async fn an_end_that_waited_for_too_long_is_sent_once_more() {
    let locks = Locks::open().await;
    let store = patient(&locks).await;
    let held = grant(&store, &claim("a")).await;
    locks.psql(
        "CREATE SEQUENCE public.tries;
         CREATE FUNCTION public.waits() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           IF nextval('public.tries') = 1 THEN RAISE EXCEPTION 'it waits' USING ERRCODE = '55P03'; END IF;
           RETURN OLD;
         END $$;
         CREATE TRIGGER waits BEFORE DELETE ON leasehold.claim FOR EACH ROW EXECUTE FUNCTION public.waits()",
    );
    release(&store, &held).await;
    assert_eq!(
        locks.psql("SELECT last_value FROM public.tries").trim(),
        "2"
    );
}

#[tokio::test]
async fn an_end_of_a_blocked_key_delays_no_other_key_of_the_process() {
    let locks = Locks::open().await;
    let store = patient(&locks).await;
    let held = grant(&store, &claim("blocked")).await;
    let psql = blocks(&locks).await;
    let mut blocked = Vec::new();
    for _ in 0..20 {
        let (store, held) = (store.clone(), held.clone());
        blocked.push(tokio::spawn(async move {
            match store.withdraw(&claim("blocked")).await {
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
                Ok(()) => panic!("withdrawn"),
            }
            match store.release(&held).await {
                Released::Unknown(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                }
                other => panic!("{other:?}"),
            }
            match store.rest(&held, Duration::from_secs(1)).await {
                Released::Unknown(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                }
                other => panic!("{other:?}"),
            }
        }));
    }
    tokio::task::yield_now().await;
    for number in 0..6 {
        let held = grant(&store, &claim(&format!("free{number}"))).await;
        release(&store, &held).await;
    }
    for one in blocked {
        one.await.unwrap();
    }
    psql.batch_execute("ROLLBACK").await.unwrap();
    crate::server::until("it can be released", async || {
        matches!(store.release(&held).await, Released::Released)
    })
    .await;
}
