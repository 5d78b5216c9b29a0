//! The fake API server answers as a real one does.

use std::path::Path;

use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::serde_json::{Value, json};
use kube::Client;
use kube::api::{WatchEvent, WatchParams};

use crate::kubernetes::api_server::{ApiServer, NAMESPACE};
use crate::kubernetes::fake::FakeApiServer;
use crate::kubernetes::raw;

/// What was asked, and what matters of the answer.
type Heard = Vec<(&'static str, Value)>;

fn lease(name: &str, seconds: i32, version: Option<&str>) -> Value {
    let metadata = json!({"name": name, "labels": {"a": "1"}, "resourceVersion": version});
    let spec =
        json!({"holderIdentity": "x", "leaseDurationSeconds": seconds, "leaseTransitions": 0});
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec})
}

fn version(lease: &Value) -> String {
    let version = lease["metadata"]["resourceVersion"].as_str();
    version.unwrap_or_else(|| panic!("{lease}")).to_owned()
}

/// Asks the same of each server.
async fn heard(kubeconfig: &Path) -> Heard {
    let client = raw::client(kubeconfig).await;
    let all = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases");
    let one = format!("{all}/f");
    let ask =
        async |method, path: &str, body| raw::send(&client, method, path, body).await.unwrap();
    let refused = |(code, body): (u16, Value)| json!([code, body["reason"]]);
    let mut heard = Heard::new();

    heard.push(("what is not there", refused(ask("GET", &one, None).await)));
    let mut replaced = lease("f", 5, Some("1"));
    replaced["metadata"]["uid"] = "b7a1b2e8-0c3c-4d0b-9f0e-6a1f2d3c4b5a".into();
    heard.push((
        "update what is gone",
        refused(ask("PUT", &one, Some(replaced)).await),
    ));
    let (code, _) = ask("PUT", &format!("{all}/e"), Some(lease("e", 5, None))).await;
    heard.push(("update what never was", json!(code)));
    ask("DELETE", &format!("{all}/e"), None).await;
    heard.push((
        "no duration",
        refused(ask("POST", &all, Some(lease("f", 0, None))).await),
    ));
    let (code, made) = ask("POST", &all, Some(lease("f", 5, None))).await;
    heard.push(("create", json!([code, made["spec"]["holderIdentity"]])));
    heard.push((
        "create again",
        refused(ask("POST", &all, Some(lease("f", 5, None))).await),
    ));
    heard.push((
        "no version",
        refused(ask("PUT", &one, Some(lease("f", 6, None))).await),
    ));
    heard.push((
        "an old version",
        refused(ask("PUT", &one, Some(lease("f", 6, Some("1")))).await),
    ));

    let (code, updated) = ask("PUT", &one, Some(lease("f", 6, Some(&version(&made))))).await;
    heard.push(("update", json!([code, version(&updated) == version(&made)])));
    let same_uid = updated["metadata"]["uid"] == made["metadata"]["uid"];
    heard.push(("the same object", json!(same_uid)));
    let (code, same) = ask("PUT", &one, Some(updated.clone())).await;
    heard.push((
        "an update that changes nothing",
        json!([code, version(&same) == version(&updated)]),
    ));
    heard.push((
        "a version that was",
        refused(ask("PUT", &one, Some(lease("f", 7, Some(&version(&made))))).await),
    ));

    for name in ["g", "h"] {
        ask("POST", &all, Some(lease(name, 5, None))).await;
    }
    let mut path = format!("{all}?labelSelector=a&limit=2");
    for _ in 0..2 {
        let (code, page) = ask("GET", &path, None).await;
        let names: Vec<_> = page["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|l| l["metadata"]["name"].clone())
            .collect();
        let next = page["metadata"]["continue"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        heard.push(("a page", json!([code, names, next.is_empty()])));
        path = format!("{all}?labelSelector=a&limit=2&continue={next}");
    }
    let (code, none) = ask("GET", &format!("{all}?labelSelector=b"), None).await;
    heard.push((
        "another label",
        json!([code, none["items"].as_array().map_or(0, Vec::len)]),
    ));
    heard.extend(watched(&client, &all).await);
    heard
}

/// The events of a watch that begins with the state.
async fn watched(client: &Client, all: &str) -> Heard {
    let params = WatchParams::default().fields("metadata.name=f").timeout(20);
    let request = kube::core::Request::new(all).watch(&params, "").unwrap();
    let events = client.request_events::<Lease>(request).await.unwrap();
    pin_mut!(events);
    let mut heard = Heard::new();
    let one = format!("{all}/f");
    let (_, now) = raw::send(client, "GET", &one, None).await.unwrap();
    raw::send(
        client,
        "PUT",
        &format!("{all}/g"),
        Some(lease("g", 9, None)),
    )
    .await;
    raw::send(
        client,
        "PUT",
        &one,
        Some(lease("f", 9, Some(&version(&now)))),
    )
    .await;
    raw::send(client, "DELETE", &one, None).await;
    for _ in 0..3 {
        let (kind, lease) = match events.next().await.unwrap().unwrap() {
            WatchEvent::Added(lease) => ("added", lease),
            WatchEvent::Modified(lease) => ("modified", lease),
            WatchEvent::Deleted(lease) => ("deleted", lease),
            other => panic!("{other:?}"),
        };
        let seconds = lease.spec.unwrap().lease_duration_seconds;
        heard.push(("an event", json!([kind, seconds])));
    }
    heard
}

#[tokio::test]
async fn the_fake_server_answers_as_a_real_one() {
    let (real, fake) = (ApiServer::start().await, FakeApiServer::start().await);
    let real = heard(&real.folder().join("kubeconfig")).await;
    let fake = heard(&fake.folder().join("kubeconfig")).await;
    println!("{real:#?}");
    assert_eq!(fake, real);
}
