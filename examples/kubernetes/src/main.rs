//! A Deployment of which one pod leads: it counts the pods of its namespace, and writes the number
//! into the ConfigMap `pod-report`. `deployment.yaml` beside this program has all that it needs.
//!
//! The office is a Lease of the namespace, and the ConfigMap is behind a fence: a leader that was
//! frozen for longer than its lease writes nothing over the next leader's report.

mod probes;

use std::error::Error;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use leasehold::election::Leadership;
use leasehold::kubernetes::K8sFence;
use leasehold::kubernetes::serde_json::json;
use leasehold::{LockManager, RunError, Settings};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The API server, the namespace and the credentials of this pod.
const HERE: &str = "k8s:";
/// For how long a leader that died keeps the office.
const TTL: Duration = Duration::from_secs(15);
/// How long a write in progress may take after SIGTERM.
const DRAIN: Duration = Duration::from_secs(5);
const PERIOD: Duration = Duration::from_secs(1);

struct Reporter {
    name: String,
    pods: Api<Pod>,
    report: K8sFence,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // First of all: a program that is process 1 of its container ignores SIGTERM without it.
    let mut terminate = signal(SignalKind::terminate())?;
    let name = std::env::var("POD_NAME")?;
    let address = std::env::var("ADDRESS").unwrap_or("0.0.0.0:8080".to_owned());
    let settings = Settings {
        ttl: TTL,
        ..Settings::default()
    };
    let locks = LockManager::builder_for_url(HERE, settings).await?;
    let locks = locks.build()?;
    let client = Client::try_default().await?;
    let namespace = client.default_namespace();
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/pod-report");
    let reporter = Reporter {
        name: name.clone(),
        report: K8sFence::connect(HERE, &path).await?,
        pods: Api::default_namespaced(client),
    };
    let election = locks.election("pod-report");
    let election = election.fence(reporter.report.clone());
    let probes = probes::serve(&address, locks.clone(), election.state()).await?;

    let stop = CancellationToken::new();
    let until = stop.clone();
    tokio::spawn(async move {
        terminate.recv().await;
        stop.cancel();
    });
    let work = async |leadership: &Leadership| reporter.report_forever(leadership).await;
    let leading = election.while_leader(&name, work).drain(DRAIN);
    // The write in progress ends, the office is released, and a standby leads at once.
    leading.until(until).await?;
    locks.shutdown().await;
    probes.abort();
    Ok(())
}

impl Reporter {
    /// What only the leader does. It is dropped when the leadership ends.
    async fn report_forever(&self, leadership: &Leadership) {
        loop {
            match self.report(leadership).await {
                Ok(pods) => println!("term {}: {pods} pods", leadership.term()),
                Err(error) => eprintln!("{error}"),
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// One report. It is written only while this pod leads, and over no later leader's report.
    async fn report(&self, leadership: &Leadership) -> Result<usize, RunError<usize>> {
        let done = leadership.guarded_async(async |tx| {
            let pods = self.pods.list(&ListParams::default()).await?;
            let count = pods.items.len();
            let mut object = self.report.read().await?;
            let term = leadership.term().to_string();
            object["data"] = json!({"pods": count.to_string(), "by": self.name, "term": term});
            let report = self.report.clone();
            tx.commit_with(move |permit| report.apply(permit, object));
            Ok(count)
        });
        Ok(done.await?.value)
    }
}
