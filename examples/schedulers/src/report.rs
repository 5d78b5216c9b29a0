//! What the reports of all hosts come to.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc::UnboundedReceiver;

/// Until three fire times are done, none of them twice.
pub(crate) async fn three_without_a_second(mut done: UnboundedReceiver<SystemTime>) {
    let mut seen = BTreeSet::new();
    while seen.len() < 3 {
        let fire_time = done.recv().await.expect("a host goes on");
        let second = fire_time
            .duration_since(UNIX_EPOCH)
            .map(|since| since.as_secs());
        println!("{second:?}: done");
        assert!(seen.insert(fire_time), "{second:?} was done twice");
    }
}
