//! The pods of the example's Deployment are replaced one by one: who leads meanwhile, and who
//! writes.

use k8s_openapi::jiff::Timestamp;
use k8s_openapi::serde_json::{Value, json};

use crate::deployment::{Deployment, NAME, Pod};
use crate::kubernetes::api_server::ApiServer;
use crate::kubernetes::audit::{self, Answered};
use crate::kubernetes::process::until;

/// How often all pods are replaced.
const ROLLOUTS: usize = 3;
const REPLICAS: usize = 3;

#[tokio::test]
async fn a_rollout_has_one_leader_at_a_time_and_no_office_expires() {
    let server = ApiServer::start_audited().await;
    let deployment = Deployment::apply(&server).await;
    let replicas = &deployment.object("Deployment")["spec"]["replicas"];
    assert_eq!(*replicas, REPLICAS);
    let mut pods = Vec::new();
    for number in 0..REPLICAS {
        pods.push(deployment.start(&server, &format!("pod-0-{number}")).await);
    }
    let mut planned = Vec::new();
    for rollout in 1..=ROLLOUTS {
        for number in 0..REPLICAS {
            // `maxSurge: 1`: the new pod is ready, although another one leads.
            pods.push(
                deployment
                    .start(&server, &format!("pod-{rollout}-{number}"))
                    .await,
            );
            let old = chosen(&server, &mut pods, rollout).await;
            if old.leads() {
                planned.push((old.name.clone(), Timestamp::now()));
            }
            old.terminate();
            let status = old.ended(&server).await;
            assert!(status.success(), "{status}");
        }
    }
    until("the report counts the pods that are left", async || {
        report(&server).await["data"]["pods"] == REPLICAS.to_string()
    })
    .await;
    drop(pods);
    judge(&audit::read(server.folder(), NAME), &planned);
}

/// An old pod: the leader if it is one, since that is the hardest. It has written its report.
async fn chosen(server: &ApiServer, pods: &mut Vec<Pod>, rollout: usize) -> Pod {
    until("the leader writes", async || {
        let leader = pods.iter().find(|pod| pod.leads());
        let by = report(server).await["data"]["by"].clone();
        leader.is_some_and(|leader| by == *leader.name)
    })
    .await;
    let new = format!("pod-{rollout}-");
    let is_old = |pod: &Pod| !pod.name.starts_with(&new);
    let leader = pods.iter().position(|pod| is_old(pod) && pod.leads());
    let any = || pods.iter().position(is_old).unwrap();
    let old = leader.unwrap_or_else(any);
    pods.remove(old)
}

async fn report(server: &ApiServer) -> Value {
    let path = format!("/api/v1/namespaces/{NAME}/configmaps/{NAME}");
    server.send("GET", &path, None).await.1
}

/// Goes through all changes in the order of etcd.
fn judge(all: &[Answered], planned: &[(String, Timestamp)]) {
    // Who has the office: the name and the token; and when it was released.
    let mut office: Option<(String, String)> = None;
    let mut released: Option<Timestamp> = None;
    let mut terms = 0;
    // The first report of each term.
    let mut reports: Vec<(String, Timestamp)> = Vec::new();
    let mut report = None;
    let mut gaps = Vec::new();
    for (_, change) in audit::changes(all) {
        match change.resource.as_str() {
            "leases" => {
                let token = change.annotation("leasehold/token").to_owned();
                let holder = change.object["spec"]["holderIdentity"].as_str().unwrap();
                let name = holder.rsplit_once('_').map(|(name, _)| name.to_owned());
                let next = name.map(|name| (name, token));
                match (&office, &next) {
                    (Some(_), None) => released = Some(change.at),
                    (None, Some(_)) => {
                        terms += 1;
                        let ended = released.take();
                        gaps.extend(ended.map(|ended| change.at.duration_since(ended)));
                    }
                    (now, next) => assert_eq!(now, next, "an office was taken over"),
                }
                office = next;
            }
            "configmaps" => {
                let data = change.object["data"].clone();
                // A fence that is raised leaves the report as it is.
                if data.is_null() || report.replace(data.clone()) == Some(data.clone()) {
                    continue;
                }
                let (leader, term) = office.as_ref().expect("only a leader writes");
                assert_eq!((&data["by"], &data["term"]), (&json!(leader), &json!(term)));
                if reports.last().is_none_or(|(last, _)| last != leader) {
                    reports.push((leader.clone(), change.at));
                }
            }
            _ => {}
        }
    }
    assert_eq!(terms, planned.len() + 1, "each move was planned");
    assert_eq!(reports.len(), terms, "each term has written");
    assert_eq!(gaps.len(), planned.len());
    println!("| move | released to granted | SIGTERM to the next leader's report |\n|---|---|---|");
    for (number, ((_, asked), gap)) in planned.iter().zip(gaps).enumerate() {
        let written = reports[number + 1].1.duration_since(*asked);
        println!(
            "| {} | {} ms | {} ms |",
            number + 1,
            gap.as_millis(),
            written.as_millis()
        );
    }
}
