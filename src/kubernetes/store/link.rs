//! [`Link`]: requests to one API server, over connections and a thread of its own.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::answer::{Answer, Verb, unanswered};
use super::cause;
use super::options::KubernetesOptions;
use super::thread::Thread;
use crate::clock::{Clock, ClockKind};
use crate::model::error::Error;
use crate::model::span::nanos;

/// How often a request is sent, if the server refused it without effect: new credentials, or a
/// pause that it asked for.
const TRIES: usize = 4;
/// The pause that a refusal for too many requests asks for, if it names none.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause that a server can ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How long a login may take, and the first login and request together.
const OPENING: Duration = Duration::from_secs(10);

pub(crate) struct Link {
    options: KubernetesOptions,
    pub(crate) clock: Clock,
    pub(super) namespace: String,
    client: Mutex<LoggedIn>,
    /// Whoever logs in again. One login serves all that wait for it.
    login: tokio::sync::Mutex<()>,
    /// Nothing is sent before: by the boot clock.
    rests_until: Mutex<u64>,
    /// `None` once it is closed.
    thread: Mutex<Option<Arc<Thread>>>,
}

/// A client, and how often this link has logged in before.
#[derive(Clone)]
pub(super) struct LoggedIn {
    pub(super) client: Client,
    pub(super) logins: u64,
}

impl Link {
    /// Reads the credentials, and checks that an API server answers.
    pub(crate) async fn open(options: KubernetesOptions, clock: Clock) -> Result<Self, Error> {
        options.validate()?;
        let opened = clock.timeout(OPENING, Self::open_unlimited(options, &clock));
        opened.await.unwrap_or_else(|| Err(silent()))
    }

    async fn open_unlimited(options: KubernetesOptions, clock: &Clock) -> Result<Self, Error> {
        let thread = Arc::new(Thread::start().await?);
        let (client, namespace) = log_in(&thread, &options).await?;
        let link = Self {
            options,
            clock: clock.clone(),
            namespace,
            client: Mutex::new(LoggedIn { client, logins: 0 }),
            login: tokio::sync::Mutex::default(),
            rests_until: Mutex::new(0),
            thread: Mutex::new(Some(thread)),
        };
        link.call(Verb::Get, "/version", None).await.map(|_| link)
    }

