//! The default driver, over the crate `zookeeper-client`.

use std::future::Future;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::RwLock;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;
use zookeeper_client::{
    Acl, Acls, AuthId, Client, CreateMode, Error as Zk, MultiWriteError, MultiWriteResult,
    Permission, SessionState, StateWatcher,
};

use super::super::acl::AclEntry;
use super::super::options::{ZooKeeperOptions, digest};
use super::driver::{
    Change, Driver, Ending, Fault, Kind, LeaderTime, Made, Missing, Node, Refusals, Refused,
};

/// One session of `zookeeper-client`.
#[derive(Debug)]
pub(crate) struct ClientDriver {
    /// `None` once it was closed. The session ends when the last clone is dropped, so no clone is
    /// kept elsewhere.
    client: RwLock<Option<Client>>,
    states: StateWatcher,
    session: i64,
    timeout: Duration,
    acls: Vec<Acl>,
    runtime: Handle,
    refusals: Refusals,
}

impl ClientDriver {
    /// Opens a session. Its connection runs on the runtime of the caller.
    pub(crate) async fn connect(options: &ZooKeeperOptions, ending: Ending) -> Result<Self, Fault> {
        let mut connector = Client::connector().with_session_timeout(options.session_timeout);
        if let Some(credentials) = &options.credentials {
            connector = connector.with_auth("digest", digest(credentials).as_bytes());
        }
        if ending == Ending::LeftToTimeOut {
            connector = connector.with_detached();
        }
        let client = connector.connect(&options.servers).await.map_err(fault)?;
        Ok(Self {
            states: client.state_watcher(),
            session: client.session_id().0,
            timeout: client.session_timeout(),
            client: RwLock::new(Some(client)),
            acls: options.acl_entries().iter().map(acl).collect(),
            runtime: Handle::current(),
            refusals: Refusals::of(&options.login),
        })
    }

    /// Sends a request when first polled.
    fn ask<'a, T, F, A>(&'a self, ask: A) -> BoxFuture<'a, Result<T, Fault>>
    where
        A: FnOnce(Client) -> F + Send + 'a,
        F: Future<Output = Result<T, Zk>> + Send + 'a,
        T: Send,
    {
        Box::pin(async move {
            let client = self.client.read().clone().ok_or(Fault::Expired)?;
            ask(client).await.map_err(|error| self.fault(error))
        })
    }

    fn fault(&self, error: Zk) -> Fault {
        self.refusals.note(fault(error))
    }
}

impl Driver for ClientDriver {
    fn session(&self) -> Option<i64> {
        Some(self.session)
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn connected(&self) -> BoxFuture<'_, Result<(), Fault>> {
        let mut states = self.states.clone();
        Box::pin(async move {
            let mut state = states.state();
            loop {
                match state {
                    SessionState::SyncConnected => return Ok(()),
                    state if state.is_terminated() => return Err(Fault::Expired),
                    _ => state = states.changed().await,
                }
            }
        })
    }

