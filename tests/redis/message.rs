//! Grants by message: the release that frees a lock grants it to the next in line, and the message
//! that wakes it is the grant.

use std::time::Duration;

use crate::claims::{claim, grant, is_busy, key, queued, release};
use crate::other_holder::wait_for;
use crate::server::{RedisServer, breathe, is_of_version_6};
use leasehold::clock::{Clock, Stamp};
use leasehold::redis::{RedisOptions, RedisStore};
use leasehold::store::{Claim, Grant, Hint, LockMode, Renewed, Store};

const FRESH: &str = "prefix=app&restart_quarantine=off";
const MARKER: &str = "app:{leasehold}:marker";
/// For how long a message grants.
const HANDOVER: Duration = Duration::from_millis(1_200);
/// A machine that stalls for the time of a handover lets a grant lapse. Then a test begins again.
const ROUNDS: usize = 50;
/// So many grants find one whose script began a millisecond before its end.
const MANY: usize = 400;

async fn store(server: &RedisServer) -> RedisStore {
    RedisStore::connect(&server.url(FRESH)).await.unwrap()
}

fn now() -> Stamp {
    Clock::system().unwrap().stamp()
}

/// A claim that waits, and would hear a message.
async fn waiting(store: &RedisStore, claim: Claim) -> (Claim, Hint) {
    let hint = store.subscribe(&claim).await.unwrap();
    assert!(is_busy(store, &claim).await);
    (claim, hint)
}

async fn fair(store: &RedisStore) -> (Claim, Hint) {
    waiting(store, queued("a", LockMode::Exclusive)).await
}

/// What the next message says, which has to come.
async fn woken(hint: Hint) -> Option<Grant> {
    let clock = Clock::system().unwrap();
    let woken = clock.timeout(Duration::from_secs(60), hint).await;
    woken.expect("nobody was woken")
}

/// What a server that was judged has told its clients.
fn mark(server: &RedisServer) -> String {
    server.cli(&["GET", MARKER])
}

/// What a script would say to this claim.
fn tell(server: &RedisServer, claim: &Claim, token: u64, micros: u64, mark: &str) {
    let owner = claim.owner.expose().to_string();
    let channel = format!("app:{{leasehold}}:wake:{}", &owner[24..]);
    let message = format!("{owner} {token} {micros} {mark}");
    assert_eq!(server.cli(&["PUBLISH", &channel, &message]), "1");
}

/// By the server's clock.
fn micros(server: &RedisServer) -> u64 {
    let time = server.cli(&["TIME"]);
    let mut parts = time.lines().map(|part| part.parse::<u64>().unwrap());
    parts.next().unwrap() * 1_000_000 + parts.next().unwrap()
}

#[tokio::test]
async fn the_message_that_wakes_the_next_in_line_is_its_grant() {
    let server = RedisServer::start();
    let store = store(&server).await;
    for mode in [LockMode::Exclusive, LockMode::Write] {
        let mut was_held = false;
        for _ in 0..ROUNDS {
            let held = grant(&store, &claim("a")).await;
            let before = now();
            let (next, hint) = waiting(&store, queued("a", mode)).await;
            let after = now();
            release(&store, &held).await;
            let given = woken(hint).await.expect("a grant");
            let heard = now();
            assert_eq!(given.claim, next);
            assert!(given.token > held.token);
            let since = given.proof.sent_at.expect("it counts from the request");
            assert!(since.since(&before) <= after.since(&before));
            assert!(given.proof.ttl >= HANDOVER);
            assert!(given.proof.ttl <= heard.since(&before) + HANDOVER);
            let renewed = store.renew(std::slice::from_ref(&given)).await;
            if matches!(renewed.as_slice(), [Renewed::Extended(_)]) {
                let value = server.cli(&["GET", "app:a"]);
                let token = given.token.number();
                assert!(value.starts_with(&format!("{} {token} ", next.owner.expose())));
                let record = store.inspect(&key("a")).await.unwrap().unwrap();
                assert_eq!(
                    record.label.map(|label| label.to_string()),
                    Some("a test".to_owned())
                );
                assert!(record.held_for.unwrap() <= now().since(&after) + HANDOVER);
                assert_eq!(record.mode, Some(mode));
                release(&store, &given).await;
                was_held = true;
                break;
            }
            let _ = store.withdraw(&next).await;
        }
        assert!(was_held, "it was never granted what the message said");
    }
    let left = server.cli(&["KEYS", "app:a*"]);
    assert_eq!(left, "", "nothing of the lock");
}

