//! Managers from a file and from the environment.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use leasehold::config::Config;
use leasehold::{Error, ErrorKind, LockManager};

fn refused(text: &str) -> String {
    let error = Config::parse(text).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    error.to_string()
}

fn from_vars(vars: &[(&str, &str)]) -> Result<Config, Error> {
    Config::from_vars(
        vars.iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
    )
}

/// A file of its own for one test, gone with it.
struct File(std::path::PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let name = format!("leasehold-{}-{name}.toml", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // A file that is left in the temporary folder harms nobody.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[tokio::test]
async fn a_manager_is_one_line_in_code_and_everything_else_in_the_file() {
    let file = File::new(
        "one-line",
        "store = 'memory:config/one'\nttl = '5s'\nmax_waiters = 7\nlabel = 'host-a'\n",
    );
    let locks = LockManager::from_config(file.path()).await.unwrap();
    assert_eq!(locks.settings().ttl, Duration::from_secs(5));
    assert_eq!(locks.settings().max_waiters, 7);
    let guard = locks.lock("k").acquire().await.unwrap();
    let record = locks.inspect("k").await.unwrap().unwrap();
    assert_eq!(record.label.unwrap().as_str(), "host-a");
    drop(guard);
}

#[test]
fn a_named_manager_takes_from_the_top_what_it_does_not_say() {
    let config = Config::parse(
        "store = 'memory:'\nttl = '5s'\nwait = '1s'\n[managers.orders]\nwait = '2s'\n[managers.stock]\nown_second = 3\n",
    )
    .unwrap();
    assert_eq!(config.names().collect::<Vec<_>>(), ["orders", "stock"]);
    let settings = |name| config.manager(name).unwrap().settings().clone();
    assert_eq!(settings("orders").ttl, Duration::from_secs(5));
    assert_eq!(settings("orders").wait, Duration::from_secs(2));
    assert_eq!(settings("stock").ttl, Duration::from_secs(3));
    assert_eq!(
        config.top().unwrap().settings().wait,
        Duration::from_secs(1)
    );
    let message = config.manager("order").unwrap_err().to_string();
    assert!(message.contains("there are orders, stock"), "{message}");
}

#[test]
fn a_file_of_named_managers_needs_no_top() {
    let config = Config::parse("[managers.orders]\nstore = 'memory:'\n").unwrap();
    config.manager("orders").unwrap();
    let message = config.top().unwrap_err().to_string();
    assert!(
        message.contains("config: store: ") && message.contains("orders"),
        "{message}"
    );
}

#[test]
fn the_names_of_other_frameworks_are_understood_in_their_units() {
    let config = Config::parse(
        "address = 'memory:'\ntimeout_millis = 200\nown_second = 10\nmin_spin_millis = 11\nrandom_millis = 12\n",
    )
    .unwrap();
    let settings = config.top().unwrap().settings();
    assert_eq!(settings.request_timeout, Duration::from_millis(200));
    assert_eq!(settings.ttl, Duration::from_secs(10));
    assert_eq!(settings.retry_delay, Duration::from_millis(11));
    assert_eq!(settings.retry_jitter, Duration::from_millis(12));
    assert!(
        refused("address = 'memory:'\nown_second = '10s'")
            .contains("config:2:1: own_second: a whole number")
    );
}

#[test]
fn an_unknown_name_is_reported_with_file_line_and_field() {
    let file = File::new(
        "unknown",
        "store = 'memory:'\n\n[managers.orders]\n  tll = '5s'\n",
    );
    let message = Config::read(file.path()).unwrap_err().to_string();
    let at = format!("{}:4:3: managers.orders.tll: ", file.path());
    assert!(message.contains(&at), "{message}");
    assert!(message.contains("use store, label, ttl"), "{message}");
}

#[test]
fn a_value_that_cannot_be_read_is_reported_with_line_and_field() {
    for (line, field) in [
        ("ttl = 'soon'", "ttl"),
        ("ttl = 10", "ttl"),
        ("ttl = ['10s']", "ttl"),
        ("max_waiters = 'many'", "max_waiters"),
        ("max_waiters = -1", "max_waiters"),
        ("store = 7", "store"),
        ("label = ''", "label"),
        ("managers = 3", "managers"),
    ] {
        let top = if field == "store" {
            ""
        } else {
            "store = 'memory:'"
        };
        let message = refused(&format!("{top}\n{line}\n"));
        assert!(
            message.contains(&format!("config:2:1: {field}: ")),
            "{line}: {message}"
        );
    }
}

#[test]
fn a_value_that_cannot_be_read_says_what_its_field_needs() {
    let span = "use a duration with its unit, in quotes: \"10s\" or \"200ms\"";
    for (line, reported) in [
        ("ttl = 10", span),
        ("wait = '10'", span),
        ("max_waiters = 'many'", "use a whole number"),
        ("server_drift_ppm = '10s'", "use a whole number"),
    ] {
        let message = refused(&format!("store = 'memory:'\n{line}\n"));
        assert!(message.contains(reported), "{line}: {message}");
    }
    let vars = [("LEASEHOLD_STORE", "memory:"), ("LEASEHOLD_TTL", "10")];
    let message = from_vars(&vars).unwrap_err().to_string();
    assert!(message.ends_with("its unit: 10s or 200ms"), "{message}");
}

#[test]
fn a_table_that_is_not_known_is_reported_with_those_that_are() {
    for (table, reported) in [
        (
            "handler",
            "config:2:2: handler: unknown table; use [handlers] or [managers.NAME]",
        ),
        (
            "managers.a.handler",
            "config:2:13: managers.a.handler: unknown table; use [managers.a.handlers]",
        ),
    ] {
        let message = refused(&format!(
            "store = 'memory:'\n[{table}]\naccess_log = true\n"
        ));
        assert!(message.contains(reported), "{message}");
    }
}

#[test]
fn what_is_no_toml_is_reported_with_its_line() {
    let message = refused("store = 'memory:'\nttl = = 3\n");
    assert!(message.contains("config:2:"), "{message}");
}

#[test]
fn an_impossible_pair_is_reported_at_the_field_at_fault() {
    let message = refused("store = 'memory:'\nttl = '1s'\nmax_hold = '500ms'\n");
    assert!(
        message.contains("config:3:1: max_hold: setting max_hold=500ms"),
        "{message}"
    );
    // Nobody set the margin: the short ttl leaves it no room.
    let message =
        refused("store = 'memory:'\n[managers.a]\nttl = '100ms'\ncommit_budget = '99ms'\n");
    assert!(
        message.contains("config:4:1: managers.a.commit_budget: "),
        "{message}"
    );
    let message = refused("store = 'memory:'\nttl = '40s'\n");
    assert!(message.contains("config:2:1: ttl: "), "{message}");
}

#[cfg(feature = "redis")]
#[test]
fn a_url_and_the_settings_beside_it_are_judged_together() {
    let config = Config::parse("store = 'redis://db?max_ttl=1m'\nttl = '40s'\n").unwrap();
    let settings = config.top().unwrap().settings();
    assert_eq!(settings.ttl, Duration::from_secs(40));
    assert_eq!(settings.max_ttl, Duration::from_secs(60));
    // Nobody set a ttl, and it follows the limit of the URL.
    let config = Config::parse("store = 'redis://db?max_ttl=5s'\n").unwrap();
    assert_eq!(config.top().unwrap().settings().ttl, Duration::from_secs(5));
    let message = refused("store = 'redis://db?max_ttl=5s'\nttl = '6s'\n");
    assert!(
        message.contains("config:2:1: ttl: setting ttl=6s"),
        "{message}"
    );
    let message = refused("store = 'redis://db?max_ttl=1m'\nmax_ttl = '90s'\n");
    assert!(
        message.contains("config:1:1: store: the URL has max_ttl=60s"),
        "{message}"
    );
}

#[cfg(feature = "zookeeper")]
#[test]
fn the_ttl_of_a_session_may_be_longer_than_the_default_limit() {
    let config = Config::parse("store = 'zookeeper://zk'\nttl = '40s'\n").unwrap();
    assert_eq!(
        config.top().unwrap().settings().ttl,
        Duration::from_secs(40)
    );
}

#[test]
fn what_stands_at_the_top_is_judged_with_each_manager_and_not_alone() {
    let config = Config::parse(
        "max_hold = '5s'\n[handlers]\nwaits = true\n[managers.a]\nstore = 'memory:'\nttl = '3s'\nhandlers = { at_once = 2 }\n",
    )
    .unwrap();
    let settings = config.manager("a").unwrap().settings();
    assert_eq!(settings.max_hold, Some(Duration::from_secs(5)));
    let message = refused("max_hold = '5s'\n[managers.a]\nstore = 'memory:'\n");
    assert!(message.contains("config:1:1: max_hold: "), "{message}");
    assert!(refused("max_hold = '5s'\n").contains("config:1:1: max_hold: "));
}

#[test]
fn a_number_that_is_too_large_is_reported_as_that_at_its_position() {
    for (line, field) in [
        ("timeout_millis = 9223372036854775807", "timeout_millis"),
        ("own_second = 9223372036854775807", "own_second"),
        ("max_waiters = 99999999999999999999", "max_waiters"),
        ("handoff_count = 4294967296", "handoff_count"),
        ("ttl = '99999999999999999999s'", "ttl"),
        (
            "handlers.rate_per_key = '1/200years'",
            "handlers.rate_per_key",
        ),
        (
            "handlers.at_once = 99999999999999999999",
            "handlers.at_once",
        ),
    ] {
        let message = refused(&format!("store = 'memory:'\n{line}\n"));
        assert!(message.contains("config:2:"), "{line}: {message}");
        assert!(
            message.contains(&format!(": {field}: ")),
            "{line}: {message}"
        );
        assert!(!message.contains("of type=integer"), "{line}: {message}");
    }
    let vars = [
        ("LEASEHOLD_STORE", "memory:"),
        ("LEASEHOLD_TIMEOUT_MILLIS", "18446744073709551615"),
    ];
    let message = from_vars(&vars).unwrap_err().to_string();
    assert!(
        message.contains("environment:LEASEHOLD_TIMEOUT_MILLIS: "),
        "{message}"
    );
}

#[test]
fn an_error_is_one_line_whatever_the_names_are() {
    for text in [
        "\"a\\nb\" = 3",
        "[managers.\"a\\nb\"]\ntll = '5s'",
        "[managers.\"a\\nb\"]\nstore = 3",
    ] {
        let message = refused(text);
        assert!(!message.contains('\n'), "{message:?}");
        assert!(message.contains("a\\nb"), "{message:?}");
    }
}

/// This program again, with a variable that is no text.
#[cfg(unix)]
#[test]
fn a_variable_that_is_no_text_is_refused_and_not_changed() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    const CHILD: &str = "CONFIG_OF_BYTES";
    if std::env::var_os(CHILD).is_some() {
        let error = Config::from_env().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        println!("refused as {error}");
        return;
    }
    for (name, value, reported) in [
        (
            &b"LEASEHOLD_STORE"[..],
            &b"memory:s3same-\xff"[..],
            "LEASEHOLD_STORE",
        ),
        (b"LEASEHOLD_CONFIG", b"/no/s3same-\xff", "LEASEHOLD_CONFIG"),
        (b"LEASEHOLD_T\xffL", b"5s", "LEASEHOLD_T"),
    ] {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "a_variable_that_is_no_text_is_refused_and_not_changed",
                "--nocapture",
            ])
            .env(CHILD, "1")
            .env("LEASEHOLD_STORE", "memory:")
            .env(OsStr::from_bytes(name), OsStr::from_bytes(value))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success(), "{child:?}");
        assert!(said.contains(&format!("environment:{reported}")), "{said}");
        assert!(!said.contains("s3same"), "{said}");
    }
}

