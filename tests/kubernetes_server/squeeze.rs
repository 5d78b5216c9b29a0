//! A priority level that is full: the server refuses with 429 and `Retry-After`.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::serde_json::{Value, json};
use leasehold::ErrorKind;
use leasehold::kubernetes::KubernetesStore;
use leasehold::store::{Renewed, Store};

use crate::kubernetes::api_server::{ApiServer, NAMESPACE};
use crate::kubernetes::process::until;
use crate::kubernetes::{audit, raw};
use crate::{claim, granted};

const TTL: Duration = Duration::from_secs(600);
const API: &str = "/apis/flowcontrol.apiserver.k8s.io/v1beta1";
const NAME: &str = "squeezed";
/// Holds that are renewed at once.
const HOLDS: usize = 8;

/// Gives an account the smallest priority level, which has no queue.
async fn squeeze(server: &ApiServer) {
    let level = json!({
        "metadata": {"name": NAME},
        "spec": {"type": "Limited", "limited": {
            "assuredConcurrencyShares": 1, "limitResponse": {"type": "Reject"},
        }},
    });
    let account = json!({"name": NAME, "namespace": NAMESPACE});
    let schema = json!({
        "metadata": {"name": NAME},
        "spec": {
            "matchingPrecedence": 2,
            "priorityLevelConfiguration": {"name": NAME},
            "rules": [{
                "subjects": [{"kind": "ServiceAccount", "serviceAccount": account}],
                "resourceRules": [{
                    "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"],
                }],
            }],
        },
    });
    for (kind, object) in [
        ("prioritylevelconfigurations", level),
        ("flowschemas", schema),
    ] {
        let (code, made) = server
            .send("POST", &format!("{API}/{kind}"), Some(object))
            .await;
        assert_eq!(code, 201, "{made}");
    }
    until("the server has read both", async || {
        let (_, schema) = server
            .send("GET", &format!("{API}/flowschemas/{NAME}"), None)
            .await;
        let conditions = schema["status"]["conditions"].as_array().cloned();
        let is_found =
            |condition: &Value| condition["type"] == "Dangling" && condition["status"] == "False";
        conditions.unwrap_or_default().iter().any(is_found)
    })
    .await;
}

#[tokio::test]
async fn a_full_priority_level_costs_no_hold_and_is_asked_four_times_at_most() {
    let server = ApiServer::start_audited().await;
    let verbs = ["get", "list", "watch", "create", "update"];
    let token = server.account(NAME, &verbs).await;
    let url = server.url_of(NAME, &format!("token: {token}"));
    let store = KubernetesStore::connect(&url).await.unwrap();
    let mut grants = Vec::new();
    for number in 0..HOLDS {
        grants.push(granted(&store, &claim(&format!("a{number}"), TTL)).await);
    }
    squeeze(&server).await;

    // Requests that hang fill the level.
    server.stop_etcd();
    let file = url.split_once('=').unwrap().1;
    let client = Arc::new(raw::client(file.as_ref()).await);
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/a0");
    until("the level is full", async || {
        let (client, path) = (Arc::clone(&client), path.clone());
        let asked = tokio::spawn(async move { raw::send(&client, "GET", &path, None).await });
        let clock = leasehold::clock::Clock::system().unwrap();
        let answer = clock.timeout(Duration::from_millis(500), asked).await;
        matches!(answer, Some(Ok(Some((429, _)))))
    })
    .await;
    for renewed in store.renew(&grants).await {
        let Renewed::Unknown(error) = renewed else {
            panic!("{renewed:?}");
        };
        assert!(
            matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::InDoubt),
            "{error}"
        );
        println!("{error}");
    }
    let all = audit::read(server.folder(), NAMESPACE);
    let refused = |one: &&audit::Answered| one.code == 429 && one.verb == "update";
    let refused = all.iter().filter(refused).count();
    println!("{refused} updates were refused");
    // Four times each at most.
    assert!((1..=4 * HOLDS).contains(&refused), "{refused}");

    server.continue_etcd();
    server.ready().await;
    until("all are renewed", async || {
        let renewed = store.renew(&grants).await;
        renewed
            .iter()
            .all(|renewed| matches!(renewed, Renewed::Extended(_)))
    })
    .await;
}