#[tokio::test]
async fn a_grant_by_message_ends_before_the_server_lets_another_in() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = grant(&store, &claim("a")).await;
    let (_, hint) = fair(&store).await;
    let clock = Clock::system().unwrap();
    // The proof would be too long by as much if it counted from the message, or from now.
    let apart = Duration::from_millis(300);
    clock.sleep(apart).await;
    release(&store, &held).await;
    clock.sleep(apart).await;
    let given = woken(hint).await.expect("a grant");
    while server
        .cli(&["SET", "app:a", "theirs", "NX", "PX", "5000"])
        .is_empty()
    {
        breathe().await;
    }
    let free_after = now().since(&given.proof.sent_at.unwrap());
    // The server counts whole milliseconds.
    assert!(
        free_after + Duration::from_millis(3) >= given.proof.ttl,
        "{free_after:?} {given:?}"
    );
}

/// A server that counts a TTL from the begin of its script would end it before the claim's proof
/// does, if it is stopped in between. So the end is bound to the time that the message says; by a
/// TTL it would be a millisecond later now and then.
#[tokio::test]
async fn a_grant_by_message_lasts_from_the_time_that_the_message_says() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let handover = u64::try_from(HANDOVER.as_millis()).unwrap();
    let mut granted = 0;
    for _ in 0..MANY {
        let held = grant(&store, &claim("a")).await;
        let (next, hint) = fair(&store).await;
        release(&store, &held).await;
        // A server of version 6 reports how long it lasts, and not when it ends.
        let text = "local ends = redis.pcall('PEXPIRETIME', 'app:a')
            if type(ends) == 'table' then
              local time = redis.call('TIME')
              ends = math.floor(time[1] * 1000 + time[2] / 1000) + redis.call('PTTL', 'app:a')
            end
            return {redis.call('GET', 'app:a'), ends}";
        let found = server.cli(&["EVAL", text, "0"]);
        if let Some((value, ends)) = found.split_once('\n')
            && value.starts_with(&next.owner.expose().to_string())
        {
            let granted_at = value.split(' ').nth(3).unwrap();
            let granted_at = granted_at.parse::<u64>().unwrap();
            // Two times of a server of version 6 are added up, and may differ.
            let off = ends.parse::<u64>().unwrap().abs_diff(granted_at + handover);
            assert!(off <= u64::from(is_of_version_6()), "{off}");
            granted += 1;
        }
        drop(hint);
        store.withdraw(&next).await.unwrap();
    }
    assert!(granted > MANY / 2, "{granted} grants lasted to be seen");
}

#[tokio::test]
async fn a_message_that_is_not_under_the_mark_and_after_the_request_that_was_answered_is_no_grant()
{
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = grant(&store, &claim("a")).await;
    let (mark, token) = (mark(&server), held.token.number() + 1);
    let other = format!("{mark}1");
    let early = micros(&server) - 1;
    let later = |server: &RedisServer| micros(server) + 1;
    // Shows that a test can say what a script says.
    let (claim, hint) = fair(&store).await;
    tell(&server, &claim, token, later(&server), &mark);
    assert_eq!(woken(hint).await.expect("a grant").token.number(), token);
    for (micros, mark) in [(later(&server), &other), (early, &mark)] {
        let (claim, hint) = fair(&store).await;
        tell(&server, &claim, token, micros, mark);
        assert_eq!(woken(hint).await, None, "{micros} {mark}");
    }
    // A message about an earlier grant, which lapsed.
    let (claim, _) = fair(&store).await;
    let first = later(&server);
    let hint = store.subscribe(&claim).await.unwrap();
    while micros(&server) <= first {
        breathe().await;
    }
    assert!(is_busy(&store, &claim).await);
    tell(&server, &claim, token, first, &mark);
    assert_eq!(woken(hint).await, None);
}

