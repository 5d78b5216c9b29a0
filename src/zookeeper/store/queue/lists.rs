//! [`Lists`]: one list of a key's contenders answers every claim of this process that asked before
//! it was sent: "Shared lists" in the [protocol](crate::zookeeper).

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared, join};
use parking_lot::Mutex;

use super::super::session::Session;
use super::look::LookupError;
use super::names::{self, Contender};
use crate::model::room::make_room;

/// Who contends. `None`: the list failed, which says nothing about a list of another claim.
pub(super) type Listed = Option<Arc<[Contender]>>;
/// Whoever waits for it drives it, so it goes on when the claim that began it is dropped.
type List = Shared<BoxFuture<'static, Listed>>;

/// Who contends for the key at `parent`, as a list shows it that is not sent before this is first
/// polled.
pub(super) async fn shared(session: &Arc<Session>, parent: &str) -> Listed {
    let (of_all, path) = (Arc::clone(session), parent.to_owned());
    let list = async move { own(&of_all, &path).await.ok() };
    session.lists.next(parent, list).await
}

/// The same, as the leader has them when this is first polled, or later: for a claim that wrote
/// nothing before.
pub(super) async fn shared_synced(session: &Arc<Session>, parent: &str) -> Listed {
    let (of_all, path) = (Arc::clone(session), parent.to_owned());
    let list = async move { synced(&of_all, &path).await.ok() };
    // No key's node has a name like this.
    session.lists.next(&format!("{parent}/"), list).await
}

/// What was listed, or a list of this claim alone if that failed.
pub(super) async fn or_own(
    listed: Listed,
    session: &Session,
    parent: &str,
) -> Result<Arc<[Contender]>, LookupError> {
    match listed {
        Some(contenders) => Ok(contenders),
        None => synced(session, parent).await,
    }
}

async fn synced(session: &Session, parent: &str) -> Result<Arc<[Contender]>, LookupError> {
    let (synced, listed) = join(session.sync(parent), own(session, parent)).await;
    synced?;
    listed
}

async fn own(session: &Session, parent: &str) -> Result<Arc<[Contender]>, LookupError> {
    let children = session.children_if_there(parent).await?;
    Ok(names::contenders(children)?.into())
}

/// The newest list of each key. Nobody waits for those that are gone.
#[derive(Debug, Default)]
pub(crate) struct Lists(Mutex<HashMap<String, Newest>>);

#[derive(Debug)]
struct Newest {
    list: WeakShared<BoxFuture<'static, Listed>>,
    /// Set before it is sent.
    has_begun: Arc<Mutex<bool>>,
}

impl Lists {
    /// A list of the key at `parent` that is not sent before this call. `list` sends one when it is
    /// first polled.
    pub(crate) fn next(
        &self,
        parent: &str,
        list: impl Future<Output = Listed> + Send + 'static,
    ) -> List {
        let mut all = self.0.lock();
        let before = all.get(parent).and_then(Newest::alive);
        if let Some((list, false)) = before {
            return list;
        }
        make_room(&mut all, |newest| newest.alive().is_some());
        let has_begun = Arc::new(Mutex::new(false));
        let begun = Arc::clone(&has_begun);
        let list = async move {
            if let Some((before, _)) = before {
                before.await;
            }
            *begun.lock() = true;
            list.await
        };
        let list = list.boxed().shared();
        if let Some(weak) = list.downgrade() {
            let newest = Newest {
                list: weak,
                has_begun,
            };
            all.insert(parent.to_owned(), newest);
        }
        list
    }
}

impl Newest {
    /// The list, if somebody waits for it, and whether it has begun.
    fn alive(&self) -> Option<(List, bool)> {
        // In this order: a list that has not begun by now shows what was sent until now.
        let list = self.list.upgrade()?;
        let has_begun = *self.has_begun.lock();
        Some((list, has_begun))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::{FutureExt, join_all};
    use tokio::sync::oneshot;

    use super::super::names::contenders;
    use super::*;

    /// Servers that answer each list when the test says so.
    #[derive(Clone, Default)]
    struct HeldLists {
        lists: Arc<Lists>,
        /// Those that were sent.
        sent: Arc<Mutex<Vec<oneshot::Sender<Listed>>>>,
    }

    impl HeldLists {
        fn list(&self) -> List {
            let sent = Arc::clone(&self.sent);
            self.lists.next("/k", async move {
                let (answer, answered) = oneshot::channel();
                sent.lock().push(answer);
                answered.await.unwrap()
            })
        }

        fn sent(&self) -> usize {
            self.sent.lock().len()
        }

        /// Answers the list that was sent as the `n`th, with one contender that has this number.
        fn answer(&self, n: usize) {
            let (closed, _) = oneshot::channel();
            let answer = std::mem::replace(&mut self.sent.lock()[n], closed);
            answer.send(Some(listed(n))).unwrap();
        }
    }

    fn listed(n: usize) -> Arc<[Contender]> {
        let all = contenders(vec![format!("_c_a-lock-{n:010}")]).unwrap();
        all.into()
    }

    #[test]
    fn a_list_answers_those_that_asked_before_it_was_sent_and_no_other() {
        let servers = HeldLists::default();
        let mut first = servers.list();
        assert!((&mut first).now_or_never().is_none());
        let mut late: Vec<_> = (0..1_000).map(|_| servers.list()).collect();
        for list in &mut late {
            assert!(list.now_or_never().is_none());
        }
        assert_eq!(servers.sent(), 1, "one is in flight");
        servers.answer(0);
        assert_eq!(first.now_or_never(), Some(Some(listed(0))));
        assert!((&mut late[7]).now_or_never().is_none());
        let mut latest = servers.list();
        assert!((&mut latest).now_or_never().is_none());
        assert_eq!(servers.sent(), 2, "those that asked meanwhile share one");
        servers.answer(1);
        for answered in join_all(late).now_or_never().unwrap() {
            assert_eq!(answered, Some(listed(1)));
        }
        assert!((&mut latest).now_or_never().is_none());
        servers.answer(2);
        assert_eq!(latest.now_or_never(), Some(Some(listed(2))));
        assert_eq!(servers.sent(), 3);
    }

    #[test]
    fn a_list_whose_first_asker_is_dropped_answers_the_others() {
        for is_sent in [false, true] {
            let servers = HeldLists::default();
            let mut before = servers.list();
            assert!((&mut before).now_or_never().is_none());
            let (mut first, mut other) = (servers.list(), servers.list());
            assert!((&mut first).now_or_never().is_none());
            assert!((&mut other).now_or_never().is_none());
            // Whoever waits for the one in flight may be gone too.
            drop(before);
            servers.answer(0);
            if is_sent {
                assert!((&mut first).now_or_never().is_none());
                assert_eq!(servers.sent(), 2);
            }
            drop(first);
            assert!((&mut other).now_or_never().is_none());
            servers.answer(1);
            assert_eq!(other.now_or_never(), Some(Some(listed(1))));
        }
    }

    #[test]
    fn a_list_that_nobody_waits_for_delays_nobody_and_keys_are_forgotten() {
        let servers = HeldLists::default();
        let mut dropped = servers.list();
        assert!((&mut dropped).now_or_never().is_none());
        drop(dropped);
        let mut next = servers.list();
        assert!((&mut next).now_or_never().is_none());
        assert_eq!(servers.sent(), 2);
        for n in 0..1_000 {
            drop(servers.lists.next(&format!("/{n}"), async { None }));
        }
        assert!(servers.lists.0.lock().len() < 10);
    }
}
