//! Kubeconfigs that cannot be used, and plugins for credentials.

use std::error::Error as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use leasehold::clock::{Clock, ManualClock};
use leasehold::kubernetes::{KubernetesOptions, KubernetesStore};
use leasehold::store::{Acquired, Claim, Grant, Label, OwnerToken, Renewed, Store};
use leasehold::{Error, ErrorKind, Key};

use crate::kubernetes::fake::{FakeApiServer, Fault};
use crate::kubernetes::kubeconfig;

const SECRET: &str = "s3cret";

/// Writes the user into the kubeconfig of a server.
fn set_user(server: &FakeApiServer, user: &str) {
    let path = server.folder().join("kubeconfig");
    let address = fs::read_to_string(&path).unwrap();
    let address = address.split('"').nth(1).unwrap().to_owned();
    kubeconfig::write(server.folder(), &address, None, user);
}

/// The error for the user of a kubeconfig.
async fn refused(user: &str) -> Error {
    let server = FakeApiServer::start().await;
    set_user(&server, user);
    KubernetesStore::connect(&server.url()).await.unwrap_err()
}

fn shown(error: &Error) -> String {
    let mut shown = format!("{error} {error:?}");
    let mut cause = error.source();
    while let Some(error) = cause {
        shown += &format!(" {error} {error:?}");
        cause = error.source();
    }
    shown
}

fn plugin(command: &str, args: &str) -> String {
    format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, \
         command: {command}, args: {args}, env: [{{name: A, value: {SECRET}}}]}}"
    )
}

#[tokio::test]
async fn an_error_of_a_kubeconfig_or_its_plugin_shows_no_secret() {
    let cases = [
        (format!("token: {SECRET}, username: [x]"), "line=7"),
        (
            plugin("sh", &format!("[-c, 'echo {SECRET} >&2; exit 3']")),
            "exit status: 3",
        ),
        (
            plugin("echo", &format!("['{{\"status\": [\"{SECRET}\"]}}']")),
            "printed none",
        ),
        (plugin("no-such-plugin", "[]"), "cannot be started"),
    ];
    for (user, says) in cases {
        let error = refused(&user).await;
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
        let shown = shown(&error);
        assert!(!shown.contains(SECRET), "{shown}");
        assert!(shown.contains(says), "{shown}");
    }
}

#[tokio::test]
async fn a_plugin_that_hangs_is_not_waited_for() {
    let error = refused(&plugin("sleep", "['60']")).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
}

/// Sets a plugin that notes each start in the file `runs`, executes `then` from the second one on,
/// and prints the token in the file `token`, which lives as long as `lives` says.
fn set_plugin(server: &FakeApiServer, then: &str, lives: Option<&str>) {
    let folder = server.folder().display();
    let until = lives.map_or_else(String::new, |lives| {
        format!("\"expirationTimestamp\": \"'$(date -u -d '{lives}' +%FT%TZ)'\", ")
    });
    let script = format!(
        "cd {folder}; echo $$ >> runs\n\
         if [ $(wc -l < runs) -gt 1 ]; then {then}; fi\n\
         token=$(cat token)\n\
         echo '{{\"apiVersion\": \"client.authentication.k8s.io/v1\", \
         \"kind\": \"ExecCredential\", \"status\": {{{until}\"token\": \"'$token'\"}}}}'"
    );
    let path = server.folder().join("plugin");
    fs::write(&path, script).unwrap();
    set_token(server, "first");
    let args = format!("[{:?}]", path.to_str().unwrap());
    set_user(server, &plugin("sh", &args));
}

/// What the plugin prints from now on, and the server accepts.
fn set_token(server: &FakeApiServer, token: &str) {
    fs::write(server.folder().join("token"), token).unwrap();
    server.accept_only(token);
}

/// The processes of the plugin, in the order of their start.
fn runs(server: &FakeApiServer) -> Vec<String> {
    let runs = fs::read_to_string(server.folder().join("runs")).unwrap();
    runs.lines().map(str::to_owned).collect()
}

async fn granted(store: &KubernetesStore, key: &str) -> Grant {
    let label = Label::parse("host-a").unwrap();
    let owner = OwnerToken::generate().unwrap();
    let claim = Claim::new(key.parse().unwrap(), owner, label, Duration::from_secs(600));
    match store.acquire(&claim).await.unwrap() {
        Acquired::Granted(grant) => grant,
        other => panic!("{other:?}"),
    }
}

