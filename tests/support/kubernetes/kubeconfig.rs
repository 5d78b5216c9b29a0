//! Files that name an API server and a user.

use std::fs;
use std::path::Path;

/// Writes a kubeconfig; `user` is the line that says who it is.
pub(crate) fn write(folder: &Path, server: &str, authority: Option<&Path>, user: &str) {
    let authority = authority.map_or_else(String::new, |path| {
        format!(", certificate-authority: {}", path.display())
    });
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters:\n- {{name: c, cluster: {{server: {server:?}{authority}}}}}\n\
         users:\n- {{name: u, user: {{{user}}}}}\n\
         contexts:\n- {{name: c, context: {{cluster: c, user: u}}}}\n"
    );
    fs::write(folder.join("kubeconfig"), text).unwrap();
}

/// The URL of a store that uses it.
pub(crate) fn url(folder: &Path, namespace: &str) -> String {
    format!(
        "k8s://{namespace}?kubeconfig={}/kubeconfig",
        folder.display()
    )
}
