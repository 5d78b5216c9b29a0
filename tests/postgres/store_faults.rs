//! Servers that crash, are replaced or stop, and connections that are cut.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::postgres::PostgresStore;
use leasehold::store::{Acquired, Claim, Fencing, Released, Renewed, Store};

use crate::claims::{claim, claim_for, grant, is_busy, release};
use crate::proxy::{Fate, Proxy};
use crate::server::{PgServer, breathe};
use crate::store_world::Locks;

/// Asks again until the store is sure, as the manager does.
async fn withdraw(store: &PostgresStore, claim: &Claim) {
    while store.withdraw(claim).await.is_err() {
        breathe().await;
    }
}

async fn renewed(store: &PostgresStore, held: &leasehold::store::Grant) -> bool {
    loop {
        match store.renew(std::slice::from_ref(held)).await.pop() {
            Some(Renewed::Extended(_)) => return true,
            Some(Renewed::Gone) => return false,
            _ => breathe().await,
        }
    }
}

#[tokio::test]
async fn a_server_that_is_killed_and_started_again_forgets_no_lock() {
    let mut server = PgServer::start_with(&["fsync=on"]);
    let store = PostgresStore::connect(&format!("{}?create=auto", server.url()))
        .await
        .unwrap();
    let held = grant(&store, &claim_for("a", Duration::from_secs(30))).await;
    server.restart();
    let busy = loop {
        match store.acquire(&claim("a")).await {
            Ok(answer) => break answer,
            Err(error) => {
                let is_expected =
                    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::InDoubt);
                assert!(is_expected, "{error}");
            }
        }
        breathe().await;
    };
    assert!(matches!(busy, Acquired::Busy { .. }), "{busy:?}");
    assert!(renewed(&store, &held).await);
    // Nothing is lost, so nothing is waited for.
    let other = grant(&store, &claim("b")).await;
    release(&store, &other).await;
}

#[tokio::test]
async fn a_promoted_standby_grants_nothing_for_max_ttl_and_renews_what_it_knows() {
    let primary = PgServer::start_with(&["fsync=on"]);
    let query = "create=auto&max_ttl=20s&timeout_millis=20000";
    let before = PostgresStore::connect(&format!("{}?{query}", primary.url()))
        .await
        .unwrap();
    assert_eq!(before.capability().fencing, Fencing::Monotonic);
    let standby = primary.standby_with(&["fsync=on"]);
    while primary.psql("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'") != "1"
    {
        breathe().await;
    }
    // What an asynchronous standby lacks when it is promoted, nobody knows.
    let ours = PostgresStore::connect(&format!("{}?{query}", primary.url()))
        .await
        .unwrap();
    assert_eq!(ours.capability().fencing, Fencing::None);
    let error = PostgresStore::connect(&format!("{}?{query}", standby.url()))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");

    let mut asked = claim("a");
    asked.ttl = Duration::from_secs(20);
    let held = grant(&ours, &asked).await;
    let lsn = primary.psql("SELECT pg_current_wal_flush_lsn()");
    while standby.psql(&format!("SELECT pg_last_wal_replay_lsn() >= '{lsn}'")) != "t" {
        breathe().await;
    }
    // By a function call on a connection that was made before the promotion is no difference: the
    // first ask notices.
    standby.promote();
    let after = PostgresStore::connect(&format!("{}?{query}", standby.url()))
        .await
        .unwrap();
    let mut other = claim("b");
    other.ttl = Duration::from_secs(20);
    let answer = after.acquire(&other).await.unwrap();
    assert!(
        matches!(answer, Acquired::NotReady { retry_after } if retry_after <= Duration::from_secs(20)),
        "{answer:?}"
    );
    assert!(renewed(&after, &held).await);
    // Two primaries: the old one goes on, which is why it promises no growing tokens.
    assert!(!is_busy(&ours, &other).await);
    // As if max_ttl had passed.
    standby.psql("UPDATE leasehold.lock_meta SET closed_until = clock_timestamp()");
    let mut next = claim("b");
    next.ttl = Duration::from_secs(20);
    let _granted = grant(&after, &next).await;
    let mut kept = claim("a");
    kept.ttl = Duration::from_secs(20);
    assert!(is_busy(&after, &kept).await);
}

