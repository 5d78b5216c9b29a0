//! Programs in a pod: the service account that is mounted there says all.

use std::process::Output;

use k8s_openapi::serde_json::{Value, json};

use crate::deployment::{Deployment, NAME, built};
use crate::kubernetes::api_server::ApiServer;
use crate::kubernetes::pod::Account;
use crate::kubernetes::process::until;
use crate::kubernetes::raw;

const ACCOUNTS: &str = "/api/v1/namespaces/pod-report/serviceaccounts";

/// The tool in a pod of this account: `leasehold list --store k8s:`.
fn list(account: &Account) -> Output {
    let mut command = account.command(&built("leasehold"));
    command.args(["list", "--store", "k8s:"]).output().unwrap()
}

async fn lease(server: &ApiServer) -> Value {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{NAME}/leases/{NAME}");
    server.send("GET", &path, None).await.1
}

#[tokio::test]
async fn a_leader_in_a_pod_keeps_its_term_over_a_new_token_of_its_account() {
    let server = ApiServer::start().await;
    let deployment = Deployment::apply(&server).await;
    let account = deployment.account();
    let old = server.token_of(NAME, NAME).await;
    let pod = deployment.start(&server, "pod-0").await;
    until("it leads", async || pod.leads()).await;
    let listed = list(account);
    assert!(listed.status.success(), "{listed:?}");
    let shown = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(shown.contains(NAME) && shown.contains("pod-0"), "{shown}");

    // Tokens of an account that is deleted are refused, and so are they once it is there again.
    let (code, gone) = server
        .send("DELETE", &format!("{ACCOUNTS}/{NAME}"), None)
        .await;
    assert_eq!(code, 200, "{gone}");
    let again = deployment.object("ServiceAccount").clone();
    let (code, made) = server.send("POST", ACCOUNTS, Some(again)).await;
    assert_eq!(code, 201, "{made}");
    account.rotate(&server.token_of(NAME, NAME).await);
    let url = server.url_of("old", &format!("token: {old}"));
    let file = url.split_once('=').unwrap().1;
    let late = raw::client(file.as_ref()).await;
    until("the old token is refused", async || {
        let answer = raw::send(&late, "GET", "/api/v1/namespaces", None).await;
        answer.is_some_and(|(code, _)| code == 401)
    })
    .await;
    let before = lease(&server).await;
    until("the term goes on", async || {
        let now = lease(&server).await;
        let token = |lease: &Value| lease["metadata"]["annotations"]["leasehold/token"].clone();
        assert_eq!(token(&now), token(&before));
        now["spec"]["renewTime"] != before["spec"]["renewTime"]
    })
    .await;
    assert!(pod.leads());
}

#[tokio::test]
async fn an_account_without_a_role_is_named_with_the_commands_that_give_it_one() {
    let server = ApiServer::start().await;
    let _ = Deployment::apply(&server).await;
    let bare = json!({"metadata": {"name": "bare"}});
    let (code, made) = server.send("POST", ACCOUNTS, Some(bare)).await;
    assert_eq!(code, 201, "{made}");
    let refused = list(&Account::mounted(&server, NAME, "bare").await);
    assert!(!refused.status.success());
    let shown = String::from_utf8_lossy(&refused.stderr);
    println!("{shown}");
    for part in [
        "verb=list resource=leases namespace=pod-report",
        "kubectl -n pod-report create role leasehold --verb=get,list,watch,create,update",
        "--serviceaccount=pod-report:bare",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}
