//! What an answer of the API server proves, and what to do about a refusal.

use std::error::Error as StdError;
use std::time::Duration;

use hyper_util::client::legacy::Error as HttpError;
use kube::core::Status;

use super::cause;
use crate::model::error::{Error, ErrorKind};

/// The longest text of a server that a message shows.
const SHOWN: usize = 300;

/// What is asked for, in the words of a Role.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
}

impl Verb {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
        }
    }

    /// Whether a request without an answer may have changed something.
    pub(super) const fn writes(self) -> bool {
        matches!(self, Self::Create | Self::Update)
    }
}

/// What a path of the API names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct On<'a> {
    group: &'a str,
    resource: &'a str,
    /// Empty for an object of the cluster.
    namespace: &'a str,
}

impl<'a> On<'a> {
    /// Of `/api/v1/...` and `/apis/group/version/...`, with or without `namespaces/name`.
    fn of(path: &'a str) -> Self {
        let path = path.split('?').next().unwrap_or_default();
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let (group, rest) = match parts.as_slice() {
            ["apis", group, _, rest @ ..] => (*group, rest),
            ["api", _, rest @ ..] => ("", rest),
            rest => ("", rest),
        };
        let (namespace, resource) = match rest {
            ["namespaces", namespace, resource, ..] => (*namespace, *resource),
            [resource, ..] => ("", *resource),
            [] => ("", ""),
        };
        Self {
            group,
            resource,
            namespace,
        }
    }

    fn asked(&self, verb: Verb) -> String {
        let (resource, namespace) = (self.resource, self.namespace);
        format!(
            "verb={} resource={resource} namespace={namespace}",
            verb.word()
        )
    }

    /// The commands that allow all that is sent about such a resource, to the account that a
    /// refusal names.
    fn role(&self, refusal: &str) -> String {
        let namespace = self.namespace;
        let (role, verbs) = match self.resource {
            "leases" => ("leasehold".to_owned(), "get,list,watch,create,update"),
            // An object behind a fence.
            other => (format!("leasehold-{other}"), "get,update"),
        };
        let account = refusal.split_once("system:serviceaccount:");
        // It is part of a command, so it may have the letters of two names only.
        let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':');
        let account = account
            .and_then(|(_, rest)| Some(rest.split_once('"')?.0.to_owned()))
            .filter(|account| account.chars().all(letter))
            .unwrap_or_else(|| format!("{namespace}:NAME"));
        format!(
            "kubectl -n {namespace} create role {role} --verb={verbs} --resource={} && \
             kubectl -n {namespace} create rolebinding {role} --role={role} \
             --serviceaccount={account}",
            self.resource_of_group()
        )
    }

    fn resource_of_group(&self) -> String {
        let dot = if self.group.is_empty() { "" } else { "." };
        format!("{}{dot}{}", self.resource, self.group)
    }
}

/// An answer with its body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    /// When the server asks to come again.
    pub(super) retry_after: Option<Duration>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The error of an answer that is no success.
    pub(super) fn refusal(&self, verb: Verb, path: &str) -> Error {
        let text = match k8s_openapi::serde_json::from_slice::<Status>(&self.body) {
            Ok(status) => status.message,
            Err(_) => String::from_utf8_lossy(&self.body).into_owned(),
        };
        refusal(self.code, &text, verb, path)
    }
}

/// The error of a refusal with this code and the server's text.
pub(super) fn refusal(code: u16, text: &str, verb: Verb, path: &str) -> Error {
    let on = On::of(path);
    let asked = on.asked(verb);
    let text: String = text
        .chars()
        .filter(|c| !c.is_control())
        .take(SHOWN)
        .collect();
    let error = match code {
        401 => Error::denied(format!(
            "the API server does not accept the credentials: {asked}; check the kubeconfig or the service account"
        ))
        // They are read again with the next request.
        .that_may_pass(),
        403 => Error::denied(format!(
            "the API server forbids it: {asked}; if a Role is missing: {}",
            on.role(&text)
        )),
        404 if verb == Verb::Create => Error::invalid(format!(
            "there is no such namespace: {asked}; create it, or name another in the URL"
        )),
        404 => Error::unsupported(format!(
            "this API server has no such resource: {asked}; for leases use Kubernetes 1.14 or newer"
        )),
        429 => Error::unavailable(format!(
            "the API server asks to send less: {asked}; lengthen the ttl, or give this account a priority level"
        )),
        400..=499 => Error::invalid(format!(
            "the API server refuses the request: {asked} code={code}; see the cause"
        )),
        // It may have stored the object and failed afterwards.
        _ if verb.writes() => Error::in_doubt(format!(
            "the API server failed at a write, which may be stored: {asked} code={code}; look at its log"
        )),
        _ => Error::unavailable(format!(
            "the API server failed: {asked} code={code}; look at its log"
        )),
    };
    error.because(text)
}

