//! Bars: nodes that keep everybody out of a key until the lease of a hold that was taken away has surely ended.
//!
//! A bar stands in the queue where the holder stood, under the holder's own number, so that whoever waited for the holder waits
//! for it, other libraries' clients too. It stays when the session of who made it ends: an operator's process often does at once.
//! Its data tell for how long it stands, and nobody's wall clock has a say in it. Each client that meets a bar counts the whole
//! time on its own clock from its *first sight*, which is after the hold was taken away, and whoever is through first deletes it.
//! So a bar may stand for longer than it says, and never for less.
//!
//! Who made a bar counts as well, and so does who held the lock, when a heartbeat finds the hold gone. If both of them are gone
//! and nobody of ours waits, the bar stays, and clients of other libraries wait: [`Revoke::Now`](crate::store::Revoke::Now) lifts it.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::client::ZooKeeperClient;
use super::drivers::Fault;
use super::queue::claim_state::ClaimState;
use super::queue::look::LookupError;
use super::queue::names::{self, Contender};
use super::queue::node_data::NodeData;
use super::queue::order;
use super::session::Session;
use crate::clock::Stamp;

/// The pause before a bar is deleted once more, after a try that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Until when this process keeps to the bars that it has met.
#[derive(Debug, Default)]
pub(crate) struct Barriers {
    seen: Mutex<HashMap<String, RevocationBarrier>>,
    has_more: Notify,
}

#[derive(Clone, Copy, Debug)]
struct RevocationBarrier {
    ends: Stamp,
    is_ours: bool,
}

impl Barriers {
    /// We made this bar, not later than `now`.
    pub(crate) fn made(&self, path: String, length: Duration, now: &Stamp) {
        let ends = now.plus(length);
        let is_ours = true;
        self.seen
            .lock()
            .insert(path, RevocationBarrier { ends, is_ours });
        self.has_more.notify_one();
    }

    /// Somebody's bar was seen at `now`. What is left of it: the count begins only once.
    fn see(&self, path: &str, length: Duration, now: &Stamp) -> Duration {
        let mut seen = self.seen.lock();
        let bar = seen
            .entry(path.to_owned())
            .or_insert_with(|| RevocationBarrier {
                ends: now.plus(length),
                is_ours: false,
            });
        let left = bar.ends.since(now);
        drop(seen);
        self.has_more.notify_one();
        left
    }

    fn left(&self, path: &str, now: &Stamp) -> Option<Duration> {
        self.seen.lock().get(path).map(|bar| bar.ends.since(now))
    }

    pub(crate) fn forget(&self, path: &str) {
        self.seen.lock().remove(path);
    }

    fn over(&self, now: &Stamp) -> Vec<String> {
        let seen = self.seen.lock();
        let over = seen.iter().filter(|(_, bar)| bar.ends.since(now).is_zero());
        over.map(|(path, _)| path.clone()).collect()
    }

    fn put_off(&self, path: &str, until: Stamp) {
        if let Some(bar) = self.seen.lock().get_mut(path) {
            bar.ends = until;
        }
    }

    /// How long until a bar is to be deleted.
    pub(crate) fn next(&self, now: &Stamp) -> Option<Duration> {
        let seen = self.seen.lock();
        seen.values().map(|bar| bar.ends.since(now)).min()
    }

    /// How long until the last of those that we made is to be deleted.
    pub(crate) fn ours(&self, now: &Stamp) -> Option<Duration> {
        let seen = self.seen.lock();
        let ours = seen.values().filter(|bar| bar.is_ours);
        ours.map(|bar| bar.ends.since(now)).max()
    }

    /// Completes when a bar was added.
    pub(crate) async fn more(&self) {
        self.has_more.notified().await;
    }
}

/// How long these bars of a key still stand, at the least.
pub(super) async fn left(
    client: &ZooKeeperClient,
    session: &Session,
    parent: &str,
    barriers: &[Contender],
) -> Result<Duration, Fault> {
    let each = barriers.iter().map(|bar| async move {
        let path = format!("{parent}/{}", bar.name);
        if let Some(left) = client.barriers.left(&path, &client.clock.stamp()) {
            return Ok(left);
        }
        match session.driver.read(&path).await {
            Ok(node) => {
                // Without a word, as long as one of ours would be.
                let length = NodeData::decode(&node.data).ttl.unwrap_or(session.ttl);
                Ok(client.barriers.see(&path, length, &client.clock.stamp()))
            }
            Err(Fault::NoNode) => Ok(Duration::ZERO),
            Err(other) => Err(other),
        }
    });
    let left: Result<Vec<_>, _> = join_all(each).await.into_iter().collect();
    Ok(left?.into_iter().max().unwrap_or_default())
}

/// How long the bars that are before everybody stand, if there are any.
pub(crate) async fn barred_for(
    client: &ZooKeeperClient,
    session: &Session,
    state: &ClaimState,
    contenders: &[Contender],
) -> Result<Option<Duration>, LookupError> {
    let barriers = order::barriers(contenders);
    if barriers.is_empty() {
        return Ok(None);
    }
    let left = left(client, session, &state.parent, barriers).await;
    let left = left.map_err(|f| LookupError::of(f, "look at a bar"))?;
    Ok((!left.is_zero()).then_some(left))
}

/// Looks for bars of a key, so that they are counted from here too. A convenience: others count them as well.
pub(super) async fn notice(client: &ZooKeeperClient, session: &Session, parent: &str) {
    let Ok(children) = session.driver.children(parent).await else {
        return;
    };
    if let Ok(contenders) = names::contenders(children) {
        let _ = left(client, session, parent, order::barriers(&contenders)).await;
    }
}

/// Deletes the bars whose time is over.
pub(super) async fn sweep(client: &ZooKeeperClient, session: &Session) {
    for path in client.barriers.over(&client.clock.stamp()) {
        match session.driver.delete(&path, None).await {
            Ok(()) | Err(Fault::NoNode) => client.barriers.forget(&path),
            Err(error) => {
                tracing::warn!(?error, %path, "a bar in zookeeper could not be deleted yet");
                client
                    .barriers
                    .put_off(&path, client.clock.stamp().plus(PAUSE));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn at(secs: u64) -> Stamp {
        Stamp::from_nanos([(1_000 + secs) * 1_000_000_000; 3])
    }

    #[test]
    fn a_bar_is_counted_in_full_from_its_first_sight() {
        let barriers = Barriers::default();
        assert_eq!(barriers.see("a", TTL, &at(0)), TTL);
        assert_eq!(barriers.see("a", TTL, &at(4)), TTL - Duration::from_secs(4));
        assert_eq!(barriers.over(&at(9)), [""; 0]);
        assert_eq!(barriers.over(&at(10)), ["a"]);
        barriers.forget("a");
        assert_eq!(barriers.next(&at(10)), None);
        assert_eq!(barriers.see("a", TTL, &at(10)), TTL);
    }

    #[test]
    fn only_what_we_made_is_ours() {
        let barriers = Barriers::default();
        barriers.see("theirs", 2 * TTL, &at(0));
        assert_eq!(barriers.ours(&at(0)), None);
        barriers.made("ours".to_owned(), TTL, &at(0));
        assert_eq!(barriers.ours(&at(1)), Some(TTL - Duration::from_secs(1)));
        assert_eq!(barriers.next(&at(20)), Some(Duration::ZERO));
    }
}
