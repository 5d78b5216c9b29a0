//! What is shown of the causes that other crates give: no secret of a kubeconfig or of its plugin.

use std::error::Error as StdError;

use kube::client::AuthError;
use kube::config::KubeconfigError;

use crate::model::error::BoxError;

/// The cause of a failed request or login. An error of a plugin for credentials shows its
/// environment and all that it printed.
pub(super) fn of_request(error: kube::Error) -> BoxError {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(&error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref() {
            return of_login(error).into();
        }
        cause = error.source();
    }
    match error {
        kube::Error::ProxyProtocolUnsupported { .. }
        | kube::Error::ProxyProtocolDisabled { .. } => {
            "the proxy has a protocol that is not supported".into()
        }
        error => error.into(),
    }
}

fn of_login(error: &AuthError) -> String {
    match error {
        AuthError::AuthExecRun { out, .. } => {
            format!("the plugin for credentials failed: {}", out.status)
        }
        AuthError::ReadTokenFile(error, path) => {
            format!("the token cannot be read: path={} {error}", path.display())
        }
        _ => "the credentials cannot be used".to_owned(),
    }
}

/// The cause of a kubeconfig that cannot be used. An error of its syntax shows the lines around it.
pub(super) fn of_kubeconfig(error: KubeconfigError) -> BoxError {
    match error {
        KubeconfigError::Parse(error) => match error.location() {
            Some(place) => format!("it is no kubeconfig: line={}", place.line()).into(),
            None => "it is no kubeconfig".into(),
        },
        error => error.into(),
    }
}