#[test]
fn one_field_under_two_names_is_an_error_that_names_both() {
    let message = refused("store = 'memory:'\nttl = '10s'\nown_second = 10\n");
    assert!(
        message.contains("config:3:1: own_second: it is set twice: other=ttl at config:2:1"),
        "{message}"
    );
    assert!(refused("store = 'memory:'\naddress = 'memory:'\n").contains("set twice"));
}

#[test]
fn a_store_that_cannot_be_built_is_reported_with_its_line_and_never_with_its_password() {
    let message = refused("store = 'x://me:c4nary-s3same@db'\n");
    assert!(message.contains("config:1:1: store: "), "{message}");
    for text in [
        "store = 'x://me:c4nary-s3same@db'",
        "store = 'memory:'\nttl = 'x://me:c4nary-s3same@db'",
        "store = 'memory:'\nmax_waiters = 'x://me:c4nary-s3same@db'",
        "store = 'memory:'\nlabel = \"x://me:c4nary-s3same@db\\n\"",
        "store = 'memory:'\nmax_waiters = 'x://me:\"c4nary-s3same@db'",
        "store = 'memory:'\nttl = '7c4nary-s3same'",
    ] {
        let error = Config::parse(text).unwrap_err();
        assert!(
            !format!("{error} {error:?}").contains("c4nary-s3same"),
            "{error}"
        );
    }
    let config = Config::parse("store = 'memory:c4nary-s3same'").unwrap();
    assert!(!format!("{config:?}").contains("c4nary-s3same"));
}

