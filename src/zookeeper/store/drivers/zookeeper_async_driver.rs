//! The second driver, over the crate `zookeeper-async`.
//!
//! The owner of our own node names the session and is compared at every heartbeat, because the
//! client hides that its session ended and another began.
//!
//! It has no `multi`, no `sync` and no container nodes: a heartbeat writes the session's own node
//! and then reads each held one; a write replaces `sync`; nodes of old keys stay. It does not learn
//! the negotiated time-out and uses the configured one.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, select};
use tokio::sync::oneshot;
use zookeeper_async::{Acl, CreateMode, Permission};

use super::super::acl::AclEntry;
use super::super::options::ZooKeeperOptions;
use super::driver::{Change, Driver, Fault, Kind, LeaderTime, Made, Missing, Node, Refused};
use super::isolated_client::IsolatedClient;
use crate::clock::Clock;
use crate::model::error::Error;

/// One session of `zookeeper-async`.
pub(crate) struct ZooKeeperAsyncDriver {
    client: IsolatedClient,
    timeout: Duration,
    session: OnceLock<i64>,
    acls: Vec<Acl>,
}

impl ZooKeeperAsyncDriver {
    /// Opens a session on a new runtime.
    pub(crate) async fn connect(options: &ZooKeeperOptions, clock: &Clock) -> Result<Self, Fault> {
        Ok(Self {
            client: IsolatedClient::connect(options, clock).await?,
            timeout: options.session_timeout,
            session: OnceLock::new(),
            acls: options.acl_entries().iter().map(acl).collect(),
        })
    }
}

impl Driver for ZooKeeperAsyncDriver {
    fn session(&self) -> Option<i64> {
        self.session.get().copied()
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn connected(&self) -> BoxFuture<'_, Result<(), Fault>> {
        let is_over = self.client.life.is_over();
        Box::pin(std::future::ready(if is_over {
            Err(Fault::Expired)
        } else {
            Ok(())
        }))
    }

