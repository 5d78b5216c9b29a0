//! A lock that somebody else wants, and an office that passes on, on two managers of one store.

use std::future::pending;

use leasehold::LockManager;
use leasehold::election::{Election, Leadership};
use tokio::sync::watch;

/// A holder learns that another manager waits. A leader leaves for a candidate that is preferred,
/// and when it is asked to step down for whoever waits.
pub(crate) async fn a_lock_and_an_office_pass_on(ours: &LockManager, theirs: &LockManager) {
    let held = ours.lock("wanted").acquire().await.unwrap();
    let lock = theirs.lock("wanted");
    let mut waits = Box::pin(lock.acquire());
    tokio::select! {
        noticed = held.wanted() => noticed.unwrap(),
        _ = &mut waits => panic!("it is held"),
    }
    held.release().await.unwrap();
    waits.await.unwrap().release().await.unwrap();

    let terms = watch::Sender::new(Vec::new());
    let begun = async |expected: &[&str]| {
        let mut seen = terms.subscribe();
        let led = seen.wait_for(|terms: &Vec<&str>| terms.starts_with(expected));
        led.await.unwrap();
    };
    let leads = async |election: Election, name: &'static str| {
        let work = async |_: &Leadership| {
            terms.send_modify(|terms| terms.push(name));
            pending::<()>().await
        };
        election.while_leader(name, work).await.unwrap();
    };
    let first = leads(ours.election("office"), "host-a");
    let preferred = async {
        begun(&["host-a"]).await;
        leads(theirs.election("office").prefer(2), "host-b").await;
    };
    let operator = async {
        begun(&["host-a", "host-b"]).await;
        assert!(ours.election("office").step_down().await.unwrap());
        begun(&["host-a", "host-b", "host-a"]).await;
    };
    tokio::select! {
        () = first => unreachable!("it leads for ever"),
        () = preferred => unreachable!("it leads for ever"),
        () = operator => {}
    }
}
