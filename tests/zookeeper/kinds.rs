//! Readers and writers in one queue on a real ZooKeeper: how they are laid out, and what a writer
//! that becomes a reader leaves.

use crate::zookeeper::{
    Server, children, claim, claim_in, granted, is_busy, raw, renewed, simple_store, store,
    wait_for,
};
use leasehold::ErrorKind;
use leasehold::store::{LockMode, Released, Renewed, Store};
use zookeeper_client::{Acls, Client, CreateMode};

/// What another library's client writes. Gives the path.
async fn foreign(client: &Client, prefix: &str) -> String {
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let (_, sequence) = client.create(prefix, b"10.0.0.7", &options).await.unwrap();
    format!("{prefix}{sequence}")
}

#[tokio::test]
async fn nodes_are_named_as_curator_names_them() {
    let server = Server::shared();
    let store = store(&server, "/rw-names").await;
    let client = raw(&server).await;
    for (mode, suffix) in [
        (LockMode::Exclusive, "-lock-"),
        (LockMode::Read, "-__READ__"),
        (LockMode::Write, "-__WRIT__"),
    ] {
        let grant = granted(&store, &claim_in(mode, "k")).await;
        let name = children(&client, "/rw-names/k").await.remove(0);
        let rest = name.strip_prefix("_c_").unwrap();
        let (guid, rest) = rest.split_at(36);
        assert!(guid.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit()));
        let digits = rest.strip_prefix(suffix).unwrap();
        assert!(digits.len() == 10 && digits.bytes().all(|b| b.is_ascii_digit()));
        assert!(matches!(store.release(&grant).await, Released::Released));
    }
}

#[tokio::test]
async fn a_reader_of_another_library_lets_readers_in_and_keeps_the_others_out() {
    let server = Server::shared();
    let store = store(&server, "/rw-java").await;
    let client = raw(&server).await;
    let first = granted(&store, &claim_in(LockMode::Read, "k")).await;
    let path = foreign(&client, "/rw-java/k/_c_java-__READ__").await;
    let reader = granted(&store, &claim_in(LockMode::Read, "k")).await;
    assert!(matches!(store.release(&first).await, Released::Released));
    let (writer, alone) = (claim_in(LockMode::Write, "k"), claim("k"));
    assert!(is_busy(&store, &writer).await);
    assert!(is_busy(&store, &alone).await);
    assert!(matches!(store.release(&reader).await, Released::Released));
    assert!(is_busy(&store, &writer).await);
    client.delete(&path, None).await.unwrap();
    let held = wait_for(&store, &writer).await;
    assert!(is_busy(&store, &alone).await);
    assert!(matches!(store.release(&held).await, Released::Released));
    let _held = wait_for(&store, &alone).await;
}

#[tokio::test]
async fn a_reader_waits_for_every_node_before_it_that_does_not_say_that_it_reads() {
    let server = Server::shared();
    let store = store(&server, "/rw-foreign").await;
    let client = raw(&server).await;
    let grant = granted(&store, &claim("k")).await;
    assert!(matches!(store.release(&grant).await, Released::Released));
    for name in ["_c_java-__WRIT__", "_c_java-lock-", "guid__lock__", "x-"] {
        let path = foreign(&client, &format!("/rw-foreign/k/{name}")).await;
        let reader = claim_in(LockMode::Read, "k");
        assert!(is_busy(&store, &reader).await, "{name}");
        client.delete(&path, None).await.unwrap();
        let grant = wait_for(&store, &reader).await;
        assert!(matches!(store.release(&grant).await, Released::Released));
    }
}

#[tokio::test]
async fn a_writer_that_becomes_a_reader_keeps_its_node_and_wakes_the_readers_behind_it() {
    let server = Server::shared();
    let (a, b) = (
        store(&server, "/rw-down").await,
        store(&server, "/rw-down").await,
    );
    let client = raw(&server).await;
    let held = granted(&a, &claim_in(LockMode::Write, "k")).await;
    let node = children(&client, "/rw-down/k").await;
    let (reader, writer, late) = (
        claim_in(LockMode::Read, "k"),
        claim_in(LockMode::Write, "k"),
        claim_in(LockMode::Read, "k"),
    );
    assert!(is_busy(&b, &reader).await);
    assert!(is_busy(&b, &writer).await);
    assert!(is_busy(&b, &late).await);
    let hint = b.subscribe(&reader).await.unwrap();

    let read = a.downgrade(&held).await.unwrap();
    assert_eq!((read.claim.mode, read.token), (LockMode::Read, held.token));
    hint.await;
    let beside = granted(&b, &reader).await;
    assert!(is_busy(&b, &writer).await);
    assert!(is_busy(&b, &late).await);
    assert!(children(&client, "/rw-down/k").await.contains(&node[0]));
    assert!(matches!(renewed(&a, &held).await, Renewed::Extended(_)));
    assert!(matches!(renewed(&a, &read).await, Renewed::Extended(_)));

    let reported = b.inspect(&read.claim.key).await.unwrap().unwrap();
    assert_eq!(
        (reported.mode, reported.holders, reported.queue),
        (Some(LockMode::Read), 2, Some(2))
    );
    assert_eq!(reported.token, Some(beside.token));
    // One end after the other; whoever is left keeps the writer out.
    assert!(matches!(b.release(&beside).await, Released::Released));
    assert!(is_busy(&b, &writer).await);
    let reported = b.inspect(&read.claim.key).await.unwrap().unwrap();
    assert_eq!(
        (reported.mode, reported.token),
        (Some(LockMode::Read), Some(held.token))
    );
    assert!(matches!(a.release(&read).await, Released::Released));
    let written = wait_for(&b, &writer).await;
    assert!(written.token > held.token);
}

#[tokio::test]
async fn a_look_at_a_key_reports_how_and_by_how_many_it_is_held_and_how_many_wait() {
    let server = Server::shared();
    let store = store(&server, "/rw-info").await;
    let _one = granted(&store, &claim_in(LockMode::Read, "reads")).await;
    let last = granted(&store, &claim_in(LockMode::Read, "reads")).await;
    assert!(is_busy(&store, &claim_in(LockMode::Write, "reads")).await);
    assert!(is_busy(&store, &claim_in(LockMode::Read, "reads")).await);
    let writes = granted(&store, &claim_in(LockMode::Write, "writes")).await;
    assert!(is_busy(&store, &claim_in(LockMode::Read, "writes")).await);
    let alone = granted(&store, &claim("alone")).await;
    let reported: Vec<_> = store.list("").await.unwrap();
    let reported: Vec<_> = (reported.iter())
        .map(|r| (r.key.as_str(), r.mode, r.holders, r.queue, r.token))
        .collect();
    let expected = [
        (
            "alone",
            Some(LockMode::Exclusive),
            1,
            Some(0),
            Some(alone.token),
        ),
        ("reads", Some(LockMode::Read), 2, Some(2), Some(last.token)),
        (
            "writes",
            Some(LockMode::Write),
            1,
            Some(1),
            Some(writes.token),
        ),
    ];
    assert_eq!(reported, expected);
}

#[tokio::test]
async fn the_simple_lock_refuses_to_read_and_write() {
    let server = Server::shared();
    let store = simple_store(&server, "/rw-simple").await;
    for mode in [LockMode::Read, LockMode::Write] {
        let error = store.acquire(&claim_in(mode, "k")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
    assert!(!store.capability().read_write);
}
