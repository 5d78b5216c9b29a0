//! [`Connector`]: how the client of `object_store` sends a request.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use http_body_util::BodyExt;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{Client, Error as SendError, connect};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use rustls::RootCertStore;

use super::answer::{self, Answer, Request};
use crate::model::error::Error;
use crate::store::access::ciphers;
use crate::store::http::{Pace, Thread};

/// How often a request is sent, if the server refused it for now and without effect.
const TRIES: usize = 4;
/// How long a connection may take.
const CONNECTING: Duration = Duration::from_secs(5);
/// A connection that is older is not used again: a router may have forgotten it.
const IDLE: Duration = Duration::from_secs(30);
/// How many connections wait for the next request. A list leaves many.
const MOST_IDLE: usize = 4;
/// A longer text of a refusal is not read.
const LONGEST_REFUSAL: usize = 64 * 1024;

/// Makes connections on a thread of their own, so that no runtime of a caller ends them.
#[derive(Debug)]
pub(super) struct Connector {
    thread: Arc<Thread>,
    pace: Arc<Pace>,
    roots: RootCertStore,
}

impl Connector {
    /// Reads the certificates of the system, or those that `SSL_CERT_FILE` names.
    pub(super) async fn new(thread: Arc<Thread>, pace: Pace) -> Result<Self, Error> {
        // They are read from many files.
        let load = || rustls_native_certs::load_native_certs().certs;
        let loaded =
            (thread.run(async move { tokio::task::spawn_blocking(load).await.ok() })).await;
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(loaded.flatten().unwrap_or_default());
        Ok(Self {
            thread,
            pace: Arc::new(pace),
            roots,
        })
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let tls = ciphers::builder().map_err(|error| object_store::Error::Generic {
            store: "TLS",
            source: Box::new(error),
        })?;
        let tls = tls.with_root_certificates(self.roots.clone());
        let tls = tls.with_no_client_auth();
        let is_plain_allowed = options.get_config_value(&ClientConfigKey::AllowHttp);
        let https = HttpsConnectorBuilder::new().with_tls_config(tls);
        let https = match is_plain_allowed.as_deref() {
            Some("true") => https.https_or_http(),
            _ => https.https_only(),
        };
        let mut tcp = connect::HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECTING));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(MOST_IDLE)
            .build(https.enable_http1().wrap_connector(tcp));
        Ok(HttpClient::new(Service {
            client,
            thread: Arc::clone(&self.thread),
            pace: Arc::clone(&self.pace),
        }))
    }
}

struct Service {
    client: Client<HttpsConnector<connect::HttpConnector>, HttpRequestBody>,
    thread: Arc<Thread>,
    pace: Arc<Pace>,
}

impl Service {
    /// Sends a request until it has an answer that says what became of it: success, absent, or not
    /// as expected.
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let asked = Request::of(&request);
        let mut refused = None;
        for _ in 0..TRIES {
            self.pace.rested().await;
            let sent = self.client.request(request.clone());
            let answered = self.thread.finish(self.pace.clock(), sent).await;
            let answered = answered.ok_or_else(closed)?.ok_or_else(|| silent(&asked))?;
            let (head, body) = answered
                .map_err(|error| unanswered(&asked, error))?
                .into_parts();
            let body = body.map_err(|error| HttpError::new(HttpErrorKind::Interrupted, error));
            let mut body = HttpResponseBody::new(body);
            if head.status.is_success() {
                return Ok(HttpResponse::from_parts(head, body));
            }
            let answer = Answer {
                code: head.status.as_u16(),
                text: text(&mut body).await,
            };
            if answer.is_about_the_object() {
                let body = HttpResponseBody::from(answer.text);
                return Ok(HttpResponse::from_parts(head, body));
            }
            let pause = head.headers.get(http::header::RETRY_AFTER);
            let pause = pause.and_then(|value| value.to_str().ok()?.parse().ok());
            let pause = pause.map(Duration::from_secs);
            let error = answer.refusal(&asked);
            match answer.code {
                429 => self.pace.rest(pause),
                503 => {
                    self.pace.rest(pause);
                    if asked.writes {
                        return Err(of(error));
                    }
                }
                _ => return Err(of(error)),
            }
            refused = Some(error);
        }
        Err(refused.map_or_else(closed, of))
    }
}

impl HttpService for Service {
    fn call<'life0, 'async_trait>(
        &'life0 self,
        request: HttpRequest,
    ) -> BoxFuture<'async_trait, Result<HttpResponse, HttpError>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(self.send(request))
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").finish_non_exhaustive()
    }
}

/// The text of a refusal, as far as it can be read.
async fn text(body: &mut HttpResponseBody) -> String {
    let mut bytes = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        if bytes.len() > LONGEST_REFUSAL {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn unanswered(asked: &Request, error: SendError) -> HttpError {
    let kind = match error.is_connect() {
        true => HttpErrorKind::Connect,
        false => HttpErrorKind::Interrupted,
    };
    let was_sent = !error.is_connect();
    HttpError::new(kind, answer::unanswered(asked, was_sent).because(error))
}

fn silent(asked: &Request) -> HttpError {
    of(answer::unanswered(asked, true))
}

fn closed() -> HttpError {
    of(Error::closed("the store is closed; open another one"))
}

/// A kind that `object_store` does not send again.
fn of(error: Error) -> HttpError {
    HttpError::new(HttpErrorKind::Unknown, error)
}