#[tokio::test]
async fn a_message_about_an_earlier_grant_is_no_grant_although_the_servers_clock_was_set_back() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = grant(&store, &claim("a")).await;
    let (claim, hint) = fair(&store).await;
    // The answer was before this time, and after this grant.
    let later = micros(&server) + 1;
    let mark = mark(&server);
    tell(&server, &claim, held.token.number(), later, &mark);
    assert_eq!(woken(hint).await, None);
}

#[tokio::test]
async fn a_claim_that_was_answered_with_a_grant_is_not_granted_again_by_its_message() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = grant(&store, &claim("a")).await;
    let mut plain = claim("a");
    plain.place_ttl = Duration::from_secs(60);
    let (next, hint) = waiting(&store, plain).await;
    release(&store, &held).await;
    // The message has arrived, and nobody has looked at it.
    for _ in 0..20 {
        breathe().await;
    }
    let given = wait_for(&store, &next).await;
    release(&store, &given).await;
    let other = grant(&store, &claim("a")).await;
    assert_eq!(woken(hint).await, None, "two hold");
    release(&store, &other).await;
}

#[tokio::test]
async fn a_grant_whose_message_was_lost_is_granted_again_for_its_full_time() {
    let server = RedisServer::start();
    let store = store(&server).await;
    for _ in 0..ROUNDS {
        let held = grant(&store, &claim("a")).await;
        let (next, hint) = fair(&store).await;
        drop(hint);
        release(&store, &held).await;
        let value = server.cli(&["GET", "app:a"]);
        let again = wait_for(&store, &next).await;
        let token = again.token.number().to_string();
        let is_the_same = value.split(' ').nth(1) == Some(token.as_str());
        assert!(again.token > held.token);
        assert_eq!(again.proof.ttl, next.ttl);
        release(&store, &again).await;
        if is_the_same {
            return;
        }
    }
    panic!("it was never granted the same");
}

#[tokio::test]
async fn a_claim_that_is_withdrawn_passes_on_what_a_message_granted() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let mut was_passed_on = false;
    for _ in 0..ROUNDS {
        let held = grant(&store, &claim("a")).await;
        let (next, hint) = fair(&store).await;
        let (behind, called) = fair(&store).await;
        release(&store, &held).await;
        let value = server.cli(&["GET", "app:a"]);
        store.withdraw(&next).await.unwrap();
        assert_eq!(woken(hint).await, None, "a withdrawn claim was granted");
        let is_next = server.cli(&["GET", "app:a"]);
        let last = wait_for(&store, &behind).await;
        drop(called);
        release(&store, &last).await;
        // Unless the grant lapsed before.
        let was_granted = value.starts_with(&next.owner.expose().to_string());
        if was_granted && is_next.starts_with(&behind.owner.expose().to_string()) {
            was_passed_on = true;
            break;
        }
    }
    assert!(was_passed_on);
    assert_eq!(server.cli(&["EXISTS", "app:a"]), "0");
}

#[tokio::test]
async fn a_claim_that_nobody_listens_for_costs_the_time_of_a_handover() {
    let server = RedisServer::start();
    let [store, dying] = [store(&server).await, store(&server).await];
    let held = grant(&store, &claim("a")).await;
    let (_, hint) = fair(&dying).await;
    dying.close().await.unwrap();
    drop((dying, hint));
    let (behind, _hint) = fair(&store).await;
    let begin = now();
    release(&store, &held).await;
    let held = wait_for(&store, &behind).await;
    assert!(now().since(&begin) >= HANDOVER);
    release(&store, &held).await;
}

