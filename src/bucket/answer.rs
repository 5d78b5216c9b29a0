//! What an answer of an object storage proves, and what to do about a refusal.

use std::error::Error as StdError;

use object_store::Error as ObjectError;
use object_store::client::HttpRequest;
use object_store::path::Path;

use crate::model::error::{Error, ErrorKind};

/// The longest text of a server that a message shows.
const SHOWN: usize = 300;

/// A request, for messages: without its path, its query and its headers.
#[derive(Debug)]
pub(super) struct Request {
    asked: String,
    /// Whether a request without an answer may have changed something.
    pub(super) writes: bool,
}

impl Request {
    pub(super) fn of(request: &HttpRequest) -> Self {
        let (method, host) = (request.method(), request.uri().host());
        Self {
            asked: format!("method={method} host={}", host.unwrap_or_default()),
            writes: !method.is_safe(),
        }
    }
}

/// An answer that is no success.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) text: String,
}

impl Answer {
    /// Whether it says that the object is absent, or not the expected one. Others answer with these
    /// codes too: a gateway, or a service that forbids the change for ever.
    pub(super) fn is_about_the_object(&self) -> bool {
        match (self.code, self.field("Code")) {
            (304, _) => true,
            (404, "") => self.text.is_empty(),
            (404, code) => matches!(code, "NoSuchKey" | "BlobNotFound" | "ResourceNotFound"),
            (409 | 412, "") => true,
            (409, code) => matches!(
                code,
                "BlobAlreadyExists" | "ConditionalRequestConflict" | "OperationAborted"
            ),
            (412, code) => matches!(code, "ConditionNotMet" | "PreconditionFailed"),
            _ => false,
        }
    }

    /// A field of the XML of a refusal. Nothing else of it is shown: a refusal may repeat what was
    /// sent, with the token of a session in it.
    fn field(&self, name: &str) -> &str {
        let (_, rest) = self
            .text
            .split_once(&format!("<{name}>"))
            .unwrap_or_default();
        rest.split_once('<').unwrap_or_default().0
    }

    /// What the server says of a refusal.
    fn shown(&self) -> String {
        let said = format!("{} {}", self.field("Code"), self.field("Message"));
        let said = said.chars().filter(|c| !c.is_control()).take(SHOWN);
        said.collect()
    }

    /// The error of a refusal.
    pub(super) fn refusal(&self, request: &Request) -> Error {
        let (asked, code) = (&request.asked, self.code);
        let error = match (code, self.field("Code")) {
            (401, _)
            | (400 | 403, "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired")
            | (403, "InvalidAccessKeyId" | "SignatureDoesNotMatch" | "AuthenticationFailed") => {
                Error::denied(format!(
                    "the object storage does not accept the credentials, or they have expired: {asked}; check what gives them"
                ))
                // Most are replaced while the program runs.
                .that_may_pass()
            }
            (403, "RequestTimeTooSkewed") => {
                let skewed = Error::denied(format!(
                    "the clock of this machine is too far from that of the object storage: {asked}; set it"
                ));
                skewed.that_may_pass()
            }
            (403, _) => Error::denied(format!(
                "the object storage forbids it: {asked}; allow s3:GetObject and s3:PutObject for the objects under the prefix, and s3:ListBucket for the bucket; on Azure the role Storage Blob Data Contributor"
            )),
            (404, "NoSuchBucket" | "ContainerNotFound") => Error::invalid(format!(
                "there is no such bucket or container: {asked}; create it, or name another in the URL"
            )),
            (300..=399, _) => Error::invalid(format!(
                "the bucket is somewhere else: {asked} code={code}; set region= or endpoint= in the URL"
            )),
            (429, _) => Error::unavailable(format!(
                "the object storage asks to send less: {asked}; lengthen the ttl"
            )),
            (501, _) => Error::unsupported(format!(
                "this object storage cannot do it: {asked}; use a service with conditional writes (If-Match, If-None-Match)"
            )),
            // A 404 of a gateway.
            (404 | 408, _) | (500.., _) | (_, "RequestTimeout") => {
                failed(request, &format!("{asked} code={code}"))
            }
            _ => Error::invalid(format!(
                "the object storage refuses the request: {asked} code={code}; see the cause"
            )),
        };
        error.because(self.shown())
    }
}