/// Renews as a manager does: each try has little time. Real time, in which a plugin runs.
async fn renew_until_extended(store: &KubernetesStore, held: &Grant) {
    let clock = Clock::system().unwrap();
    let limit = Duration::from_millis(200);
    for _ in 0..300 {
        let renewal = store.renew(std::slice::from_ref(held));
        match clock.timeout(limit, renewal).await.as_deref() {
            Some([Renewed::Extended(_)]) => return,
            // A refusal comes at once.
            Some(_) => clock.sleep(limit).await,
            None => {}
        }
    }
    panic!("the hold is never renewed");
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = Clock::system().unwrap();
    for _ in 0..1_000 {
        if is_so() {
            return;
        }
        clock.sleep(Duration::from_millis(20)).await;
    }
    panic!("it never happens: {what}");
}

#[tokio::test]
async fn a_plugin_that_takes_longer_than_a_request_costs_no_hold() {
    let server = FakeApiServer::start().await;
    set_plugin(&server, "sleep 1.5", Some("+70 seconds"));
    let time = ManualClock::new();
    let options = KubernetesOptions::parse(&server.url()).unwrap();
    let store = KubernetesStore::open(options, time.clone()).await.unwrap();
    let held = granted(&store, "a").await;
    assert_eq!(runs(&server).len(), 1);
    // The token ends soon.
    time.advance(Duration::from_secs(40));
    renew_until_extended(&store, &held).await;
    until("the second start", || runs(&server).len() == 2).await;
    // The server accepts it no longer.
    set_token(&server, "second");
    renew_until_extended(&store, &held).await;
    assert_eq!(runs(&server).len(), 2);
}

#[tokio::test]
async fn credentials_that_are_refused_are_replaced_by_a_plugin_that_takes_longer_than_a_request() {
    let server = FakeApiServer::start().await;
    set_plugin(&server, "sleep 1.5", None);
    let store = KubernetesStore::connect(&server.url()).await.unwrap();
    let held = granted(&store, "a").await;
    set_token(&server, "second");
    renew_until_extended(&store, &held).await;
    assert_eq!(runs(&server).len(), 2);
}

fn is_alive(process: &str) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(process).join("stat"));
    // Nobody may have asked for its status.
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[tokio::test]
async fn a_plugin_that_hangs_at_a_refresh_is_started_once() {
    let server = FakeApiServer::start().await;
    set_plugin(
        &server,
        "sleep 600 & echo $! >> child; wait",
        Some("+70 seconds"),
    );
    let time = ManualClock::new();
    let options = KubernetesOptions::parse(&server.url()).unwrap();
    let store = KubernetesStore::open(options, time.clone()).await.unwrap();
    let held = granted(&store, "a").await;
    time.advance(Duration::from_secs(40));
    let child = server.folder().join("child");
    let limit = Duration::from_millis(200);
    let clock = Clock::system().unwrap();
    for _ in 0..20 {
        let renewal = store.renew(std::slice::from_ref(&held));
        let renewed = clock.timeout(limit, renewal).await;
        assert!(
            matches!(renewed.as_deref(), None | Some([Renewed::Extended(_)])),
            "{renewed:?}"
        );
    }
    renew_until_extended(&store, &held).await;
    let started = || fs::read_to_string(&child).is_ok_and(|child| child.ends_with('\n'));
    until("the plugin has a child", started).await;
    assert_eq!(runs(&server).len(), 2);
    // The limit of a login, and the pause after it.
    time.advance(Duration::from_secs(10));
    let (plugin, child) = (runs(&server).remove(1), fs::read_to_string(&child).unwrap());
    until("the plugin and its child are killed", || {
        !is_alive(&plugin) && !is_alive(child.trim())
    })
    .await;
    renew_until_extended(&store, &held).await;
    // Real time, in which another one would be started.
    clock.sleep(limit).await;
    renew_until_extended(&store, &held).await;
    assert_eq!(runs(&server).len(), 2);
}

/// A store whose plugin executes `then` at a refresh that has begun, with a hold and its clock.
async fn refreshing(server: &FakeApiServer, then: &str) -> (KubernetesStore, Grant, ManualClock) {
    set_plugin(server, then, Some("+70 seconds"));
    let time = ManualClock::new();
    let options = KubernetesOptions::parse(&server.url()).unwrap();
    let store = KubernetesStore::open(options, time.clone()).await.unwrap();
    let held = granted(&store, "a").await;
    time.advance(Duration::from_secs(40));
    renew_until_extended(&store, &held).await;
    (store, held, time)
}

