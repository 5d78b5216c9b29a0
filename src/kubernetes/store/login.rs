//! [`Login`]: the client that serves now, and when another one replaces it.
//!
//! One login runs at a time, as a task of the store's thread: it outlives the requests that wait
//! for it, and all of them share its result. The client that there is serves meanwhile.

use std::time::Duration;

use futures_util::future::{BoxFuture, Shared};
use http::Uri;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use tokio::runtime::Handle;

use super::options::KubernetesOptions;
use super::plugin::blocking;
use super::{cause, plugin};
use crate::model::error::Error;
use crate::model::span::nanos;

/// Credentials of a plugin are replaced so long before their end, or in the middle of their life.
const AHEAD: Duration = Duration::from_secs(60);
/// A plugin whose credentials end at once is not started more often.
const LEAST: Duration = Duration::from_secs(10);
/// The pause after a login. It doubles with each one up to [`LONGEST_PAUSE`], until what one gave
/// has served for as long as the next pause, after its own.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A login that runs.
pub(super) type Running = Shared<BoxFuture<'static, Result<(), Error>>>;

/// A client, and how many there were before.
#[derive(Clone)]
pub(super) struct LoggedIn {
    pub(super) client: Client,
    pub(super) logins: u64,
}

/// The cluster of a store. A Lease says nothing of another one's.
#[derive(Clone)]
pub(super) struct Cluster {
    /// The context of the kubeconfig, if there is one. Somebody may make another one current.
    pub(super) context: Option<String>,
    server: Uri,
}

/// What a login gives.
pub(super) struct Made {
    pub(super) client: Client,
    pub(super) namespace: String,
    pub(super) cluster: Cluster,
    /// How long the credentials live, if they end.
    pub(super) lives: Option<Duration>,
}

/// Times are readings of the boot clock.
pub(super) struct Login {
    pub(super) now: LoggedIn,
    /// When the credentials are replaced.
    due: Option<u64>,
    /// The next login is not begun before.
    rests_until: u64,
    pause: Duration,
    /// The error of the last login.
    pub(super) failed: Option<Error>,
    pub(super) running: Option<Running>,
}

impl Login {
    pub(super) fn first(made: Made, now: u64) -> Self {
        Self {
            due: due(made.lives, now),
            now: LoggedIn {
                client: made.client,
                logins: 0,
            },
            rests_until: 0,
            pause: FIRST_PAUSE,
            failed: None,
            running: None,
        }
    }

    pub(super) fn is_due(&self, now: u64) -> bool {
        self.due.is_some_and(|due| now >= due)
    }

    /// Whether a login may be begun.
    pub(super) fn may_begin(&self, now: u64) -> bool {
        self.running.is_none() && now >= self.rests_until
    }

    /// The server has accepted the credentials of this login. One of many servers may do so while
    /// another one refuses them.
    pub(super) fn accepted(&mut self, logins: u64, now: u64) {
        let proven = self.rests_until.saturating_add(nanos(self.pause));
        if self.now.logins == logins && self.failed.is_none() && now >= proven {
            self.pause = FIRST_PAUSE;
        }
    }

    /// The login that ran has ended.
    pub(super) fn ended(&mut self, made: Result<Made, Error>, now: u64) -> Result<(), Error> {
        self.running = None;
        self.rests_until = now.saturating_add(nanos(self.pause));
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        match made {
            Ok(made) => {
                self.due = due(made.lives, now);
                self.now.client = made.client;
                self.now.logins += 1;
                self.failed = None;
                Ok(())
            }
            Err(error) => {
                // A plugin or a file may be right the next time.
                let error = error.that_may_pass();
                self.failed = Some(error.clone());
                Err(error)
            }
        }
    }
}

fn due(lives: Option<Duration>, now: u64) -> Option<u64> {
    let lives = lives?;
    let early = lives.saturating_sub(AHEAD).max(lives / 2).max(LEAST);
    Some(now.saturating_add(nanos(early)))
}

