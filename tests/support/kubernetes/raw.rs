//! Requests as they are, past the store.

use std::path::Path;

use k8s_openapi::serde_json::{Value, from_slice};
use kube::Client;
use kube::Config;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// A client by a kubeconfig, on the runtime of its caller.
pub(crate) async fn client(kubeconfig: &Path) -> Client {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let file = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    let mut config = config.unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

/// The code and the body of an answer; `None` if there is none.
pub(crate) async fn send(
    client: &Client,
    method: &str,
    path: &str,
    body: Option<Value>,
) -> Option<(u16, Value)> {
    let body = body.map_or_else(Body::empty, |body| {
        Body::from(body.to_string().into_bytes())
    });
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(body)
        .unwrap();
    let answer = client.send(request).await.ok()?;
    let code = answer.status().as_u16();
    let bytes = answer.into_body().collect_bytes().await.ok()?;
    let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
    Some((code, from_slice(&bytes).unwrap_or_else(|_| text())))
}
