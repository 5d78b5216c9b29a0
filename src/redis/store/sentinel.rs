//! [`Sentinels`]: where the master is now. They are asked on every connect, so the address is as
//! new as the connection.
//!
//! The master is the server that a majority of the sentinels in the URL names, so one that is cut
//! off with a deposed master is outvoted. The [preflight](super::connection) checks whether that
//! server is a master, as for any other. A server that was promoted has another run id and was a
//! replica, so it grants nothing until the last lease that it may not know has ended ([the
//! protocol](super)).

use std::fmt;

use ::redis::{AsyncConnectionConfig, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::connection::{How, dial};
use super::fault;
use crate::model::error::{Error, ErrorKind};
use crate::store::access::Login;

/// The longest name of a master.
const MAX_NAME: usize = 100;

/// The sentinels that watch a master, and their name for it.
#[derive(Clone)]
pub(super) struct Sentinels {
    servers: Vec<ConnectionInfo>,
    /// Replaces their user and password, if these change.
    pub(super) login: Login,
    master: String,
}

/// The host and port of a server.
pub(super) type HostAndPort = (String, u16);

impl Sentinels {
    /// `None` for a text that cannot be the name of a master.
    pub(super) fn new(
        servers: impl Iterator<Item = ::redis::ConnectionAddr>,
        master: &str,
    ) -> Option<Self> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if master.is_empty() || master.len() > MAX_NAME || !master.bytes().all(is_name) {
            return None;
        }
        let servers: Result<Vec<_>, _> = servers
            .map(|server| {
                let server = server.into_connection_info()?;
                let settings = server.redis_settings().clone().set_skip_set_lib_name();
                Ok::<_, ::redis::RedisError>(server.set_redis_settings(settings))
            })
            .collect();
        Some(Self {
            servers: servers.ok()?,
            login: Login::default(),
            master: master.to_owned(),
        })
    }

    /// Sets the password that the sentinels require.
    pub(super) fn password(&mut self, password: &str) {
        self.set(|settings| settings.set_password(password));
    }

    /// Sets the user that the sentinels require.
    pub(super) fn user(&mut self, user: &str) {
        self.set(|settings| settings.set_username(user));
    }

    fn set(&mut self, set: impl Fn(RedisConnectionInfo) -> RedisConnectionInfo) {
        for server in &mut self.servers {
            let settings = set(server.redis_settings().clone());
            *server = server.clone().set_redis_settings(settings);
        }
    }

    /// The address that a majority of the sentinels names. `how` the master is connected to; the
    /// sentinels have their own login.
    pub(super) async fn master(&self, how: How<'_>) -> Result<HostAndPort, Error> {
        let how = how.with(&self.login);
        let need = self.servers.len() / 2 + 1;
        let mut asked: FuturesUnordered<_> = (self.servers.iter())
            .map(|server| ask(server, &self.master, how))
            .collect();
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
        // If those that refuse us are needed, there will never be a majority.
        let (kind, advice) = if denied + need > count {
            let advice = "set sentinel_user and sentinel_password in the URL, or allow our user";
            (ErrorKind::Denied, advice)
        } else {
            let advice = "try later, or check the name and the sentinels";
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

/// One question over a connection of its own; `None` if this sentinel watches no master of that
/// name.
async fn ask(
    server: &ConnectionInfo,
    master: &str,
    how: How<'_>,
) -> Result<Option<HostAndPort>, Error> {
    let address = server.addr().to_string();
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(how.timeout))
        .set_response_timeout(Some(how.timeout));
    let (mut connection, _driver) = dial(server, &address, how, &config).await?;
    let mut question = ::redis::cmd("SENTINEL");
    question.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
    let asked = question.query_async(&mut connection).await;
    asked.map_err(|error| fault::not_connected(&error, &address))
}