#[tokio::test]
async fn a_server_that_has_lost_its_marker_grants_by_no_message() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = grant(&store, &claim("a")).await;
    let (next, mut hint) = fair(&store).await;
    assert_eq!(server.cli(&["DEL", MARKER]), "1");
    release(&store, &held).await;
    assert_eq!(server.cli(&["EXISTS", "app:a"]), "0");
    assert!(futures_util::poll!(&mut hint).is_pending());
    // The first request has it judged.
    assert!(wait_for(&store, &next).await.token > held.token);
}

#[tokio::test]
async fn a_user_that_may_not_publish_grants_and_the_next_in_line_asks() {
    let server = RedisServer::start();
    let rules = [
        "~app:*",
        "resetchannels",
        "&app:*",
        "+@all",
        "-publish",
        "on",
        "nopass",
    ];
    let rules: Vec<_> = ["ACL", "SETUSER", "me", "reset"]
        .into_iter()
        .chain(rules)
        .collect();
    assert_eq!(server.cli(&rules), "OK");
    let url = server.url(FRESH).replace("redis://", "redis://me:x@");
    let store = RedisStore::connect(&url).await.unwrap();
    let held = grant(&store, &claim("a")).await;
    let (next, _hint) = fair(&store).await;
    release(&store, &held).await;
    let next = wait_for(&store, &next).await;
    assert!(next.token > held.token);
    release(&store, &next).await;
    assert_eq!(server.cli(&["EXISTS", "app:a"]), "0");
}

#[tokio::test]
async fn a_server_without_memory_grants_by_message_what_it_frees() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = grant(&store, &claim("a")).await;
    let (next, hint) = fair(&store).await;
    assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", "1"]), "OK");
    release(&store, &held).await;
    let given = woken(hint).await;
    assert!(given.is_none_or(|given| given.token > held.token));
    assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", "0"]), "OK");
    assert!(wait_for(&store, &next).await.token > held.token);
}

#[tokio::test]
async fn readers_at_the_head_are_granted_by_messages_together_and_the_writer_behind_them_by_the_last()
 {
    let server = RedisServer::start();
    let store = store(&server).await;
    let mut held = grant(&store, &claim("a")).await;
    for _ in 0..ROUNDS {
        let [one, other] = [
            waiting(&store, queued("a", LockMode::Read)).await.1,
            waiting(&store, queued("a", LockMode::Read)).await.1,
        ];
        let (writer, called) = waiting(&store, queued("a", LockMode::Write)).await;
        release(&store, &held).await;
        let reads = [
            woken(one).await.expect("a grant"),
            woken(other).await.expect("a grant"),
        ];
        assert!(reads[0].token > held.token && reads[1].token > reads[0].token);
        let renewed = store.renew(&reads).await;
        let are_held = (renewed.iter()).all(|one| matches!(one, Renewed::Extended(_)));
        for read in &reads {
            drop(store.release(read).await);
        }
        let last = woken(called).await;
        held = wait_for(&store, &writer).await;
        if are_held && last.is_some_and(|last| last.token == held.token) {
            release(&store, &held).await;
            assert_eq!(server.cli(&["KEYS", "app:a*"]), "");
            return;
        }
    }
    panic!("it never held what the messages said");
}

#[tokio::test]
async fn who_asks_replicas_too_is_granted_by_no_message() {
    let server = RedisServer::start();
    let url = server.url(&format!("{FRESH}&replicas=1&replica_wait=10ms"));
    let careful = RedisStore::connect_with(RedisOptions::parse(&url).unwrap())
        .await
        .unwrap();
    let plain = store(&server).await;
    let held = grant(&plain, &claim("a")).await;
    let (_, hint) = fair(&careful).await;
    release(&plain, &held).await;
    assert_eq!(woken(hint).await, None);
}
