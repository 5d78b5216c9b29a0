//! [`Site`]: where the locks of a test are.

use std::any::Any;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use leasehold::{LockManager, Settings};

use crate::postgres::{PgServer, Shared, shared};
use crate::redis::RedisServer;
use crate::zookeeper::{Server, TICK};

/// For an end that certainly comes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Files,
    Redis,
    Postgres,
    ZooKeeper,
}

/// A store of the test's own, and what has to live as long as it.
pub(crate) struct Site {
    pub(crate) kind: Kind,
    url: String,
    _keeps: Box<dyn Any>,
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left in the temporary folder harms nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Site {
    pub(crate) fn open(kind: Kind) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let (url, keeps): (String, Box<dyn Any>) = match kind {
            Kind::Files => {
                let name = format!("leasehold-attacks-{}-{count}", std::process::id());
                let folder = std::env::temp_dir().join(name);
                let url = format!("file://{}?", folder.display());
                (url, Box::new(Folder(folder)))
            }
            Kind::Redis => {
                let server = RedisServer::start();
                let url = server.url("restart_quarantine=off");
                (url, Box::new(server))
            }
            Kind::Postgres => {
                let server = database(&format!("attacks{count}"));
                let url = format!(
                    "postgres://postgres@127.0.0.1:{}/attacks{count}",
                    server.port()
                );
                (
                    format!("{url}?create=auto&timeout_millis=20000"),
                    Box::new(server),
                )
            }
            Kind::ZooKeeper => {
                let server = Server::shared();
                let url = format!("zookeeper://{}/attacks{count}x", server.address());
                (
                    format!("{url}?tick_time={}ms", TICK.as_millis()),
                    Box::new(server),
                )
            }
        };
        Self {
            kind,
            url,
            _keeps: keeps,
        }
    }

    /// A manager as another process has it.
    pub(crate) async fn manager(&self, ttl: Duration) -> LockManager {
        let mut settings = Settings::default();
        settings.ttl = ttl;
        // Longer than a busy machine holds an answer up.
        settings.request_timeout = ttl / 2;
        let url = match self.kind {
            Kind::ZooKeeper => format!("{}&session_timeout={}ms", self.url, ttl.as_millis()),
            _ => self.url.clone(),
        };
        let builder = LockManager::builder_for_url(&url, settings).await.unwrap();
        builder.build().unwrap()
    }
}

/// A new database on a server that keeps what it confirms.
pub(crate) fn database(name: &str) -> Arc<PgServer> {
    static SHARED: Shared = Mutex::new(Weak::new());
    let server = shared(&SHARED, &["fsync=on"]);
    server.psql(&format!("CREATE DATABASE {name}"));
    server
}

/// One test for each store.
macro_rules! on_every_store {
    ($($attack:ident)*) => {
        $(mod $attack {
            use super::super::sites::{Kind, Site};

            #[tokio::test]
            async fn on_files() {
                super::$attack(Site::open(Kind::Files)).await;
            }

            #[tokio::test]
            async fn on_redis() {
                super::$attack(Site::open(Kind::Redis)).await;
            }

            #[tokio::test]
            async fn on_postgres() {
                super::$attack(Site::open(Kind::Postgres)).await;
            }

            #[tokio::test]
            async fn on_zookeeper() {
                super::$attack(Site::open(Kind::ZooKeeper)).await;
            }
        })*
    };
}
pub(crate) use on_every_store;
