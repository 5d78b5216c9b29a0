//! [`Sentinels`]: where the master is now. They are asked on every connect, so that the address is as new as the connection.
//!
//! The master is the server that a majority of the named sentinels names: one that is cut off with a deposed master is
//! outvoted. Whether that server takes itself for a master is looked at by the [preflight](super::preflight), as for any
//! other. A server that was promoted has another run id and was a replica: so it grants nothing until the last lease that
//! it may never have heard of has ended ([quarantine](super::quarantine)).

use std::fmt;
use std::time::Duration;

use ::redis::{AsyncConnectionConfig, Client, ConnectionInfo, RedisConnectionInfo};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::fault;
use super::hosts::Hosts;
use crate::model::error::{Error, ErrorKind};

const PORT: u16 = 26_379;
/// The longest name of a master.
const LONGEST_NAME: usize = 100;

/// The sentinels that watch a master, and what they call it.
#[derive(Clone)]
pub(super) struct Sentinels {
    servers: Vec<ConnectionInfo>,
    master: String,
}

/// Where a server is.
pub(super) type Place = (String, u16);

impl Sentinels {
    /// Reads `redis+sentinel://user:password@h1:26379,h2,h3/master/db?options`: the sentinels, and the URL that their master
    /// would have on this machine, whose address is of no account. `None` for any other URL.
    pub(super) fn parse(url: &str) -> Result<Option<(Self, String)>, Error> {
        let Some(hosts) = Hosts::of_kind("sentinel", url)? else {
            return Ok(None);
        };
        if !cfg!(feature = "redis-sentinel") {
            return Err(Error::unsupported(
                "leasehold was built without Redis Sentinel; build it with the feature redis-sentinel",
            ));
        }
        let (master, db) = hosts.path.split_once('/').unwrap_or((hosts.path, "0"));
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if master.is_empty() || master.len() > LONGEST_NAME || !master.bytes().all(is_name) {
            return Err(malformed("names its master"));
        }
        let servers = hosts.servers(PORT);
        let servers =
            servers.ok_or_else(|| malformed("names its sentinels by host and port, each once"))?;
        let sentinels = Self {
            servers,
            master: master.to_owned(),
        };
        Ok(Some((
            sentinels,
            format!(
                "{}://{}localhost/{db}{}",
                hosts.scheme, hosts.user, hosts.query
            ),
        )))
    }

    /// The sentinels ask for a password of their own.
    pub(super) fn password(&mut self, password: &str) {
        self.set(|settings| settings.set_password(password));
    }

    /// And for a user.
    pub(super) fn user(&mut self, user: &str) {
        self.set(|settings| settings.set_username(user));
    }

    fn set(&mut self, set: impl Fn(RedisConnectionInfo) -> RedisConnectionInfo) {
        for server in &mut self.servers {
            let settings = set(server.redis_settings().clone());
            *server = server.clone().set_redis_settings(settings);
        }
    }

    /// The place that a majority of the sentinels names.
    pub(super) async fn master(&self, timeout: Duration) -> Result<Place, Error> {
        let need = self.servers.len() / 2 + 1;
        let ask = |server: &ConnectionInfo| ask(server.clone(), &self.master, timeout);
        let mut asked: FuturesUnordered<_> = self.servers.iter().map(ask).collect();
        let (mut named, mut denied, mut failure) = (Vec::new(), 0, None);
        while let Some(answer) = asked.next().await {
            match answer {
                Ok(Some(place)) => {
                    named.push(place.clone());
                    if named.iter().filter(|other| **other == place).count() >= need {
                        return Ok(place);
                    }
                }
                Ok(None) => {}
                Err(why) if why.kind() == ErrorKind::Denied => {
                    denied += 1;
                    failure = Some(why);
                }
                Err(why) => failure = failure.or(Some(why)),
            }
        }
        let count = self.servers.len();
        // Without those that refuse us there is no majority at any time.
        let (kind, advice) = if denied + need > count {
            let advice = "set sentinel_user and sentinel_password in the URL, or let our user in";
            (ErrorKind::Denied, advice)
        } else {
            let advice = "try later, or look at the name and at the sentinels";
            (ErrorKind::Unavailable, advice)
        };
        let error = Error::new(
            kind,
            format!(
                "no majority of the sentinels names one master: master={} sentinels={count} need={need} named={} denied={denied}; {advice}",
                self.master,
                named.len()
            ),
        );
        Err(match failure {
            Some(why) => error.because(why),
            None => error,
        })
    }

    /// For messages.
    pub(super) fn address(&self) -> String {
        let servers: Vec<_> = (self.servers.iter())
            .map(|server| server.addr().to_string())
            .collect();
        format!("{} of {}", self.master, servers.join(","))
    }
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sentinels").field(&self.address()).finish()
    }
}

/// One question over a connection of its own; `None` if this sentinel watches no master of that name.
async fn ask(
    server: ConnectionInfo,
    master: &str,
    timeout: Duration,
) -> Result<Option<Place>, Error> {
    let address = server.addr().to_string();
    let failed = |error| fault::not_connected(&error, &address);
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(timeout))
        .set_response_timeout(Some(timeout));
    let client = Client::open(server).map_err(failed)?;
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    let mut connection = connecting.await.map_err(failed)?;
    let mut question = ::redis::cmd("SENTINEL");
    question.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
    question.query_async(&mut connection).await.map_err(failed)
}

fn malformed(rule: &str) -> Error {
    Error::invalid(format!(
        "a sentinel URL {rule}; write redis+sentinel://user:password@h1:26379,h2:26379,h3:26379/master?prefix=app"
    ))
}

#[cfg(all(test, feature = "redis-sentinel"))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> (Sentinels, String) {
        Sentinels::parse(url).unwrap().unwrap()
    }

    #[test]
    fn a_url_names_the_sentinels_and_what_they_watch() {
        let (sentinels, server) =
            parsed("redis+sentinel://me:secret@a:1,b,[::1]/main-1/2?prefix=app");
        assert_eq!(sentinels.master, "main-1");
        assert_eq!(sentinels.address(), "main-1 of ::1:26379,a:1,b:26379");
        assert_eq!(server, "redis://me:secret@localhost/2?prefix=app");
        let (_, server) = parsed("redis+sentinel://a/main");
        assert_eq!(server, "redis://localhost/0");
        assert!(Sentinels::parse("redis://a").unwrap().is_none());
    }

    #[test]
    fn what_names_no_master_or_a_sentinel_twice_is_refused() {
        for url in [
            "redis+sentinel://me:sesame@a",
            "redis+sentinel://me:sesame@/main",
            "redis+sentinel://me:sesame@a,,b/main",
            "redis+sentinel://me:sesame@a,a:26379/main",
            "redis+sentinel://me:sesame@a,A/main",
            "redis+sentinel://me:sesame@a,me:sesame@b/main",
            "redis+sentinel://me:sesame@a/ma%20in",
        ] {
            let error = Sentinels::parse(url).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Invalid, "{url}");
            assert!(!format!("{error:?} {error}").contains("sesame"), "{error}");
        }
    }

    #[test]
    fn no_password_is_shown() {
        let (mut sentinels, _) = parsed("redis+sentinel://a/main");
        sentinels.password("sesame");
        assert!(!format!("{sentinels:?}").contains("sesame"));
    }
}
