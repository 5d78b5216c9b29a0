//! A plugin for credentials (`exec` of a kubeconfig): started once for each login, and killed when
//! nobody waits for it any more.

use std::io::{IsTerminal, Read};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::serde_json::{Value, json};
use kube::config::{AuthInfo, ExecConfig, ExecInteractiveMode, Kubeconfig};

use crate::clock::{Clock, wall_millis};

/// The most that is read of what a plugin prints.
const LONGEST: u64 = 1 << 20;
/// A plugin that has closed its output is asked so often whether it has ended.
const POLL: Duration = Duration::from_millis(5);

/// Replaces the plugin of a user by the credentials that it gives, and says how long they live.
/// `kube` would start it three times for each client, and again inside a request.
///
/// # Errors
///
/// What is wrong, without a secret.
pub(super) async fn replace(user: &mut AuthInfo) -> Result<Option<Duration>, String> {
    let has_others = user.auth_provider.is_some()
        || (user.username.is_some() && user.password.is_some())
        || user.token.is_some()
        || user.token_file.is_some();
    if has_others {
        return Ok(None);
    }
    let Some(exec) = user.exec.take() else {
        return Ok(None);
    };
    let none = || "the plugin for credentials printed none".to_owned();
    let printed = run(command(&exec)?).await?;
    let status = read(&printed).ok_or_else(none)?;
    let text = |name: &str| status[name].as_str().filter(|text| !text.is_empty());
    let encoded = |pem: &str| {
        let encoded = json!(ByteString(pem.as_bytes().to_vec()));
        encoded.as_str().unwrap_or_default().to_owned()
    };
    let pair = text("clientCertificateData").zip(text("clientKeyData"));
    if let Some((certificate, key)) = pair {
        user.client_certificate_data = Some(encoded(certificate));
        user.client_key_data = Some(encoded(key).into());
    }
    user.token = text("token").map(|token| token.to_owned().into());
    if user.token.is_none() && pair.is_none() {
        return Err(none());
    }
    let Some(until) = text("expirationTimestamp") else {
        return Ok(None);
    };
    let until: Timestamp = (until.parse())
        .map_err(|_| "the expirationTimestamp of the plugin for credentials is no time")?;
    let until = u64::try_from(until.as_millisecond()).unwrap_or_default();
    let left = until.saturating_sub(wall_millis());
    Ok(Some(Duration::from_millis(left)))
}

fn command(exec: &ExecConfig) -> Result<Command, String> {
    let program = exec.command.as_ref();
    let program = program.ok_or("the plugin for credentials has no command")?;
    let has_terminal = std::io::stdin().is_terminal();
    let is_interactive = is_interactive(exec.interactive_mode.as_ref(), has_terminal);
    let mut spec = json!({"interactive": is_interactive});
    if exec.provide_cluster_info {
        spec["cluster"] = json!(exec.cluster);
    }
    let info = json!({"kind": "ExecCredential", "apiVersion": exec.api_version, "spec": spec});
    let mut command = Command::new(program);
    command.args(exec.args.iter().flatten());
    let pairs = exec.env.iter().flatten();
    command.envs(pairs.filter_map(|pair| pair.get("name").zip(pair.get("value"))));
    command.env("KUBERNETES_EXEC_INFO", info.to_string());
    command.stdout(Stdio::piped());
    if !is_interactive {
        command.stdin(Stdio::null()).stderr(Stdio::null());
        // All that it starts is killed with it. One that asks its user stays with the terminal.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
    }
    Ok(command)
}

/// Whether a plugin may ask its user.
fn is_interactive(mode: Option<&ExecInteractiveMode>, has_terminal: bool) -> bool {
    has_terminal && mode != Some(&ExecInteractiveMode::Never)
}

/// What it prints.
async fn run(mut command: Command) -> Result<Vec<u8>, String> {
    // A process ends in real time, whatever the clock of the store is.
    let clock = Clock::system().map_err(|error| error.to_string())?;
    let unread = || "what the plugin for credentials prints cannot be read".to_owned();
    let started = blocking(move || command.spawn().map(|child| Plugin(Some(child)))).await;
    let mut plugin = started
        .ok_or_else(unread)?
        .map_err(|error| format!("the plugin for credentials cannot be started: {error}"))?;
    let output = plugin.0.as_mut().and_then(|child| child.stdout.take());
    let output = output.ok_or_else(unread)?;
    let read = blocking(move || {
        let mut text = Vec::new();
        output.take(LONGEST).read_to_end(&mut text).map(|_| text)
    });
    let text = read.await.and_then(Result::ok).ok_or_else(unread)?;
    while let Some(child) = plugin.0.as_mut() {
        // Where SIGCHLD is ignored, nobody learns its status.
        if let Ok(status) = child.try_wait() {
            let Some(status) = status else {
                clock.sleep(POLL).await;
                continue;
            };
            if !status.success() {
                plugin.0 = None;
                return Err(format!("the plugin for credentials failed: {status}"));
            }
        }
        plugin.0 = None;
    }
    Ok(text)
}

/// The status of an `ExecCredential`, which may be YAML. `kube` reads YAML as a kubeconfig only,
/// where an extension may be anything.
fn read(printed: &[u8]) -> Option<Value> {
    let printed = std::str::from_utf8(printed).ok()?;
    let mut text = "extensions:\n- name: x\n  extension:\n".to_owned();
    for line in printed.lines().filter(|line| !line.starts_with("---")) {
        text.push_str(&format!("    {line}\n"));
    }
    let read = Kubeconfig::from_yaml(&text).ok()?.extensions?;
    read.into_iter().next()?.extension.get("status").cloned()
}

/// Runs what blocks beside the requests of a thread. `None` if its runtime has ended.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

/// Killed when it is dropped; `None` once its status was read.
struct Plugin(Option<Child>);

impl Drop for Plugin {
    fn drop(&mut self) {
        let Some(mut child) = self.0.take() else {
            return;
        };
        #[cfg(unix)]
        kill_group(&child);
        let _ = child.kill();
        // Its end may take long, or never come: another user's may not be killed. The thread of
        // the store does not wait for it.
        let name = "leasehold-reap".to_owned();
        let reap = move || drop(child.wait());
        let _ = std::thread::Builder::new().name(name).spawn(reap);
    }
}

/// Kills all that a plugin has started. The plugin itself may have exited.
#[cfg(unix)]
fn kill_group(child: &Child) {
    use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

    let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else {
        return;
    };
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    // While its status was not read, its number is no other process's.
    if waitid(WaitId::Pid(group), look).is_ok() {
        // An error says that it leads none.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_may_ask_its_user_if_there_is_a_terminal() {
        let modes = [None, Some(ExecInteractiveMode::IfAvailable)];
        for mode in modes.into_iter().chain([Some(ExecInteractiveMode::Always)]) {
            assert!(is_interactive(mode.as_ref(), true));
            assert!(!is_interactive(mode.as_ref(), false));
        }
        assert!(!is_interactive(Some(&ExecInteractiveMode::Never), true));
    }
}