/// The error of a request without an answer.
pub(super) fn unanswered(verb: Verb, path: &str, error: kube::Error) -> Error {
    let kind = match () {
        () if was_not_sent(&error) || !verb.writes() => ErrorKind::Unavailable,
        () => ErrorKind::InDoubt,
    };
    no_answer(kind, verb, path).because(cause::of_request(error))
}

/// The error of a request that was waited for as long as any is.
pub(super) fn silent(verb: Verb, path: &str) -> Error {
    let kind = match verb.writes() {
        true => ErrorKind::InDoubt,
        false => ErrorKind::Unavailable,
    };
    no_answer(kind, verb, path)
}

fn no_answer(kind: ErrorKind, verb: Verb, path: &str) -> Error {
    let asked = On::of(path).asked(verb);
    let message =
        format!("no answer from the API server: {asked}; check its address and its state");
    Error::new(kind, message)
}

/// Whether no connection could be made, or the credentials could not be had.
fn was_not_sent(error: &kube::Error) -> bool {
    if matches!(error, kube::Error::Auth(_)) {
        return true;
    }
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = cause {
        if (error.downcast_ref::<HttpError>()).is_some_and(HttpError::is_connect) {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/shop/leases/a?x=/y";

    #[test]
    fn a_path_names_its_resource() {
        let on = On::of(LEASES);
        assert_eq!(
            on.asked(Verb::Get),
            "verb=get resource=leases namespace=shop"
        );
        assert_eq!(on.resource_of_group(), "leases.coordination.k8s.io");
        let on = On::of("/api/v1/namespaces/shop/configmaps/prices");
        assert_eq!(on.resource_of_group(), "configmaps");
        assert_eq!(On::of("/api/v1/nodes/a").resource, "nodes");
    }

    fn kind(code: u16, verb: Verb) -> ErrorKind {
        refusal(code, "", verb, LEASES).kind()
    }

    #[test]
    fn only_a_failure_of_the_server_leaves_a_write_in_doubt() {
        for code in [400, 401, 403, 404, 413, 422, 429] {
            assert_ne!(kind(code, Verb::Update), ErrorKind::InDoubt, "{code}");
        }
        for code in [500, 502, 503, 504] {
            assert_eq!(kind(code, Verb::Update), ErrorKind::InDoubt, "{code}");
            assert_eq!(kind(code, Verb::Create), ErrorKind::InDoubt, "{code}");
            assert_eq!(kind(code, Verb::Get), ErrorKind::Unavailable, "{code}");
        }
    }

    #[test]
    fn what_is_forbidden_is_named_with_the_role_that_allows_it() {
        let error = refusal(403, "user x cannot", Verb::Update, LEASES).to_string();
        assert!(error.contains("verb=update"), "{error}");
        assert!(error.contains("kubectl -n shop create role"), "{error}");
        assert!(error.contains("--serviceaccount=shop:NAME"), "{error}");
    }

    #[test]
    fn the_role_is_for_the_account_that_asked_and_for_what_it_asked_for() {
        let text = r#"configmaps "prices" is forbidden: User "system:serviceaccount:web:worker" cannot get resource"#;
        let path = "/api/v1/namespaces/shop/configmaps/prices";
        let error = refusal(403, text, Verb::Get, path).to_string();
        for part in [
            "create role leasehold-configmaps --verb=get,update --resource=configmaps ",
            "create rolebinding leasehold-configmaps --role=leasehold-configmaps ",
            "--serviceaccount=web:worker",
        ] {
            assert!(error.contains(part), "{error}");
        }
        let text = text.replace("worker", "worker; echo");
        let error = refusal(403, &text, Verb::Get, path).to_string();
        assert!(error.ends_with("--serviceaccount=shop:NAME"), "{error}");
    }
}
