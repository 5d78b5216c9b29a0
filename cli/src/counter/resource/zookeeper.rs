//! The counter in a node of the ZooKeeper ensemble that grants the lock, behind a fence.

use leasehold::BoxError;
use leasehold::run::{Applied, CommitPermit, EffectError};
use leasehold::zookeeper::{ZkBatch, ZkFence, ZooKeeperOptions};
use percent_encoding::percent_decode_str;
use zookeeper_client::{Acls, Client, CreateMode};

use crate::exit::Failure;

#[derive(Clone)]
pub(in crate::counter) struct InZooKeeper {
    /// Over a session of its own, which it opens again after a pause.
    pub(super) fence: ZkFence,
    path: String,
}

pub(super) async fn make(url: &str, name: &str) -> Result<String, BoxError> {
    let chroot = ZooKeeperOptions::parse(url)?.chroot;
    let (client, acls) = plain(url).await?;
    let options = CreateMode::Persistent.with_acls(acls);
    if !chroot.is_empty() {
        client.mkdir(&chroot, &options).await?;
    }
    // The last word keeps the digits away from the end, where they would be a place in a queue.
    let path = format!("{chroot}/{name}-value");
    client.create(&path, b"0", &options).await?;
    Ok(path)
}

pub(super) async fn remove(url: &str, path: &str) -> Result<(), BoxError> {
    let (client, _) = plain(url).await?;
    Ok(client.delete(path, None).await?)
}

impl InZooKeeper {
    pub(super) async fn open(url: &str, path: &str) -> Result<Self, Failure> {
        Ok(Self {
            fence: ZkFence::connect(url).await?,
            path: path.to_owned(),
        })
    }

    pub(super) async fn read(&self) -> Result<u64, BoxError> {
        let data = self.fence.read(&self.path).await?;
        let data = data.ok_or("the counter's node is gone")?;
        Ok(String::from_utf8(data)?.parse()?)
    }

    pub(super) fn commit(
        &self,
        permit: CommitPermit,
        number: u64,
    ) -> impl Future<Output = Result<Applied, EffectError>> + Send + use<> {
        let batch = ZkBatch::new().set(&self.path, number.to_string());
        self.fence.apply(permit, batch)
    }
}

/// A client for what no fence is asked for: to make the counter, and to take it away.
async fn plain(url: &str) -> Result<(Client, Acls<'static>), BoxError> {
    let options = ZooKeeperOptions::parse(url)?;
    let mut connector = Client::connector().with_session_timeout(options.session_timeout);
    let mut acls = Acls::anyone_all();
    if let Some(login) = login(url) {
        let login = percent_decode_str(login).collect::<Vec<u8>>();
        connector = connector.with_auth("digest", &login);
        acls = Acls::creator_all();
    }
    Ok((connector.connect(&options.servers).await?, acls))
}

/// The part before the servers of a URL that was parsed before.
fn login(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?']).next()?;
    authority.rsplit_once('@').map(|(login, _)| login)
}

#[cfg(test)]
mod tests {
    use super::login;

    #[test]
    fn a_login_stands_before_the_servers() {
        assert_eq!(
            login("zookeeper://me:s%2Fx@a:1,b:2/c?tick_time=1s"),
            Some("me:s%2Fx")
        );
        assert_eq!(login("zookeeper://a:1/c@d"), None);
    }
}