    fn ended(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.client.life.over())
    }

    fn refused(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.client.refusals.next())
    }

    fn log_in<'a>(&'a self, digest: &'a str) -> BoxFuture<'a, Result<(), Fault>> {
        let login = digest.as_bytes().to_vec();
        (self.client)
            .ask(move |client| Box::pin(async move { client.add_auth("digest", login).await }))
    }

    fn create<'a>(
        &'a self,
        path: &'a str,
        data: &'a [u8],
        kind: Kind,
    ) -> BoxFuture<'a, Result<Made, Fault>> {
        let mode = match kind {
            Kind::Container => CreateMode::Persistent,
            Kind::Ephemeral => CreateMode::Ephemeral,
            Kind::Sequential => CreateMode::EphemeralSequential,
        };
        let (asked, data, acls) = (path.to_owned(), data.to_owned(), self.acls.clone());
        Box::pin(async move {
            let create = self.client.ask(move |client| {
                Box::pin(async move { client.create2(&asked, data, acls, mode).await })
            });
            let (made, stat) = create.await?;
            // The owner of the first ephemeral node is the session's id; every later one must have
            // the same.
            if kind != Kind::Container
                && *self.session.get_or_init(|| stat.ephemeral_owner) != stat.ephemeral_owner
            {
                self.client.life.end();
                return Err(Fault::InDoubt("the session was replaced by another".into()));
            }
            let sequence = made
                .strip_prefix(path)
                .and_then(|digits| digits.parse().ok());
            Ok(Made {
                sequence: sequence.unwrap_or(-1),
                czxid: stat.czxid,
                owner: stat.ephemeral_owner,
                made_at: LeaderTime(stat.ctime),
            })
        })
    }

    fn delete<'a>(
        &'a self,
        path: &'a str,
        version: Option<i32>,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        let path = path.to_owned();
        self.client
            .ask(move |client| Box::pin(async move { client.delete(&path, version).await }))
    }

    fn children<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Vec<String>, Fault>> {
        let path = path.to_owned();
        self.client
            .ask(move |client| Box::pin(async move { client.get_children(&path, false).await }))
    }

    fn read<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Node, Fault>> {
        let path = path.to_owned();
        self.client.ask(move |client| {
            Box::pin(async move {
                let (data, stat) = client.get_data(&path, false).await?;
                Ok(Node {
                    data,
                    czxid: stat.czxid,
                    owner: stat.ephemeral_owner,
                    version: stat.version,
                    made_at: LeaderTime(stat.ctime),
                })
            })
        })
    }

    fn write<'a>(&'a self, path: &'a str, data: &'a [u8]) -> BoxFuture<'a, Result<(), Fault>> {
        let (path, data) = (path.to_owned(), data.to_owned());
        self.client.ask(move |client| {
            Box::pin(async move { client.set_data(&path, data, None).await.map(drop) })
        })
    }

    fn watch<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<BoxFuture<'static, ()>, Fault>> {
        let (path, life) = (path.to_owned(), self.client.life.clone());
        Box::pin(async move {
            let (changed, has_changed) = oneshot::channel();
            let watching = self.client.ask(move |client| {
                Box::pin(async move {
                    let changed = move |_| {
                        // The waiting caller may be gone. A panic here would kill the client.
                        let _ = changed.send(());
                    };
                    client.get_data_w(&path, changed).await
                })
            });
            watching.await?;
            let over = async move { life.over().await };
            Ok(select(has_changed, Box::pin(over)).map(drop).boxed())
        })
    }

    /// A write through the quorum: once it is answered, the server that answered has seen all that
    /// came before it.
    fn sync<'a>(&'a self, own: &'a str, _path: &'a str) -> BoxFuture<'a, Result<(), Fault>> {
        let own = own.to_owned();
        self.client.ask(move |client| {
            Box::pin(async move { client.set_data(&own, Vec::new(), None).await.map(drop) })
        })
    }

    /// The held nodes are read after the write, on the same session: a node that exists then
    /// existed during the write.
    fn beat<'a>(
        &'a self,
        own: &'a str,
        held: &'a [String],
    ) -> BoxFuture<'a, Result<LeaderTime, Missing>> {
        let (own, held) = (own.to_owned(), held.to_vec());
        Box::pin(async move {
            let beat = self.client.ask(move |client| {
                Box::pin(async move {
                    let stat = client.set_data(&own, Vec::new(), None).await?;
                    for path in held {
                        if client.exists(&path, false).await?.is_none() {
                            return Ok((stat, false));
                        }
                    }
                    Ok((stat, true))
                })
            });
            match beat.await {
                Ok((stat, _)) if self.session() != Some(stat.ephemeral_owner) => {
                    self.client.life.end();
                    Err(Missing::Fault(Fault::Expired))
                }
                Ok((stat, true)) => Ok(LeaderTime(stat.mtime)),
                Ok((_, false)) => Err(Missing::Held),
                // Our own node is gone, and this client cannot say whether its session is too.
                Err(Fault::NoNode) => {
                    self.client.life.end();
                    Err(Missing::Fault(Fault::Expired))
                }
                Err(other) => Err(Missing::Fault(other)),
            }
        })
    }

    /// It has no `multi`.
    fn change<'a>(&'a self, _changes: &'a [Change]) -> BoxFuture<'a, Result<(), Refused>> {
        let error = Error::unsupported(
            "the driver zookeeper-async cannot write under a fence; use the driver zookeeper-client",
        );
        Box::pin(std::future::ready(Err(Refused::NotSent(error))))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.client.close())
    }
}

impl fmt::Debug for ZooKeeperAsyncDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeperAsyncDriver")
            .field("life", &self.client.life)
            .finish_non_exhaustive()
    }
}

fn acl(entry: &AclEntry) -> Acl {
    let bits = [
        Permission::READ,
        Permission::WRITE,
        Permission::CREATE,
        Permission::DELETE,
        Permission::ADMIN,
    ];
    let granted = entry.granted(bits, Permission::NONE);
    Acl::new(granted, &entry.scheme, &entry.id)
}