#[test]
fn the_environment_says_the_same_in_upper_case() {
    let config = from_vars(&[
        ("PATH", "/bin"),
        ("LEASEHOLD_STORE", "memory:"),
        ("LEASEHOLD_TTL", "5s"),
        ("LEASEHOLD_MAX_WAITERS", "7"),
        ("LEASEHOLD_RANDOM_MILLIS", "12"),
        ("LEASEHOLD_LABEL", "host-a"),
        // What the tool sets for the command that it runs.
        ("LEASEHOLD_KEY", "k"),
        ("LEASEHOLD_TOKEN", "1"),
    ])
    .unwrap();
    let top = config.top().unwrap();
    assert_eq!(top.settings().ttl, Duration::from_secs(5));
    assert_eq!(top.settings().max_waiters, 7);
    assert_eq!(top.settings().retry_jitter, Duration::from_millis(12));
    assert_eq!(top.label().unwrap().as_str(), "host-a");
}

#[test]
fn an_unknown_variable_is_reported_by_its_name() {
    let error = from_vars(&[("LEASEHOLD_STORE", "memory:"), ("LEASEHOLD_TLL", "5s")]).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("environment:LEASEHOLD_TLL: tll: "),
        "{error}"
    );
    let error = from_vars(&[("LEASEHOLD_TTL", "5s")]).unwrap();
    assert!(
        error
            .top()
            .unwrap_err()
            .to_string()
            .contains("LEASEHOLD_STORE")
    );
}

