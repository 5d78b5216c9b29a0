//! [`Link`]: requests to one API server, over connections and a thread of its own.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;

use super::answer::{Answer, Verb, silent, unanswered};
use super::login::{Cluster, LoggedIn, Login, Running, closed, log_in};
use super::options::KubernetesOptions;
use crate::clock::Clock;
use crate::model::error::Error;
use crate::store::http::{Pace, Thread};

/// How often a request is sent, if the server refused it without effect: new credentials, or a
/// pause that it asked for.
const TRIES: usize = 4;
/// How long a login may take, and the first login and request together.
const OPENING: Duration = Duration::from_secs(10);

pub(crate) struct Link {
    options: KubernetesOptions,
    pub(crate) clock: Clock,
    pub(super) namespace: String,
    /// That of the first login, and of each other.
    cluster: Cluster,
    login: Mutex<Login>,
    pub(super) pace: Pace,
    /// `None` once it is closed.
    thread: Mutex<Option<Arc<Thread>>>,
}

impl Link {
    /// Reads the credentials, and checks that an API server answers.
    pub(crate) async fn open(options: KubernetesOptions, clock: Clock) -> Result<Arc<Self>, Error> {
        options.validate()?;
        let opened = clock.timeout(OPENING, Self::open_unlimited(options, &clock));
        opened.await.unwrap_or_else(|| Err(no_login()))
    }

    async fn open_unlimited(options: KubernetesOptions, clock: &Clock) -> Result<Arc<Self>, Error> {
        let thread = Arc::new(Thread::start("leasehold-k8s").await?);
        let made = thread.run(log_in(options.clone(), None)).await;
        let made = made.ok_or_else(closed)??;
        let link = Arc::new(Self {
            options,
            clock: clock.clone(),
            namespace: made.namespace.clone(),
            cluster: made.cluster.clone(),
            login: Mutex::new(Login::first(made, clock.boot())),
            pace: Pace::new(clock.clone()),
            thread: Mutex::new(Some(thread)),
        });
        link.call(Verb::Get, "/version", None).await.map(|_| link)
    }

    /// Sends a request until it has an answer that says what became of it: success, absent (404)
    /// or not as expected (409). A request whose caller is gone is not sent again, but what was
    /// begun for it goes on: the login, and the connection.
    ///
    /// # Errors
    ///
    /// `InDoubt` if a write may have had an effect; any other kind if it had none and will have
    /// none.
    pub(crate) async fn call(
        self: &Arc<Self>,
        verb: Verb,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<Answer, Error> {
        let mut refused = None;
        for _ in 0..TRIES {
            self.pace.rested().await;
            let now = self.client();
            let sent = send(now.client, verb, path.to_owned(), body.clone());
            let answer = self.thread()?.finish(&self.clock, sent).await;
            let answer = answer.ok_or_else(closed)?;
            let answer = answer.ok_or_else(|| silent(verb, path))?;
            let answer = answer.map_err(|error| unanswered(verb, path, error))?;
            if matches!(answer.code, 200..=299 | 403 | 404 | 409) {
                self.accepted(now.logins);
            }
            if matches!(answer.code, 200..=299 | 404 | 409) {
                return Ok(answer);
            }
            let error = answer.refusal(verb, path);
            let pause = answer.retry_after;
            match answer.code {
                // The token of a service account is replaced every hour.
                401 if refused.is_none() => self.log_in_again(now.logins, &error).await?,
                429 => self.pace.rest(pause),
                500.. if answer.retry_after.is_some() => {
                    self.pace.rest(pause);
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

    /// The client that serves now. Credentials that end soon are replaced beside it.
    pub(super) fn client(self: &Arc<Self>) -> LoggedIn {
        let mut login = self.login.lock();
        if login.is_due(self.clock.boot()) {
            // It serves while there is no other.
            let _ = self.running(&mut login);
        }
        login.now.clone()
    }

    /// The server has accepted the credentials of this login.
    pub(super) fn accepted(&self, logins: u64) {
        self.login.lock().accepted(logins, self.clock.boot());
    }

    pub(super) fn thread(&self) -> Result<Arc<Thread>, Error> {
        self.thread.lock().clone().ok_or_else(closed)
    }

    /// Waits until other credentials have replaced those of a login, which the server refused.
    ///
    /// # Errors
    ///
    /// That of the login; that of the last one, or the refusal, if it is too early for another.
    pub(super) async fn log_in_again(
        self: &Arc<Self>,
        refused: u64,
        refusal: &Error,
    ) -> Result<(), Error> {
        let running = {
            let mut login = self.login.lock();
            if login.now.logins != refused {
                return Ok(());
            }
            match self.running(&mut login)? {
                Some(running) => running,
                None => return Err(login.failed.clone().unwrap_or_else(|| refusal.clone())),
            }
        };
        running.await
    }

    /// The login that runs, or another one; `None` if it is too early.
    fn running(self: &Arc<Self>, login: &mut Login) -> Result<Option<Running>, Error> {
        if login.may_begin(self.clock.boot()) {
            let link = Arc::clone(self);
            let task = self.thread()?.begin(async move {
                let cluster = Some(link.cluster.clone());
                let made = log_in(link.options.clone(), cluster);
                let made = link.clock.timeout(OPENING, made).await;
                let made = made.unwrap_or_else(|| Err(no_login()));
                if let Err(error) = &made {
                    tracing::warn!(target: "leasehold::kubernetes", %error, "a login failed");
                }
                link.login.lock().ended(made, link.clock.boot())
            });
            let ended = async { task.await.unwrap_or_else(|_| Err(closed())) };
            login.running = Some(ended.boxed().shared());
        }
        Ok(login.running.clone())
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

fn no_login() -> Error {
    Error::unavailable(
        "the API server, or the plugin for credentials, does not answer; check its address and its state",
    )
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
