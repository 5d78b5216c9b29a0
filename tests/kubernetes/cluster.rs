//! A store stays in the cluster of its first login.

use std::fs;

use leasehold::FencingToken;
use leasehold::fence::Fence;
use leasehold::kubernetes::{K8sFence, KubernetesStore};
use leasehold::store::{Renewed, Store};

use crate::answers::{claim, granted};
use crate::kubernetes::fake::FakeApiServer;
use crate::kubernetes::process::until;

/// Two clusters, of which the kubeconfig of the first one knows both, by the contexts `c` and `d`.
struct World {
    ours: FakeApiServer,
    other: FakeApiServer,
    addresses: [String; 2],
}

impl World {
    async fn new() -> Self {
        let (ours, other) = (FakeApiServer::start().await, FakeApiServer::start().await);
        let addresses = [&ours, &other].map(|server| {
            let text = fs::read_to_string(server.folder().join("kubeconfig")).unwrap();
            text.split('"').nth(1).unwrap().to_owned()
        });
        let world = Self {
            ours,
            other,
            addresses,
        };
        let [ours, other] = &world.addresses;
        world.configure("c", [ours, other], "first");
        world
    }

    /// From now on no other token than this is accepted in our cluster.
    fn configure(&self, current: &str, [c, d]: [&str; 2], token: &str) {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {current}\n\
             clusters:\n- {{name: c, cluster: {{server: {c:?}}}}}\n\
             - {{name: d, cluster: {{server: {d:?}}}}}\n\
             users:\n- {{name: u, user: {{token: {token}}}}}\n\
             contexts:\n- {{name: c, context: {{cluster: c, user: u}}}}\n\
             - {{name: d, context: {{cluster: d, user: u}}}}\n"
        );
        fs::write(self.ours.folder().join("kubeconfig"), text).unwrap();
        self.ours.accept_only(token);
    }
}

#[tokio::test]
async fn a_context_that_becomes_current_moves_no_store_and_no_fence() {
    let world = World::new().await;
    let store = KubernetesStore::connect(&world.ours.url()).await.unwrap();
    let held = granted(&store, &claim("a")).await;
    let path = "/apis/coordination.k8s.io/v1/namespaces/shop/leases/a";
    let fence = K8sFence::connect(&world.ours.url(), path).await.unwrap();
    let [ours, other] = &world.addresses;
    world.configure("d", [ours, other], "second");
    let (key, token) = ("a".parse().unwrap(), FencingToken::new(3).unwrap());
    fence.raise(&key, token).await.unwrap();
    let renewed = store.renew(std::slice::from_ref(&held)).await;
    assert!(matches!(renewed[0], Renewed::Extended(_)), "{renewed:?}");
    assert!(world.other.is_untouched());
}

#[tokio::test]
async fn a_login_that_gives_another_cluster_fails() {
    let world = World::new().await;
    let store = KubernetesStore::connect(&world.ours.url()).await.unwrap();
    let held = granted(&store, &claim("a")).await;
    let [ours, other] = &world.addresses;
    world.configure("c", [other, other], "second");
    let renewed = store.renew(std::slice::from_ref(&held)).await;
    let [Renewed::Unknown(error)] = renewed.as_slice() else {
        panic!("{renewed:?}");
    };
    assert!(error.to_string().contains("another cluster"), "{error}");
    world.configure("c", [ours, other], "third");
    until("a login gives our cluster again", async || {
        let renewed = store.renew(std::slice::from_ref(&held)).await;
        matches!(renewed[0], Renewed::Extended(_))
    })
    .await;
    assert!(world.other.is_untouched());
}