#[test]
fn a_variable_without_a_value_is_not_set() {
    let vars = [
        ("LEASEHOLD_CONFIG", ""),
        ("LEASEHOLD_STORE", "memory:"),
        ("LEASEHOLD_TTL", ""),
    ];
    let config = from_vars(&vars).unwrap();
    let top = config.top().unwrap();
    assert_eq!(top.settings().ttl, leasehold::Settings::default().ttl);
    let error = from_vars(&[("LEASEHOLD_STORE", "")]).unwrap();
    let error = error.top().unwrap_err().to_string();
    assert!(error.contains("no store is set"), "{error}");
}

#[test]
fn the_environment_wins_over_the_file_that_it_names() {
    let file = File::new(
        "env",
        "store = 'memory:'\nttl = '5s'\nwait = '1s'\n[managers.a]\nttl = '3s'\n",
    );
    let config = from_vars(&[("LEASEHOLD_CONFIG", file.path()), ("LEASEHOLD_TTL", "7s")]).unwrap();
    let top = config.top().unwrap().settings();
    assert_eq!(
        (top.ttl, top.wait),
        (Duration::from_secs(7), Duration::from_secs(1))
    );
    let a = config.manager("a").unwrap().settings();
    assert_eq!(a.ttl, Duration::from_secs(3));
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Config::read("no/such/leasehold.toml").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        error.to_string().contains("file=no/such/leasehold.toml"),
        "{error}"
    );
}

