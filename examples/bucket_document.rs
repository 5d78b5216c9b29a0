//! A document in a bucket that several processes change: a put that commits only over the version
//! that its run has read.

use std::sync::Arc;

use leasehold::bucket::BucketStore;
use leasehold::bucket::object_store::memory::InMemory;
use leasehold::bucket::object_store::path::Path;
use leasehold::bucket::object_store::{self, ObjectStore, ObjectStoreExt, PutMode, UpdateVersion};
use leasehold::clock::Clock;
use leasehold::run::EffectError;
use leasehold::{BoxError, LockManager};

/// The client of a bucket: yours of S3, Azure or Google, with `max_retries: 0`.
type Objects = Arc<dyn ObjectStore>;

const DOCUMENT: &str = "prices.json";

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let objects: Objects = Arc::new(InMemory::new());
    let first = r#"{"tea": 100, "by": ""}"#;
    objects.put(&Path::from(DOCUMENT), first.into()).await?;

    // Two processes, each with a manager.
    let (a, b) = (manager(&objects).await?, manager(&objects).await?);
    let changes =
        (0..5).map(|_| async { tokio::try_join!(raise(&a, &objects), raise(&b, &objects)) });
    for change in changes {
        change.await?;
    }
    let (tea, read_before) = read(&objects).await?;
    assert_eq!(tea, 110); // no change is lost

    // A process that was frozen between its last check and its write: the lease cannot stop it, the
    // version does.
    raise(&a, &objects).await?;
    let late = put(
        Arc::clone(&objects),
        read_before,
        r#"{"tea": 1, "by": ""}"#.to_owned(),
    )
    .await;
    assert!(matches!(late, Err(EffectError::NotApplied(_))));
    println!(
        "tea costs {}, and a late write was refused",
        read(&objects).await?.0
    );

    a.shutdown().await;
    b.shutdown().await;
    Ok(())
}

async fn manager(objects: &Objects) -> Result<LockManager, BoxError> {
    let store = BucketStore::over(Arc::clone(objects), "locks", Clock::system()?).await?;
    Ok(LockManager::new(store)?)
}

async fn raise(locks: &LockManager, objects: &Objects) -> Result<i64, BoxError> {
    let lock = locks.lock("prices");
    let raised = lock.guarded_async(async |tx| {
        let (tea, version) = read(objects).await?;
        let objects = Arc::clone(objects);
        tx.commit_with(move |permit| {
            // An ETag may be a hash of the content: with the name of the commit in it, no content
            // comes back, and so no version.
            let (tea, by) = (tea + 1, permit.txn_id);
            put(
                objects,
                version,
                format!(r#"{{"tea": {tea}, "by": "{by}"}}"#),
            )
        });
        Ok(tea + 1)
    });
    Ok(raised.await?.value)
}

async fn read(objects: &Objects) -> Result<(i64, UpdateVersion), BoxError> {
    let got = objects.get(&Path::from(DOCUMENT)).await?;
    let (e_tag, version) = (got.meta.e_tag.clone(), got.meta.version.clone());
    let text = String::from_utf8(got.bytes().await?.to_vec())?;
    // A real program reads it with serde_json.
    let tea = text.trim_start_matches(r#"{"tea": "#);
    let tea = tea.split(',').next().unwrap_or_default();
    Ok((tea.parse()?, UpdateVersion { e_tag, version }))
}

async fn put(objects: Objects, read: UpdateVersion, text: String) -> Result<(), EffectError> {
    let mode = PutMode::Update(read);
    match (objects.put_opts(&Path::from(DOCUMENT), text.into(), mode.into())).await {
        Ok(_) => Ok(()),
        // Another run has written since this one read. The client sent the put once, so it is
        // proven that nothing was written.
        Err(error @ object_store::Error::Precondition { .. }) => {
            Err(EffectError::not_applied(error))
        }
        Err(error) => Err(EffectError::unknown(error)),
    }
}