/// The client that a configuration gives now. Fails if it is one of another cluster than `before`.
/// Runs on the store's thread.
pub(super) async fn log_in(
    options: KubernetesOptions,
    before: Option<Cluster>,
) -> Result<Made, Error> {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error says that another thread has just installed one.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let namespace = options.namespace.clone();
    // Files are read, and must not stop the requests of this thread.
    let context = before.as_ref().and_then(|before| before.context.clone());
    let context = context.or(options.context.clone());
    let read = move || Handle::current().block_on(configuration(&options, context));
    let (mut config, context) = blocking(read).await.ok_or_else(closed)??;
    let server = config.cluster_url.clone();
    // Its authority may be replaced.
    if before.is_some_and(|before| before.server != server) {
        return Err(elsewhere(context.as_deref()));
    }
    let lives = plugin::replace(&mut config.auth_info).await;
    let lives = lives.map_err(|error| no_client().because(error))?;
    // A repeated write would find itself, and be refused.
    config.default_retry = false;
    if let Some(namespace) = namespace {
        config.default_namespace = namespace;
    }
    let namespace = config.default_namespace.clone();
    let made = blocking(move || Client::try_from(config)).await;
    let client = (made.ok_or_else(closed)?)
        .map_err(|error| no_client().because(cause::of_request(error)))?;
    Ok(Made {
        client,
        namespace,
        cluster: Cluster { context, server },
        lives,
    })
}

fn elsewhere(context: Option<&str>) -> Error {
    Error::invalid(format!(
        "the configuration names another cluster than at the start: context={}; restore it, or open another store",
        context.unwrap_or_default()
    ))
}

fn no_client() -> Error {
    Error::invalid("the configuration of the API server gives no client; see the cause")
}

pub(super) fn closed() -> Error {
    Error::closed("the store is closed; open another one")
}

/// The configuration, and the context that it is of.
async fn configuration(
    options: &KubernetesOptions,
    context: Option<String>,
) -> Result<(Config, Option<String>), Error> {
    if options.kubeconfig.is_none() && context.is_none() && is_in_a_pod() {
        let config = Config::incluster().map_err(|error| {
            Error::invalid(
                "the service account of this pod cannot be read; mount it (automountServiceAccountToken), or name a kubeconfig in the URL",
            )
            .because(error)
        })?;
        return Ok((config, None));
    }
    let file = match &options.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let file = file.map_err(unreadable)?;
    let context = context.or(file.current_context.clone());
    let choice = KubeConfigOptions {
        context: context.clone(),
        ..KubeConfigOptions::default()
    };
    let config = Config::from_custom_kubeconfig(file, &choice).await;
    Ok((config.map_err(unreadable)?, context))
}

fn is_in_a_pod() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
        && std::env::var_os("KUBECONFIG").is_none()
}

fn unreadable(error: KubeconfigError) -> Error {
    Error::invalid(
        "no API server is configured: the kubeconfig cannot be used; set kubeconfig= or context= in the URL, or KUBECONFIG",
    )
    .because(cause::of_kubeconfig(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_replaced_a_minute_before_their_end_or_in_the_middle_of_their_life() {
        for (lives, seconds) in [(3_600, 3_540), (90, 45), (20, 10), (3, 10), (0, 10)] {
            let due = due(Some(Duration::from_secs(lives)), 7);
            assert_eq!(
                due,
                Some(7 + nanos(Duration::from_secs(seconds))),
                "{lives}"
            );
        }
        assert_eq!(due(None, 7), None);
    }

    fn made() -> Made {
        // An error says that there is one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let server = Uri::from_static("http://127.0.0.1:1");
        Made {
            client: Client::try_from(Config::new(server.clone())).unwrap(),
            namespace: String::new(),
            cluster: Cluster {
                context: None,
                server,
            },
            lives: None,
        }
    }

    fn seconds(seconds: u64) -> u64 {
        nanos(Duration::from_secs(seconds))
    }

    /// Behind a balancer, with a request each second.
    #[tokio::test]
    async fn one_bad_server_of_many_starts_no_storm_of_logins() {
        let mut login = Login::first(made(), 0);
        let mut begun = Vec::new();
        for second in 0..120 {
            let now = seconds(second);
            if second % 3 != 0 {
                login.accepted(login.now.logins, now);
            } else if login.may_begin(now) {
                begun.push(second);
                login.ended(Ok(made()), now).unwrap();
            }
        }
        assert_eq!(begun, [0, 3, 6, 12, 21, 39, 72]);
    }

    #[tokio::test]
    async fn credentials_that_serve_end_the_pause() {
        let mut login = Login::first(made(), 0);
        login.ended(Ok(made()), 0).unwrap();
        login.ended(Ok(made()), seconds(1)).unwrap();
        // The pause is two seconds, and the next one is four.
        login.accepted(login.now.logins, seconds(2));
        assert!(!login.may_begin(seconds(2)));
        login.accepted(login.now.logins, seconds(7));
        login.ended(Ok(made()), seconds(8)).unwrap();
        assert!(login.may_begin(seconds(9)));
    }
}