#[tokio::test]
async fn a_server_whose_timeline_changed_is_closed_by_the_first_attempt() {
    let locks = Locks::open().await;
    let store = locks.store("").await;
    let held = grant(&store, &claim("a")).await;
    // As after a promotion behind a proxy that keeps the client's connection.
    locks.psql("UPDATE leasehold.lock_meta SET timeline = 'FFFFFFFF'");
    for _ in 0..2 {
        let answer = store.acquire(&claim("b")).await.unwrap();
        assert!(matches!(answer, Acquired::NotReady { .. }), "{answer:?}");
    }
    assert!(renewed(&store, &held).await);
    let again = grant(&store, &held.claim).await;
    assert_eq!(again.token, held.token);
    // Another server with a copy of the data.
    locks.psql("UPDATE leasehold.lock_meta SET system = '1', closed_until = '-infinity'");
    let other = locks.store("").await;
    let answer = other.acquire(&claim("b")).await.unwrap();
    assert!(matches!(answer, Acquired::NotReady { .. }), "{answer:?}");
}

#[tokio::test]
async fn an_acquire_that_arrives_after_its_withdrawal_is_refused() {
    let locks = Locks::open().await;
    let proxy = Proxy::before(locks.server().port());
    let url = locks.url_at(proxy.port(), "timeout_millis=1000");
    let store = loop {
        match PostgresStore::connect(&url).await {
            Ok(store) => break store,
            // A busy machine may be slower than that.
            Err(_) => breathe().await,
        }
    };
    let wires = proxy.wires();
    for wire in &wires {
        wire.set(Fate {
            hold_up: true,
            ..Fate::KIND
        });
    }
    let ours = claim("a");
    let error = store.acquire(&ours).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InDoubt, "{error}");
    withdraw(&store, &ours).await;
    let sent: Vec<_> = wires.iter().map(|wire| wire.carried().0).collect();
    for wire in &wires {
        wire.set(Fate::KIND);
    }
    // The late request has reached the server when it was carried there, and the server has
    // answered.
    while wires
        .iter()
        .map(|wire| wire.carried().0)
        .collect::<Vec<_>>()
        == sent
    {
        breathe().await;
    }
    let patient = locks.store("").await;
    let other = grant(&patient, &claim("a")).await;
    assert!(is_busy(&patient, &claim("a")).await);
    release(&patient, &other).await;
    let error = loop {
        let error = store.acquire(&ours).await.unwrap_err();
        if ![ErrorKind::InDoubt, ErrorKind::Unavailable].contains(&error.kind()) {
            break error;
        }
        breathe().await;
    };
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

/// Every byte of an acquire and of a release, both ways.
#[tokio::test]
async fn wherever_the_connection_is_cut_nothing_stays_locked_once_it_is_withdrawn() {
    let locks = Locks::open().await;
    let server = locks.server().port();
    let direct = locks.store("").await;
    let proxy = Proxy::before(server);
    let url = locks.url_at(proxy.port(), "");
    // What a connect, an acquire and a release carry.
    let connected = PostgresStore::connect(&url).await.unwrap();
    let wire = proxy.wires().remove(0);
    let (up, down) = wire.carried();
    let held = grant(&connected, &claim("a")).await;
    release(&connected, &held).await;
    let (up_after, down_after) = wire.carried();
    let mut grants = 0;
    let cuts = (up..=up_after).map(|at| (at, usize::MAX));
    let cuts = cuts.chain((down..=down_after).map(|at| (usize::MAX, at)));
    // Each byte of the answers, and of the requests every third: most of them are the text of the
    // statement.
    for (cut_up, cut_down) in cuts.filter(|(up, _)| *up == usize::MAX || up.is_multiple_of(3)) {
        let proxy = Proxy::before(server);
        let store = PostgresStore::connect(&locks.url_at(proxy.port(), ""))
            .await
            .unwrap();
        proxy.wires()[0].set(Fate {
            cut_up,
            cut_down,
            ..Fate::KIND
        });
        let ours = claim("a");
        match store.acquire(&ours).await {
            Ok(Acquired::Granted(held)) => {
                grants += 1;
                match store.release(&held).await {
                    Released::Released => {}
                    Released::Unknown(_) => withdraw(&direct, &ours).await,
                    other => panic!("cut at {cut_up} {cut_down}: {other:?}"),
                }
            }
            Err(error) => {
                let is_expected =
                    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::InDoubt);
                assert!(is_expected, "cut at {cut_up} {cut_down}: {error}");
                withdraw(&direct, &ours).await;
            }
            other => panic!("cut at {cut_up} {cut_down}: {other:?}"),
        }
        let next = grant(&direct, &claim("a")).await;
        release(&direct, &next).await;
    }
    assert!(grants > 0, "no cut came after the grant");
}

