//! A program as in a pod: its service account is mounted where the kubelet mounts it.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::api_server::ApiServer;

/// What runs in a mount namespace of its own, so that nothing on this machine changes.
const MOUNTED: &str = "mount -t tmpfs none /var/run && \
     at=/var/run/secrets/kubernetes.io/serviceaccount && \
     mkdir -p $at && mount --bind \"$0\" $at && exec \"$@\"";

/// The folder of a service account.
pub(crate) struct Account {
    folder: PathBuf,
    port: u16,
    namespace: String,
}

impl Account {
    pub(crate) async fn mounted(server: &ApiServer, namespace: &str, name: &str) -> Self {
        let folder = server.folder().join(format!("account-{name}"));
        fs::create_dir_all(&folder).unwrap();
        let account = Self {
            folder,
            port: server.port(),
            namespace: namespace.to_owned(),
        };
        let authority = fs::read(server.authority()).unwrap();
        account.swap(&server.token_of(namespace, name).await, &authority);
        for file in ["token", "ca.crt", "namespace"] {
            symlink(format!("..data/{file}"), account.folder.join(file)).unwrap();
        }
        account
    }

    /// As the kubelet does it: all files of the new version appear at once.
    pub(crate) fn rotate(&self, token: &str) {
        let authority = fs::read(self.folder.join("ca.crt")).unwrap();
        self.swap(token, &authority);
    }

    fn swap(&self, token: &str, authority: &[u8]) {
        let versions = fs::read_dir(&self.folder).unwrap().count();
        let version = format!("..version-{versions}");
        let files = self.folder.join(&version);
        fs::create_dir_all(&files).unwrap();
        fs::write(files.join("token"), token).unwrap();
        fs::write(files.join("ca.crt"), authority).unwrap();
        fs::write(files.join("namespace"), &self.namespace).unwrap();
        let next = self.folder.join("..data_tmp");
        symlink(version, &next).unwrap();
        fs::rename(next, self.folder.join("..data")).unwrap();
    }

    /// The program in a pod of this account. Its process is the one that is started.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--map-root-user", "sh", "-c", MOUNTED]);
        command.arg(&self.folder).arg(program);
        command
            .env_remove("KUBECONFIG")
            .env("HOME", "/nonexistent")
            .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
            .env("KUBERNETES_SERVICE_PORT", self.port.to_string());
        command
    }
}