    /// Sends a request until it has an answer that says what became of it: success, absent (404)
    /// or not as expected (409).
    ///
    /// # Errors
    ///
    /// `InDoubt` if a write may have had an effect; any other kind if it had none and will have
    /// none.
    pub(crate) async fn call(
        &self,
        verb: Verb,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<Answer, Error> {
        let mut refused = None;
        for _ in 0..TRIES {
            self.rested().await;
            let now = self.client();
            let sent = send(now.client, verb, path.to_owned(), body.clone());
            let answer = self.thread()?.run(sent).await.ok_or_else(closed)?;
            let answer = answer.map_err(|error| unanswered(verb, path, error))?;
            if matches!(answer.code, 200..=299 | 404 | 409) {
                return Ok(answer);
            }
            let error = answer.refusal(verb, path);
            let pause = answer.retry_after.unwrap_or(PAUSE);
            match answer.code {
                // The token of a service account is replaced every hour.
                401 if refused.is_none() => self.log_in_again(now.logins).await?,
                429 => self.rest(pause),
                500.. if answer.retry_after.is_some() => {
                    self.rest(pause);
                    if verb.writes() {
                        return Err(error);
                    }
                }
                // A cluster may hide its version, and have Leases.
                403 if path == "/version" => return Ok(answer),
                _ => return Err(error),
            }
            refused = Some(error);
        }
        Err(refused.unwrap_or_else(closed))
    }

    pub(super) fn client(&self) -> LoggedIn {
        self.client.lock().clone()
    }

    pub(super) fn thread(&self) -> Result<Arc<Thread>, Error> {
        self.thread.lock().clone().ok_or_else(closed)
    }

    /// Reads the credentials again, from the files where they are, unless that was done since the
    /// login whose credentials were refused.
    pub(super) async fn log_in_again(&self, refused: u64) -> Result<(), Error> {
        let _turn = self.login.lock().await;
        if self.client().logins != refused {
            return Ok(());
        }
        let thread = self.thread()?;
        let made = (self.clock).timeout(OPENING, log_in(&thread, &self.options));
        let (client, _) = made.await.ok_or_else(silent)??;
        let logins = refused + 1;
        *self.client.lock() = LoggedIn { client, logins };
        Ok(())
    }

    /// Waits for as long as the server asked for.
    pub(super) async fn rested(&self) {
        loop {
            // Another answer may prolong it meanwhile.
            let until = *self.rests_until.lock();
            if self.clock.stamp().on(ClockKind::Boot) >= until {
                return;
            }
            self.clock.sleep_until(until).await;
        }
    }

    fn rest(&self, pause: Duration) {
        let now = self.clock.stamp().on(ClockKind::Boot);
        let until = now.saturating_add(nanos(pause.min(LONGEST_PAUSE)));
        let mut rests_until = self.rests_until.lock();
        *rests_until = until.max(*rests_until);
    }

    /// Ends the thread, once no request runs on it.
    pub(super) fn close(&self) {
        drop(self.thread.lock().take());
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

fn silent() -> Error {
    Error::unavailable(
        "the API server, or the plugin for credentials, does not answer; check its address and its state",
    )
}

fn closed() -> Error {
    Error::closed("the store is closed; open another one")
}

async fn send(
    client: Client,
    verb: Verb,
    path: String,
    body: Option<Vec<u8>>,
) -> Result<Answer, kube::Error> {
    let method = match verb {
        Verb::Create => Method::POST,
        Verb::Update => Method::PUT,
        Verb::Get | Verb::List | Verb::Watch => Method::GET,
    };
    let request = (Request::builder().method(method).uri(path))
        .header(http::header::CONTENT_TYPE, "application/json")
        .header(http::header::ACCEPT, "application/json")
        .body(Body::from(body.unwrap_or_default()))
        .map_err(kube::Error::HttpError)?;
    let (head, body) = client.send(request).await?.into_parts();
    let seconds = head.headers.get(http::header::RETRY_AFTER);
    let seconds = seconds.and_then(|value| value.to_str().ok()?.parse().ok());
    Ok(Answer {
        code: head.status.as_u16(),
        retry_after: seconds.map(Duration::from_secs),
        body: body.collect_bytes().await?.to_vec(),
    })
}

/// The client that a configuration gives now, and the namespace.
async fn log_in(thread: &Thread, options: &KubernetesOptions) -> Result<(Client, String), Error> {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error says that another thread has just installed one.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let options = options.clone();
    let make = move || {
        let mut config = Handle::current().block_on(configuration(&options))?;
        // A repeated write would find itself, and be refused.
        config.default_retry = false;
        if let Some(namespace) = options.namespace {
            config.default_namespace = namespace;
        }
        let namespace = config.default_namespace.clone();
        let client = Client::try_from(config).map_err(|error| {
            Error::invalid("the configuration of the API server gives no client; see the cause")
                .because(cause::of_request(error))
        })?;
        Ok((client, namespace))
    };
    // A plugin for credentials is waited for, and must not stop the requests of this thread.
    let made = thread.run(async { tokio::task::spawn_blocking(make).await.ok() });
    made.await.flatten().ok_or_else(closed)?
}

async fn configuration(options: &KubernetesOptions) -> Result<Config, Error> {
    let choice = KubeConfigOptions {
        context: options.context.clone(),
        ..KubeConfigOptions::default()
    };
    if let Some(path) = &options.kubeconfig {
        let file = Kubeconfig::read_from(path).map_err(unreadable)?;
        return (Config::from_custom_kubeconfig(file, &choice).await).map_err(unreadable);
    }
    if is_in_a_pod() && options.context.is_none() {
        return Config::incluster().map_err(|error| {
            Error::invalid(
                "the service account of this pod cannot be read; mount it (automountServiceAccountToken), or name a kubeconfig in the URL",
            )
            .because(error)
        });
    }
    Config::from_kubeconfig(&choice).await.map_err(unreadable)
}

fn is_in_a_pod() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
        && std::env::var_os("KUBECONFIG").is_none()
}

fn unreadable(error: kube::config::KubeconfigError) -> Error {
    Error::invalid(
        "no API server is configured: the kubeconfig cannot be used; set kubeconfig= or context= in the URL, or KUBECONFIG",
    )
    .because(cause::of_kubeconfig(error))
}