/// It may have stored the object and failed afterwards.
fn failed(request: &Request, asked: &str) -> Error {
    match request.writes {
        true => Error::in_doubt(format!(
            "the object storage failed at a write, which may be stored: {asked}; look at its state"
        )),
        false => Error::unavailable(format!(
            "the object storage failed: {asked}; look at its state"
        )),
    }
}

/// The error of a request without an answer.
pub(super) fn unanswered(request: &Request, was_sent: bool) -> Error {
    let kind = match was_sent && request.writes {
        true => ErrorKind::InDoubt,
        false => ErrorKind::Unavailable,
    };
    let (asked, link_local) = (&request.asked, "host=169.254.");
    let check = match asked.contains(link_local) {
        true => {
            "no credentials are in the environment, and no server of this machine gives any; set them"
        }
        false => "check its address and its state",
    };
    Error::new(
        kind,
        format!("no answer from the object storage: {asked}; {check}"),
    )
}

/// The error of a client of `object_store`. If it is not ours, what it proves is less known.
pub(super) fn error(path: &Path, writes: bool, error: ObjectError) -> Error {
    if let Some(known) = known(&error) {
        return known.clone();
    }
    let asked = format!("path={path}");
    match &error {
        ObjectError::PermissionDenied { .. } | ObjectError::Unauthenticated { .. } => {
            Error::denied(format!(
                "the object storage refuses this caller: {asked}; allow it to read, write and list the prefix"
            ))
        }
        ObjectError::NotSupported { .. } | ObjectError::NotImplemented { .. } => {
            Error::unsupported(format!(
                "this client of an object storage has no conditional writes: {asked}; use another one"
            ))
        }
        ObjectError::InvalidPath { .. } => Error::corrupt(format!(
            "an object under the prefix has a name that is no path: {asked}; delete it, or use another prefix"
        )),
        ObjectError::NotFound { .. } => Error::invalid(format!(
            "there is no such bucket or container: {asked}; create it"
        )),
        _ if writes => Error::in_doubt(format!(
            "a write was not answered: {asked}; check the object storage"
        )),
        _ => Error::unavailable(format!("the object storage did not answer: {asked}; check it")),
    }
    .because(error)
}

/// The error that our own connection gave.
fn known(error: &ObjectError) -> Option<&Error> {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref() {
            return Some(error);
        }
        cause = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(code: u16, name: &str, method: &str) -> Error {
        let request = http::Request::builder()
            .method(method)
            .uri("https://s3.example/b/k?x=y");
        let request = Request::of(&request.body(Vec::new().into()).unwrap());
        let text = format!("<Error><Code>{name}</Code><Token-0>sesame</Token-0></Error>");
        Answer { code, text }.refusal(&request)
    }

    #[test]
    fn only_a_failure_of_the_service_leaves_a_write_in_doubt() {
        for code in [301, 400, 401, 403, 409, 412, 413, 429, 501] {
            assert_ne!(
                refusal(code, "", "PUT").kind(),
                ErrorKind::InDoubt,
                "{code}"
            );
        }
        for code in [404, 408, 500, 502, 503, 504] {
            assert_eq!(
                refusal(code, "", "PUT").kind(),
                ErrorKind::InDoubt,
                "{code}"
            );
            assert_eq!(
                refusal(code, "", "GET").kind(),
                ErrorKind::Unavailable,
                "{code}"
            );
        }
    }

    #[test]
    fn a_refusal_shows_nothing_that_was_sent() {
        for code in ["ExpiredToken", "AccessDenied"] {
            let error = refusal(403, code, "PUT");
            assert_eq!(error.kind(), ErrorKind::Denied);
            let shown = format!("{error} {error:?}");
            assert!(shown.contains(code) && !shown.contains("sesame"), "{shown}");
            assert!(!shown.contains("x=y"), "{shown}");
        }
    }

    #[test]
    fn expired_credentials_may_be_replaced_and_a_missing_right_may_not() {
        assert!(!refusal(400, "ExpiredToken", "PUT").is_denied_for_good());
        let error = refusal(403, "AccessDenied", "PUT");
        assert!(error.is_denied_for_good() && error.to_string().contains("s3:ListBucket"));
    }
}
