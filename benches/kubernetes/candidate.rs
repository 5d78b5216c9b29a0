//! [`Peer`]: an elector, and its candidates, each a process with a user of its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::election::Leadership;
use leasehold::{LockManager, Settings};

use crate::kubernetes::api_server::{ApiServer, NAMESPACE};
use crate::kubernetes::canary::CANARY;

/// The argument by which this program is a candidate of ours.
pub(crate) const OURS: &str = "candidate";
const TTL: Duration = Duration::from_secs(15);
const CRATES: &str = "target/electors/debug/electors";
const CLIENT_GO: &str = "target/servers/elector";

#[derive(Clone, Copy)]
pub(crate) enum Peer {
    Ours,
    /// `benches/electors`.
    Crate(&'static str),
    /// `tests/kubernetes_server/elector.go`.
    ClientGo,
}

impl Peer {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "leasehold",
            Self::Crate(name) => name,
            Self::ClientGo => "client-go",
        }
    }

    pub(crate) fn users(self) -> [String; 2] {
        ["a", "b"].map(|which| format!("{}-{which}", self.name()))
    }

    /// Starts a candidate for the Lease that has the elector's name.
    pub(crate) fn start(self, server: &ApiServer, user: &str, name: &str) -> Child {
        let url = server.url_of(user, &format!("token: {}", token(user)));
        let kubeconfig = url.split_once('=').unwrap().1.to_owned();
        let mut command = match self {
            Self::Ours => {
                let mut command = Command::new(std::env::current_exe().unwrap());
                command.args([OURS, &url, self.name(), name]);
                command
            }
            Self::Crate(of) => {
                let mut command = Command::new(of_repository(CRATES));
                command.args([of, &kubeconfig, NAMESPACE, of, name]);
                command
            }
            Self::ClientGo => {
                let mut command = Command::new(of_repository(CLIENT_GO));
                // No terms: it leads until it is killed.
                command.args([&kubeconfig, NAMESPACE, self.name(), name, "0", "-"]);
                command
            }
        };
        let started = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn();
        started.unwrap_or_else(|error| panic!("{}: {error}; build it first", self.name()))
    }
}

/// The token of a user.
pub(crate) fn token(user: &str) -> String {
    format!("{CANARY}-{user}")
}

fn of_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A candidate of ours: URL, key and name.
pub(crate) async fn lead(arguments: &[String]) {
    let [url, key, name, ..] = arguments else {
        panic!("URL KEY NAME");
    };
    let settings = Settings {
        ttl: TTL,
        ..Settings::default()
    };
    let locks = LockManager::builder_for_url(url, settings).await.unwrap();
    let locks = locks.build().unwrap();
    let work = async |_: &Leadership| std::future::pending::<()>().await;
    let election = locks.election(key.as_str());
    election.while_leader(name, work).await.unwrap();
}