#[tokio::test]
async fn a_standby_that_confirms_nothing_proves_nothing() {
    let server = PgServer::start_with(&["fsync=on"]);
    let connect = async |millis: u32| {
        let url = format!("{}?create=auto&timeout_millis={millis}", server.url());
        PostgresStore::connect(&url).await
    };
    let held = grant(&connect(20_000).await.unwrap(), &claim("a")).await;
    let store = loop {
        match connect(1_000).await {
            Ok(store) => break store,
            // A busy machine may be slower than that.
            Err(_) => breathe().await,
        }
    };
    server.psql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    server.psql("SELECT pg_reload_conf()");
    // Until the setting is applied a commit does not wait.
    let mut tries = 0;
    let error = loop {
        tries += 1;
        let ours = claim(&format!("b{tries}"));
        match store.acquire(&ours).await {
            Ok(_) => breathe().await,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::InDoubt, "{error}");
    let renewed = store.renew(&[held]).await;
    assert!(matches!(renewed[..], [Renewed::Unknown(_)]), "{renewed:?}");
}

/// Whoever gives up waiting for a standby sets the server free: what waited is answered as if the
/// standby had it.
#[tokio::test]
async fn what_waited_for_a_standby_until_nobody_demanded_it_is_in_doubt() {
    let server = PgServer::start_with(&["fsync=on"]);
    let url = format!("{}?create=auto&timeout_millis=60000", server.url());
    let store = PostgresStore::connect(&url).await.unwrap();
    let held = grant(&store, &claim_for("a", Duration::from_secs(30))).await;
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let set = |names: &str| {
        server.psql(&format!(
            "ALTER SYSTEM SET synchronous_standby_names = '{names}'"
        ));
        server.psql("SELECT pg_reload_conf()");
    };
    // Whether the call waited, and its answer.
    let freed = async |call: std::pin::Pin<Box<dyn Future<Output = bool> + '_>>| {
        set("nobody");
        let mut call = call;
        loop {
            tokio::select! {
                biased;
                is_in_doubt = &mut call => return (false, is_in_doubt),
                () = breathe() => {}
            }
            if server.psql(waits) != "0" {
                set("");
                return (true, call.await);
            }
        }
    };
    let is_unknown = |error: &leasehold::Error| error.kind() == ErrorKind::InDoubt;
    let mut tries = 0;
    // Until the setting is applied a commit does not wait.
    loop {
        tries += 1;
        let ours = claim(&format!("b{tries}"));
        let asked = async {
            store
                .acquire(&ours)
                .await
                .is_err_and(|error| is_unknown(&error))
        };
        if let (true, is_in_doubt) = freed(Box::pin(asked)).await {
            break assert!(is_in_doubt, "granted");
        }
    }
    loop {
        let renewed = async {
            let renewed = store.renew(std::slice::from_ref(&held)).await;
            matches!(&renewed[..], [Renewed::Unknown(error)] if is_unknown(error))
        };
        if let (true, is_in_doubt) = freed(Box::pin(renewed)).await {
            break assert!(is_in_doubt, "renewed");
        }
    }
    // Without standbys, and with settings that were read before: as ever.
    release(&store, &grant(&store, &claim("c")).await).await;
}
