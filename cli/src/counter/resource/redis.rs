//! The counter in a key of the Redis server that grants the lock, behind a fence.

use leasehold::BoxError;
use leasehold::redis::{RedisBatch, RedisFence};
use leasehold::run::{Applied, CommitPermit, EffectError};
use redis::aio::MultiplexedConnection;

use crate::exit::Failure;

#[derive(Clone)]
pub(in crate::counter) struct InRedis {
    pub(super) fence: RedisFence,
    plain: MultiplexedConnection,
    key: String,
}

pub(super) async fn make(url: &str, name: &str) -> Result<String, BoxError> {
    // An access list may admit us to the keys of our prefix only.
    let key = match option(url, "prefix") {
        Some(prefix) => format!("{prefix}:{name}"),
        None => name.to_owned(),
    };
    let mut plain = plain(url).await?;
    let (): () = redis::cmd("SET")
        .arg(&key)
        .arg(0)
        .query_async(&mut plain)
        .await?;
    Ok(key)
}

pub(super) async fn remove(url: &str, key: &str) -> Result<(), BoxError> {
    let mut plain = plain(url).await?;
    Ok(redis::cmd("DEL").arg(key).query_async(&mut plain).await?)
}

impl InRedis {
    pub(super) async fn open(url: &str, key: &str) -> Result<Self, Failure> {
        let opened = plain(url).await;
        Ok(Self {
            fence: RedisFence::connect(url).await?,
            plain: opened
                .map_err(|why| Failure::system("the counter could not be opened", &why))?,
            key: key.to_owned(),
        })
    }

    pub(super) async fn read(&self) -> Result<u64, BoxError> {
        let mut plain = self.plain.clone();
        let mut asked = redis::cmd("GET");
        Ok(asked.arg(&self.key).query_async(&mut plain).await?)
    }

    pub(super) fn commit(
        &self,
        permit: CommitPermit,
        number: u64,
    ) -> impl Future<Output = Result<Applied, EffectError>> + Send + use<> {
        let batch = RedisBatch::new().set(&self.key, number.to_string());
        self.fence.apply(permit, batch)
    }
}

async fn plain(url: &str) -> Result<MultiplexedConnection, BoxError> {
    let client = redis::Client::open(url)?;
    Ok(client.get_multiplexed_async_connection().await?)
}

fn option<'a>(url: &'a str, name: &str) -> Option<&'a str> {
    let (_, query) = url.split_once('?')?;
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .find(|(known, _)| *known == name)
        .map(|(_, value)| value)
}
