//! Many short holds of few keys, so that their files come and go: who held when, by a log that is
//! written within the hold.

use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;

use leasehold::store::{FileStore, Released, Store};

use crate::place::{Place, open, try_once, wait, worker};

const PROCESSES: usize = 4;
const HOLDS: usize = 1500;
const KEYS: [&str; 2] = ["a", "b"];

/// No holder ever lapses: the TTL is longer than the test.
pub(crate) fn take_and_release(url: &str, log: &str) {
    let store: FileStore = open(url);
    let mut options = std::fs::OpenOptions::new();
    let mut log = options.append(true).create(true).open(log).unwrap();
    let mut held = 0;
    while held < HOLDS {
        for key in KEYS {
            let Some(grant) = try_once(&store, key, Duration::from_secs(1000)) else {
                continue;
            };
            // One write, so that the lines are in the order of the holds.
            let line = format!("{key} {}\n", grant.token);
            log.write_all(line.as_bytes()).unwrap();
            held += 1;
            let released = wait(store.release(&grant));
            assert!(matches!(released, Released::Released), "{released:?}");
        }
    }
}

pub(crate) fn tokens_grow_while_files_come_and_go() {
    let place = Place::new();
    drop(place.store());
    let log = place.path("log");
    let mut processes: Vec<_> = (0..PROCESSES)
        .map(|_| worker(&["tokens", &place.url(""), &log]).spawn().unwrap())
        .collect();
    for process in &mut processes {
        assert!(process.wait().unwrap().success());
    }
    let text = std::fs::read_to_string(&log).unwrap();
    let mut largest: HashMap<&str, u64> = HashMap::new();
    let mut holds = 0;
    for line in text.lines() {
        let (key, token) = line.split_once(' ').unwrap();
        let token = token.parse().unwrap();
        let before = largest.insert(key, token).unwrap_or(0);
        assert!(token > before, "{key}: {token} after {before}");
        holds += 1;
    }
    assert!(holds >= PROCESSES * HOLDS);
    assert_eq!(wait(place.store().list("")).unwrap().len(), 0);
}
