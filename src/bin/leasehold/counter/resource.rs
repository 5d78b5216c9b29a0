//! [`Resource`]: where the counter is. A file that nothing protects, or a key in Redis behind a fence.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use leasehold::fence::{RedisBatch, RedisFence};
use leasehold::{AsyncTx, BoxError, Clock, CommitError, Lane, Lock};
use redis::aio::MultiplexedConnection;
use serde::{Deserialize, Serialize};

use crate::exit::Failure;

/// Where it is, in words that a counting process can be told.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(super) enum Place {
    File(PathBuf),
    /// In the Redis server of this URL, changed under a fence only.
    Fenced {
        url: String,
        key: String,
    },
}

#[derive(Clone)]
pub(super) enum Resource {
    File(PathBuf),
    Fenced {
        fence: RedisFence,
        plain: MultiplexedConnection,
        key: String,
    },
}

impl Place {
    /// A place of our own, at which 0 stands.
    pub(super) async fn make(fenced_at: Option<&str>) -> Result<Self, Failure> {
        let now = Clock::system()?.stamp().on(Lane::Boot);
        let name = format!("leasehold-counter-{}-{now:x}", std::process::id());
        let failed = |why: BoxError| Failure::system("the counter could not be made", &why);
        let Some(url) = fenced_at else {
            let path = std::env::temp_dir().join(name);
            let made = File::create_new(&path).and_then(|mut file| file.write_all(&digits(0)));
            made.map_err(|why| failed(why.into()))?;
            return Ok(Self::File(path));
        };
        // An access list may admit us to the keys of our prefix only.
        let key = match option(url, "prefix") {
            Some(prefix) => format!("{prefix}:{name}"),
            None => name,
        };
        let mut plain = plain(url).await.map_err(failed)?;
        let made: redis::RedisResult<()> = redis::cmd("SET")
            .arg(&key)
            .arg(0)
            .query_async(&mut plain)
            .await;
        made.map_err(|why| failed(why.into()))?;
        let url = url.to_owned();
        Ok(Self::Fenced { url, key })
    }

    pub(super) async fn open(&self) -> Result<Resource, Failure> {
        let failed = |why: BoxError| Failure::system("the counter could not be opened", &why);
        Ok(match self {
            Self::File(path) => Resource::File(path.clone()),
            Self::Fenced { url, key } => Resource::Fenced {
                fence: RedisFence::connect(url).await?,
                plain: plain(url).await.map_err(failed)?,
                key: key.clone(),
            },
        })
    }

    /// Takes it away. What is left in a temporary folder, or of a key that nobody reads, harms nobody.
    pub(super) async fn remove(&self) {
        match self {
            Self::File(path) => drop(std::fs::remove_file(path)),
            Self::Fenced { url, key } => {
                if let Ok(mut plain) = plain(url).await {
                    let _: redis::RedisResult<()> =
                        redis::cmd("DEL").arg(key).query_async(&mut plain).await;
                }
            }
        }
    }
}

impl Resource {
    /// The lock, with the fence tied to it where there is one.
    pub(super) fn tie(&self, lock: Lock) -> Lock {
        match self {
            Self::File(_) => lock,
            Self::Fenced { fence, .. } => lock.fence(fence.clone()),
        }
    }

    pub(super) async fn read(&self) -> Result<u64, BoxError> {
        match self {
            Self::File(path) => Ok(read(path)?),
            Self::Fenced { plain, key, .. } => {
                let mut plain = plain.clone();
                Ok(redis::cmd("GET").arg(key).query_async(&mut plain).await?)
            }
        }
    }

    /// Writes `number` as the commit of a run.
    pub(super) fn write(&self, tx: &AsyncTx, number: u64) {
        match self.clone() {
            Self::File(path) => tx.commit_with(move |_permit| async move {
                write(&path, number).map_err(CommitError::unknown)
            }),
            Self::Fenced { fence, key, .. } => tx.commit_with(move |permit| {
                fence.apply(permit, RedisBatch::new().set(&key, number.to_string()))
            }),
        }
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

/// Always as long, so that a write is one write.
fn digits(number: u64) -> [u8; 20] {
    let mut digits = [b'0'; 20];
    let text = format!("{number:020}");
    digits.copy_from_slice(text.as_bytes());
    digits
}

fn read(path: &Path) -> std::io::Result<u64> {
    let mut text = String::new();
    File::open(path)?.read_to_string(&mut text)?;
    text.parse()
        .map_err(|why| std::io::Error::new(std::io::ErrorKind::InvalidData, why))
}

fn write(path: &Path, number: u64) -> std::io::Result<()> {
    let mut file = File::options().write(true).open(path)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&digits(number))
}