/// A line that the plugin has written into a file.
async fn written(server: &FakeApiServer, name: &str) -> String {
    let path = server.folder().join(name);
    let read = || fs::read_to_string(&path).unwrap_or_default();
    until(name, || read().ends_with('\n')).await;
    read().trim().to_owned()
}

#[tokio::test]
async fn what_a_plugin_leaves_behind_is_killed_although_it_has_exited() {
    let server = FakeApiServer::start().await;
    // The child keeps the output open.
    let then = "sleep 600 & echo $! > child; exit 0";
    let (_store, _held, time) = refreshing(&server, then).await;
    let child = written(&server, "child").await;
    let plugin = runs(&server).remove(1);
    until("the plugin exits", || !is_alive(&plugin)).await;
    assert!(is_alive(&child));
    time.advance(Duration::from_secs(10));
    until("its child is killed", || !is_alive(&child)).await;
}

/// A process of a test.
struct Killed(String);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-KILL", &self.0]).status();
    }
}

/// As one of another user, which may not be killed. Here a tracer that is stopped keeps it.
#[tokio::test]
async fn a_plugin_that_does_not_end_when_it_is_killed_costs_no_hold() {
    let server = FakeApiServer::start().await;
    let then = "exec strace -DDD -o /dev/null sh -c '\
                sleep 600 & echo $! > child; \
                t=$(sed -n \"s/^TracerPid:[^0-9]*//p\" /proc/$$/status); \
                echo $t > tracer; kill -STOP $t; sleep 600'";
    let (store, held, time) = refreshing(&server, then).await;
    let tracer = Killed(written(&server, "tracer").await);
    let stat = Path::new("/proc").join(&tracer.0).join("stat");
    until("the tracer is stopped", || {
        fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T "))
    })
    .await;
    time.advance(Duration::from_secs(10));
    let (plugin, child) = (runs(&server).remove(1), written(&server, "child").await);
    until("what the plugin has started is killed", || {
        !is_alive(&child)
    })
    .await;
    for _ in 0..3 {
        renew_until_extended(&store, &held).await;
    }
    drop(tracer);
    let process = Path::new("/proc").join(&plugin);
    until("its status is read", || !process.exists()).await;
}

#[tokio::test]
async fn a_connection_that_takes_longer_than_any_caller_waits_is_made_all_the_same() {
    let server = FakeApiServer::start().await;
    let store = KubernetesStore::connect(&server.url()).await.unwrap();
    let held = granted(&store, "a").await;
    server.delay_connections(Duration::from_millis(600));
    // The server ends the connection that there is.
    server.next("get", Fault::Swallow);
    let _ = store.inspect(&"a".parse().unwrap()).await;
    renew_until_extended(&store, &held).await;
}

#[tokio::test]
async fn a_plugin_may_print_yaml() {
    let server = FakeApiServer::start().await;
    server.accept_only("of-yaml");
    let yaml = "---\\napiVersion: client.authentication.k8s.io/v1\\n\
                kind: ExecCredential\\nstatus:\\n  token: of-yaml\\n";
    set_user(&server, &plugin("printf", &format!("[\"{yaml}\"]")));
    KubernetesStore::connect(&server.url()).await.unwrap();
}

#[tokio::test]
async fn one_login_serves_all_whose_credentials_were_refused() {
    let server = FakeApiServer::start().await;
    let runs = server.folder().join("runs");
    let script = format!(
        "echo x >> {}; echo '{{\"apiVersion\": \"client.authentication.k8s.io/v1\", \
         \"kind\": \"ExecCredential\", \"status\": {{\"token\": \"t\"}}}}'",
        runs.display()
    );
    let path = server.folder().join("plugin");
    fs::write(&path, script).unwrap();
    set_user(
        &server,
        &plugin("sh", &format!("[{:?}]", path.to_str().unwrap())),
    );
    let store = KubernetesStore::connect(&server.url()).await.unwrap();
    let before = fs::read_to_string(&runs).unwrap().len();
    for _ in 0..8 {
        server.next("get", Fault::Refuse(401, None));
    }
    let keys: Vec<Key> = (0..8).map(|n| format!("k{n}").parse().unwrap()).collect();
    let asked = keys.iter().map(|key| store.inspect(key));
    for answer in futures_util::future::join_all(asked).await {
        assert_eq!(answer.unwrap(), None);
    }
    assert_eq!(fs::read_to_string(&runs).unwrap().len(), 2 * before);
}