    fn ended(&self) -> BoxFuture<'_, ()> {
        let mut states = self.states.clone();
        Box::pin(async move {
            let mut state = states.state();
            while !state.is_terminated() {
                state = states.changed().await;
            }
        })
    }

    fn refused(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.refusals.next())
    }

    fn log_in<'a>(&'a self, digest: &'a str) -> BoxFuture<'a, Result<(), Fault>> {
        self.ask(move |client| async move { client.auth("digest", digest.as_bytes()).await })
    }

    fn create<'a>(
        &'a self,
        path: &'a str,
        data: &'a [u8],
        kind: Kind,
    ) -> BoxFuture<'a, Result<Made, Fault>> {
        let mode = match kind {
            Kind::Container => CreateMode::Container,
            Kind::Ephemeral => CreateMode::Ephemeral,
            Kind::Sequential => CreateMode::EphemeralSequential,
        };
        let options = mode.with_acls(Acls::new(&self.acls));
        self.ask(move |client| async move {
            let (stat, sequence) = client.create(path, data, &options).await?;
            Ok(Made {
                sequence: sequence.into_i64(),
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
        self.ask(move |client| async move { client.delete(path, version).await })
    }

    fn children<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Vec<String>, Fault>> {
        self.ask(move |client| async move { client.list_children(path).await })
    }

    fn read<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Node, Fault>> {
        self.ask(move |client| async move {
            let (data, stat) = client.get_data(path).await?;
            Ok(Node {
                data,
                czxid: stat.czxid,
                owner: stat.ephemeral_owner,
                version: stat.version,
                made_at: LeaderTime(stat.ctime),
            })
        })
    }

    fn write<'a>(&'a self, path: &'a str, data: &'a [u8]) -> BoxFuture<'a, Result<(), Fault>> {
        self.ask(move |client| async move { client.set_data(path, data, None).await.map(drop) })
    }

    fn watch<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<BoxFuture<'static, ()>, Fault>> {
        self.ask(move |client| async move {
            // Not `exists`: on a node that is gone it would leave a watch that nothing ever
            // resolves.
            let (_, _, watcher) = client.get_and_watch_data(path).await?;
            // On the connection's own runtime: a watcher that outlives its connection's task panics
            // when it is polled.
            let changed = self.runtime.spawn(watcher.changed().map(drop));
            Ok(AbortOnDropHandle::new(changed).map(drop).boxed())
        })
    }

    fn sync<'a>(&'a self, _own: &'a str, path: &'a str) -> BoxFuture<'a, Result<(), Fault>> {
        self.ask(move |client| async move { client.sync(path).await })
    }

    fn beat<'a>(
        &'a self,
        own: &'a str,
        held: &'a [String],
    ) -> BoxFuture<'a, Result<LeaderTime, Missing>> {
        Box::pin(async move {
            let client = (self.client.read().clone()).ok_or(Missing::Fault(Fault::Expired))?;
            let mut multi = client.new_multi_writer();
            let mut add = || {
                multi.add_set_data(own, b"", None)?;
                (held.iter()).try_for_each(|path| multi.add_check_version(path, ANY_VERSION))
            };
            add().map_err(|e| Missing::Fault(self.fault(e)))?;
            match multi.commit().await {
                Ok(done) => match done.first() {
                    Some(MultiWriteResult::SetData { stat }) => Ok(LeaderTime(stat.mtime)),
                    _ => Err(Missing::Fault(Fault::InDoubt(
                        "a heartbeat was answered with something else".into(),
                    ))),
                },
                Err(MultiWriteError::OperationFailed {
                    index: 0,
                    source: Zk::NoNode,
                }) => Err(Missing::Own),
                Err(MultiWriteError::OperationFailed {
                    source: Zk::NoNode, ..
                }) => Err(Missing::Held),
                Err(MultiWriteError::OperationFailed { source, .. }) => {
                    Err(Missing::Fault(self.fault(source)))
                }
                Err(other) => Err(Missing::Fault(self.fault(other.into()))),
            }
        })
    }

    fn change<'a>(&'a self, changes: &'a [Change]) -> BoxFuture<'a, Result<(), Refused>> {
        Box::pin(async move {
            let client = self.client.read().clone();
            let client = client.ok_or(Refused::Whole(Fault::Expired))?;
            let persistent = CreateMode::Persistent.with_acls(Acls::new(&self.acls));
            let ephemeral = CreateMode::Ephemeral.with_acls(Acls::new(&self.acls));
            let mut multi = client.new_multi_writer();
            for (at, change) in changes.iter().enumerate() {
                let added = match change {
                    Change::Check { path, version } => {
                        multi.add_check_version(path, version.unwrap_or(ANY_VERSION))
                    }
                    Change::Create { path, data } => multi.add_create(path, data, &persistent),
                    Change::CreateEphemeral { path, data } => {
                        multi.add_create(path, data, &ephemeral)
                    }
                    Change::Set {
                        path,
                        data,
                        version,
                    } => multi.add_set_data(path, data, *version),
                    Change::Delete { path } => multi.add_delete(path, None),
                };
                added.map_err(|error| Refused::At(at, self.fault(error)))?;
            }
            match multi.commit().await {
                Ok(_) => Ok(()),
                Err(MultiWriteError::OperationFailed { index, source }) => {
                    Err(Refused::At(index, self.fault(source)))
                }
                Err(other) => Err(Refused::Whole(self.fault(other.into()))),
            }
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        let client = self.client.write().take();
        drop(client);
        self.ended()
    }
}

const ANY_VERSION: i32 = -1;

fn acl(entry: &AclEntry) -> Acl {
    let bits = [
        Permission::READ,
        Permission::WRITE,
        Permission::CREATE,
        Permission::DELETE,
        Permission::ADMIN,
    ];
    let granted = entry.granted(bits, Permission::NONE);
    Acl::new(granted, AuthId::new(&entry.scheme, &entry.id))
}

/// Only errors that certainly changed nothing are reported so; every other error is in doubt.
/// Errors of the connection are [`Zk::Custom`] as often as [`Zk::ConnectionLoss`].
fn fault(error: Zk) -> Fault {
    match error {
        Zk::NoNode => Fault::NoNode,
        Zk::NodeExists => Fault::Exists,
        Zk::BadVersion => Fault::BadVersion,
        Zk::NoAuth | Zk::AuthFailed | Zk::InvalidAcl => Fault::Denied { may_pass: false },
        Zk::SessionExpired | Zk::ClientClosed => Fault::Expired,
        Zk::Unimplemented => Fault::Unimplemented,
        Zk::BadArguments(_)
        | Zk::NoHosts
        | Zk::NotEmpty
        | Zk::NoChildrenForEphemerals
        | Zk::SessionMoved
        | Zk::NotReadOnly
        | Zk::QuotaExceeded
        | Zk::Throttled
        | Zk::MarshallingError => Fault::Refused(Box::new(error)),
        other => Fault::InDoubt(Box::new(other)),
    }
}