#[tokio::test]
async fn handlers_are_switched_on_in_the_file() {
    let config = Config::parse(
        "store = 'memory:config/handlers'\n[handlers]\naccess_log = true\nmetrics = true\nat_once = 1\n[managers.free.handlers]\nat_once = 2\n",
    )
    .unwrap();
    let most = async |manager: LockManager| {
        let mut held = Vec::new();
        for key in ["a", "b", "c"] {
            match manager.lock(key).acquire_within(Duration::ZERO).await {
                Ok(guard) => held.extend(guard),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Contended, "{error}"),
            }
        }
        held.len()
    };
    assert_eq!(
        most(config.top().unwrap().connect().await.unwrap()).await,
        1
    );
    let free = config.manager("free").unwrap();
    assert_eq!(most(free.connect().await.unwrap()).await, 2);
}

#[test]
fn a_handler_that_cannot_be_built_is_reported_with_its_line() {
    for (line, reported) in [
        ("rate_per_key = 10", "a rate such as"),
        ("rate_per_key = '10'", "a rate such as"),
        ("rate_in_total = '0/s'", "a rate such as"),
        ("at_once = 0", "a whole number above zero"),
        ("access_log = 'yes'", "true, false or the name of a file"),
        ("waits = true", "no limit is set"),
        ("accesslog = true", "unknown name"),
    ] {
        let field = line.split(' ').next().unwrap();
        let message = refused(&format!("store = 'memory:'\n[handlers]\n{line}\n"));
        let at = format!("config:3:1: handlers.{field}: {reported}");
        assert!(message.contains(&at), "{line}: {message}");
    }
    for rate in ["10/s", "1000/5m", "7 / 1s"] {
        Config::parse(&format!(
            "store = 'memory:'\nhandlers = {{ rate_per_key = '{rate}' }}"
        ))
        .unwrap();
    }
    let vars = [
        ("LEASEHOLD_STORE", "memory:"),
        ("LEASEHOLD_HANDLERS_AT_ONCE", "none"),
    ];
    let error = from_vars(&vars).unwrap_err().to_string();
    assert!(
        error.contains("environment:LEASEHOLD_HANDLERS_AT_ONCE: handlers.at_once: "),
        "{error}"
    );
}

#[tokio::test]
async fn the_access_log_goes_to_a_file_of_its_own() {
    let folder = std::env::temp_dir().join(format!("leasehold-access-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("locks.log");
    let text = format!(
        "store = 'memory:config/access-file'\n[handlers]\naccess_log = '{}'\n",
        path.display()
    );
    let config = folder.join("leasehold.toml");
    std::fs::write(&config, text).unwrap();
    let locks = LockManager::from_config(&config).await.unwrap();
    // Another access log, whose lines nobody reads, does not switch off those of the file.
    let unread = "store = 'memory:config/unread'\n[handlers]\naccess_log = true\n";
    let unread = Config::parse(unread).unwrap();
    let unread = unread.top().unwrap().connect().await.unwrap();
    let guard = unread.lock("orders/7").acquire().await.unwrap();
    guard.release().await.unwrap();
    let guard = locks.lock("orders/7").acquire().await.unwrap();
    guard.release().await.unwrap();
    locks.shutdown().await;
    drop(locks);
    // Another thread writes the file.
    let mut written = String::new();
    for _ in 0..6_000 {
        written = std::fs::read_to_string(&path).unwrap_or_default();
        if written.contains("release_us=") {
            break;
        }
        #[allow(
            clippy::disallowed_methods,
            reason = "another thread writes in real time"
        )]
        std::thread::sleep(Duration::from_millis(10));
    }
    for part in [
        "event=\"acquire\"",
        "event=\"release\"",
        "key=orders/7",
        "release_us=",
    ] {
        assert!(written.contains(part), "{part}: {written}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_disk_costs_the_lines_and_nothing_else() {
    let text = "store = 'memory:config/full'\n[handlers]\naccess_log = '/dev/full'\n";
    let config = Config::parse(text).unwrap();
    let locks = config.top().unwrap().connect().await.unwrap();
    for _ in 0..1_000 {
        let guard = locks.lock("orders/7").acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    locks.shutdown().await;
}
