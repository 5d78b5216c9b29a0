//! A candidate with another crate's elector: `electors CRATE KUBECONFIG NAMESPACE LEASE NAME`. It
//! leads until it is killed, with the settings that the crate's own example has, at a TTL of 15 s.

use std::error::Error;
use std::time::Duration;

type Failure = Box<dyn Error + Send + Sync>;

const TTL: Duration = Duration::from_secs(15);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [peer, kubeconfig, namespace, lease, name] = &arguments[..] else {
        return Err("electors CRATE KUBECONFIG NAMESPACE LEASE NAME".into());
    };
    match peer.as_str() {
        "kube-leader-election" => leader_election(kubeconfig, namespace, lease, name).await,
        "kube-coordinate" => coordinate(kubeconfig, namespace, lease, name).await,
        _ => Err("CRATE is kube-leader-election or kube-coordinate".into()),
    }
}

async fn leader_election(
    kubeconfig: &str,
    namespace: &str,
    lease: &str,
    name: &str,
) -> Result<(), Failure> {
    use kube_leader_election::{LeaseLock, LeaseLockParams};
    use kube4::config::{KubeConfigOptions, Kubeconfig};

    let file = Kubeconfig::read_from(kubeconfig)?;
    let config = kube4::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    let params = LeaseLockParams {
        holder_id: name.to_owned(),
        lease_name: lease.to_owned(),
        lease_ttl: TTL,
    };
    let lock = LeaseLock::new(kube4::Client::try_from(config)?, namespace, params);
    loop {
        if let Err(error) = lock.try_acquire_or_renew().await {
            eprintln!("{error}");
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
}

async fn coordinate(
    kubeconfig: &str,
    namespace: &str,
    lease: &str,
    name: &str,
) -> Result<(), Failure> {
    use kube_coordinate::{Config, LeaderElector};
    use kube2::config::{KubeConfigOptions, Kubeconfig};

    let file = Kubeconfig::read_from(kubeconfig)?;
    let config = kube2::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    let election = Config::default().name(lease).namespace(namespace);
    let election = election.identity(name).manager("electors");
    let election = election.lease_duration(TTL);
    let elector = LeaderElector::spawn(election, kube2::Client::try_from(config)?)?;
    let mut state = elector.state();
    while state.changed().await.is_ok() {}
    Ok(())
}
