//! What a waiter costs the API server.

use leasehold::kubernetes::KubernetesStore;
use leasehold::store::{Acquired, Claim, Grant, Released, Renewed, Store};

use crate::answers::{claim, granted};
use crate::kubernetes::fake::{FakeApiServer, Fault};
use crate::kubernetes::process::until;

struct World {
    server: FakeApiServer,
    holder: KubernetesStore,
    grant: Grant,
    waiter: KubernetesStore,
}

async fn world() -> World {
    let server = FakeApiServer::start().await;
    let holder = KubernetesStore::connect(&server.url()).await.unwrap();
    let grant = granted(&holder, &claim("a")).await;
    let waiter = KubernetesStore::connect(&server.url()).await.unwrap();
    World {
        server,
        holder,
        grant,
        waiter,
    }
}

impl World {
    /// How many requests an attempt that is refused sends.
    async fn cost(&self, claim: &Claim) -> usize {
        let before = self.server.requests("get");
        let busy = self.waiter.acquire(claim).await.unwrap();
        assert!(matches!(busy, Acquired::Busy { .. }), "{busy:?}");
        self.server.requests("get") - before
    }
}

#[tokio::test]
async fn a_waiter_whose_watch_shows_the_holder_sends_nothing() {
    let world = world().await;
    let waits = claim("a");
    assert_eq!(world.cost(&waits).await, 1);
    let hint = world.waiter.subscribe(&waits).await.unwrap();
    until("the watch shows the holder", async || {
        world.cost(&waits).await == 0
    })
    .await;
    for _ in 0..20 {
        let renewed = world.holder.renew(std::slice::from_ref(&world.grant)).await;
        assert!(matches!(renewed[0], Renewed::Extended(_)));
        assert_eq!(world.cost(&waits).await, 0);
    }
    let before = world.server.requests("get");
    let released = world.holder.release(&world.grant).await;
    assert!(matches!(released, Released::Released));
    assert_eq!(hint.await, None);
    let next = granted(&world.waiter, &waits).await;
    assert!(next.token > world.grant.token);
    assert_eq!(world.server.requests("get"), before);
}

#[tokio::test]
async fn a_first_request_asks_the_server_whatever_a_watch_shows() {
    let world = world().await;
    let waits = claim("a");
    assert_eq!(world.cost(&waits).await, 1);
    let _hint = world.waiter.subscribe(&waits).await.unwrap();
    until("the watch shows the holder", async || {
        world.cost(&waits).await == 0
    })
    .await;
    assert_eq!(world.cost(&claim("a")).await, 1);
}

#[tokio::test]
async fn a_waiter_without_a_watch_asks_the_server_each_time() {
    let world = world().await;
    let waits = claim("a");
    let hint = world.waiter.subscribe(&waits).await.unwrap();
    world.cost(&waits).await;
    until("the watch shows the holder", async || {
        world.cost(&waits).await == 0
    })
    .await;
    drop(hint);
    until("the watch has ended", async || {
        world.cost(&waits).await == 1
    })
    .await;
    assert_eq!(world.cost(&waits).await, 1);
}

#[tokio::test]
async fn between_two_watches_a_waiter_asks_the_server() {
    let world = world().await;
    let waits = claim("a");
    let _hint = world.waiter.subscribe(&waits).await.unwrap();
    world.cost(&waits).await;
    until("the watch shows the holder", async || {
        world.cost(&waits).await == 0
    })
    .await;
    for _ in 0..20 {
        world.server.next("watch", Fault::Refuse(500, None));
    }
    world.server.forget_versions();
    until("the watch has ended", async || {
        world.cost(&waits).await == 1
    })
    .await;
    assert_eq!(world.cost(&waits).await, 1);
}
