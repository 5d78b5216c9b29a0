//! The URLs of Redis: one server, a socket, the master that sentinels name, a cluster, and the
//! members of a quorum.

use ::redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

use super::cluster::Address;
use super::members::Members;
use super::options::{RedisOptions, tcp};
use super::sentinel::Sentinels;
use crate::model::error::Error;
use crate::store::url::{HostPort, StoreUrl};

const PORT: u16 = 6_379;
const SENTINEL_PORT: u16 = 26_379;
/// The address of options whose servers are named by others.
const NOWHERE: &str = "localhost";

const SERVER: &str = "redis://user:password@host:6379/0?prefix=app, rediss:// or unix://";
const SENTINEL: &str =
    "redis+sentinel://user:password@h1:26379,h2:26379,h3:26379/master?prefix=app";
const CLUSTER: &str = "redis+cluster://user:password@h1:7000,h2:7001,h3:7002/?prefix=app";
const OPTIONS: &str = "prefix=app&max_ttl=1m";
const REDLOCK: &str = "redlock://user:password@h1:6379,h2:6379,h3:6379/0 or redlocks://";

/// The options of any of these URLs except that of a quorum.
pub(super) fn options(text: &str) -> Result<RedisOptions, Error> {
    let example = match text.split_once("://") {
        Some(("redis+sentinel" | "rediss+sentinel", _)) => SENTINEL,
        Some(("redis+cluster" | "rediss+cluster", _)) => CLUSTER,
        _ => SERVER,
    };
    let url = StoreUrl::parse(text, example)?;
    let is_tls = is_tls(&url)?;
    match url.scheme() {
        "redis" | "rediss" => {
            let hosts = url.hosts(PORT)?;
            let [host] = hosts.as_slice() else {
                return Err(Error::invalid(format!(
                    "a URL of one Redis server names one host; write {SERVER}, or for several redis+sentinel://, redis+cluster:// or redlock://"
                )));
            };
            let address = tcp(is_tls, &host.host, host.port);
            given(at(address, &url, url.path())?, &url)
        }
        "unix" => {
            let file = url.file().ok_or_else(|| {
                Error::invalid(
                    "the URL of a socket has a path and no host; write unix:///run/redis.sock?db=0",
                )
            })?;
            given(at(ConnectionAddr::Unix(file), &url, "")?, &url)
        }
        "redis+sentinel" | "rediss+sentinel" => behind_sentinels(&url, is_tls),
        "redis+cluster" | "rediss+cluster" => of_cluster(&url, is_tls),
        _ => Err(Error::invalid(format!(
            "this is no Redis URL; write {SERVER}"
        ))),
    }
}

/// The options for the server of a client.
pub(super) fn of_client(server: ConnectionInfo, query: &str) -> Result<RedisOptions, Error> {
    let url = StoreUrl::parse(&format!("redis://client?{query}"), OPTIONS)?;
    if url.hosts(PORT)?.len() != 1 || !url.path().is_empty() {
        return Err(Error::invalid(format!(
            "these are no options of a Redis URL; write {OPTIONS}"
        )));
    }
    if matches!(server.addr(), ConnectionAddr::TcpTls { insecure: true, .. }) {
        return Err(Error::invalid(
            "the client does not verify the certificate of its server; open it without #insecure",
        ));
    }
    // Nobody but the client can read what it has.
    let tls = match server.addr() {
        ConnectionAddr::TcpTls { tls_params, .. } => tls_params.is_some(),
        _ => false,
    };
    if tls && ["ca", "cert", "key"].iter().any(|name| url.has(name)) {
        return Err(Error::invalid(
            "the client has certificates of its own, beside which the options ca, cert and key would be ignored or replace a part of them; open the client without any, and name all of them as options",
        ));
    }
    given(RedisOptions::new(server)?, &url)
}

/// The options of each member of a quorum; everything except the address is the same for all.
///
/// # Errors
///
/// As [`options`], and `Invalid` for a server that is named twice: it would have two votes. One
/// that is named by two addresses is found when it is connected to.
pub(super) fn members(text: &str) -> Result<Vec<RedisOptions>, Error> {
    let url = StoreUrl::parse(text, REDLOCK)?;
    let hosts = url.hosts(PORT)?;
    let anywhere = tcp(is_tls(&url)?, NOWHERE, PORT);
    let mut of_all = given(at(anywhere, &url, url.path())?, &url)?;
    of_all.members = Some(Members::default());
    let at = |host: &HostPort| of_all.at(&host.host, host.port);
    Ok(hosts.iter().map(at).collect())
}

/// # Errors
///
/// `Unsupported` without the feature `tls`.
fn is_tls(url: &StoreUrl) -> Result<bool, Error> {
    let is_tls = url.scheme().starts_with("rediss") || url.scheme() == "redlocks";
    if is_tls && !cfg!(feature = "tls") {
        return Err(Error::unsupported(
            "leasehold was built without TLS for Redis; build it with the feature tls",
        ));
    }
    Ok(is_tls)
}

fn behind_sentinels(url: &StoreUrl, is_tls: bool) -> Result<RedisOptions, Error> {
    let (master, db) = url.path().split_once('/').unwrap_or((url.path(), ""));
    let hosts = url.hosts(SENTINEL_PORT)?;
    let sentinels = hosts.iter().map(|host| tcp(is_tls, &host.host, host.port));
    let sentinels = Sentinels::new(sentinels, master).ok_or_else(|| {
        Error::invalid(format!(
            "a sentinel URL names its master in letters, digits, '.', '_' and '-'; write {SENTINEL}"
        ))
    })?;
    let mut options = at(tcp(is_tls, NOWHERE, PORT), url, db)?;
    options.sentinels = Some(sentinels);
    given(options, url)
}

fn of_cluster(url: &StoreUrl, is_tls: bool) -> Result<RedisOptions, Error> {
    if !matches!(url.path(), "" | "0") {
        return Err(Error::invalid(format!(
            "a cluster has no database number but 0; write {CLUSTER}"
        )));
    }
    let nodes = url.hosts(PORT)?.into_iter();
    let nodes = nodes.map(|HostPort { host, port }| Address { host, port });
    let mut options = at(tcp(is_tls, NOWHERE, PORT), url, "")?;
    options.seeds = Some(nodes.collect());
    given(options, url)
}

/// The defaults for a server, with the user and the password of the URL.
fn at(address: ConnectionAddr, url: &StoreUrl, db: &str) -> Result<RedisOptions, Error> {
    // The client's own text may quote a part of the URL.
    let server = address.into_connection_info().map_err(|error| {
        Error::invalid(format!(
            "the redis client refused the address: reason={}; check host and port",
            error.category()
        ))
    })?;
    let mut options = RedisOptions::new(server)?;
    let db = database(db)?;
    options.log_in(|info| info.set_db(db));
    if let Some(user) = url.user()? {
        options.log_in(|info| info.set_username(user));
    }
    if let Some(password) = url.password()? {
        options.log_in(|info| info.set_password(password));
    }
    Ok(options)
}

/// The number is not shown: it may be a part of a password.
pub(super) fn database(text: &str) -> Result<i64, Error> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().ok().filter(|db| *db >= 0).ok_or_else(|| {
        Error::invalid("the path of a Redis URL is the number of a database, such as /0; write ?, / and # in a password as %3F, %2F and %23")
    })
}

/// Sets what the URL's options give.
fn given(mut options: RedisOptions, url: &StoreUrl) -> Result<RedisOptions, Error> {
    RedisOptions::OPTIONS.read(url.scheme(), url.options(), &mut options)?;
    (options.tls).check(
        options.is_tls(),
        "write rediss://, rediss+sentinel://, rediss+cluster:// or redlocks://",
    )?;
    let login = options.server.redis_settings();
    let (has_user, has_password) = (login.username().is_some(), login.password().is_some());
    options.login.check(has_user, has_password)?;
    if let Some(sentinels) = &options.sentinels {
        let given = ["sentinel_user", "sentinel_password"].map(|name| url.has(name));
        sentinels.login.check(given[0], given[1])?;
    }
    // The client would not log in with a user alone, and the server would take us for its default
    // user.
    let write = if has_user && !has_password && !url.has("password_file") {
        "user:password@"
    } else if url.has("sentinel_user")
        && !url.has("sentinel_password")
        && !url.has("sentinel_password_file")
    {
        "sentinel_user=user&sentinel_password=password"
    } else {
        return Ok(options);
    };
    Err(Error::invalid(format!(
        "a user of Redis needs a password: write {write} or the option of a file; for a user that needs none (nopass) write any password"
    )))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn message(query: &str) -> String {
        let error = options(&format!("redis://db?{query}")).unwrap_err();
        error.to_string()
    }

    fn refused(text: &str) -> Error {
        let read = if text.starts_with("redlock") {
            members(text).map(drop)
        } else {
            options(text).map(drop)
        };
        let error = read.expect_err(text);
        assert_eq!(error.kind(), crate::ErrorKind::Invalid, "{text}: {error}");
        assert!(!format!("{error:?} {error}").contains("sesame"), "{error}");
        error
    }

    #[test]
    fn a_url_is_read_with_its_options() {
        let url = "redis://me:secret@db:7000/2?prefix=app&max_ttl=5s&restart_quarantine=off&replicas=1&timeout_millis=200";
        let read = options(url).unwrap();
        assert_eq!(read.address(), "db:7000");
        assert_eq!(read.names.prefix(), "app:");
        assert_eq!(read.max_ttl, Duration::from_secs(5));
        assert!(!read.quarantine);
        assert_eq!(read.replicas, 1);
        assert_eq!(read.timeout, Duration::from_millis(200));
        let settings = read.server.redis_settings();
        assert_eq!((settings.db(), settings.username()), (2, Some("me")));
        assert!(settings.password() == Some("secret"));
        assert_eq!(options("redis://db").unwrap().address(), "db:6379");
    }

    #[test]
    fn a_socket_has_its_user_and_database_among_the_options() {
        let socket = options("unix:///run/redis.sock?db=3&user=me&pass=secret").unwrap();
        assert_eq!(socket.address(), "/run/redis.sock");
        let settings = socket.server.redis_settings();
        assert_eq!((settings.db(), settings.username()), (3, Some("me")));
        assert!(settings.password() == Some("secret"));
        assert!(
            refused("redis://db?pass=sesame")
                .to_string()
                .contains("name=pass")
        );
    }

    #[test]
    fn a_user_without_a_password_is_refused_since_it_would_be_the_default_user() {
        for url in ["redis://me@db", "unix:///run/redis.sock?user=me"] {
            let text = refused(url).to_string();
            assert!(text.contains("a user of Redis needs a password"), "{text}");
        }
        assert!(members("redlock://me@a,b").is_err());
        for url in ["redis://me:any@db", "redis://:secret@db", "redis://db"] {
            options(url).unwrap();
        }
        for url in [
            "redis+sentinel://me@a/main",
            "redis+sentinel://a/main?sentinel_user=me",
        ] {
            refused(url);
        }
        refused("redis+cluster://me@a");
    }

    #[test]
    fn files_are_named_with_absolute_paths_and_only_where_they_are_of_use() {
        let url = "rediss://me@db?password_file=/run/pw&ca=/run/ca&cert=/run/c&key=keys/k";
        let shown = format!("{:?}", options(url).unwrap());
        let key = std::path::absolute("keys/k").unwrap();
        for path in ["/run/pw", "/run/ca", "/run/c", key.to_str().unwrap()] {
            assert!(shown.contains(&format!("{path:?}")), "{shown}");
        }
        let members = members("redlocks://a,b?ca=/run/ca").unwrap();
        assert!(members.iter().all(RedisOptions::is_tls));
        options("redis+sentinel://a/main?sentinel_password_file=/run/pw").unwrap();
        for (url, why) in [
            ("redis://db?ca=/run/ca", "write rediss://"),
            ("redis+sentinel://a/main?cert=/c&key=/k", "need TLS"),
            ("rediss://db?cert=/run/c", "both cert and key"),
            ("redis://:sesame@db?password_file=/run/pw", "one of them"),
            ("redis://me:x@db?user_file=/run/user", "one of them"),
            ("redis://db?user_file=/run/user", "write both"),
            ("redis://db?password_file=", "names no file"),
        ] {
            let text = refused(url).to_string();
            assert!(text.contains(why), "{url}: {text}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        let read = options("redis://me:sesame@db:7000").unwrap();
        let shown = format!("{read:?}");
        assert!(
            !shown.contains("sesame") && !shown.contains("me:"),
            "{shown}"
        );
        for url in [
            "redis://me:sesame@db/nonsense",
            "redis://me:sesame@db/-1",
            "redis://me:sesame@db,other",
            "redis://me:sesame@db?colour=blue",
            "redis://me:12?max_ttl=sesame@db",
            "redis://me:12?prefix=sesame%20@db",
            "redis://me:12?prefix=a&prefix=sesame@db",
            "redis://me:12/sesame@db",
            "redis://db?Sesame9=1",
            "redis://me:sesame@db?max_ttl=soon",
            "http://me:sesame@db",
        ] {
            refused(url);
        }
    }

    #[test]
    fn a_refusal_names_option_value_and_range() {
        assert_eq!(
            message("max_ttl=1ms"),
            "invalid: option max_ttl=\"1ms\" of Redis: it is out of range; set it from 100ms to 86400s"
        );
        let slow = options("redis://db?replicas=1&replica_wait=3s").unwrap();
        let error = slow.validate().unwrap_err().to_string();
        assert!(error.contains("replica_wait=3s"), "{error}");
        assert!(message("restart_quarantine=maybe").contains("use on or off"));
        assert!(message("eviction=maybe").contains("use accept or refuse"));
        assert!(message("colour=blue").contains("name=colour"));
        for twice in ["prefix=a&prefix=b", "max_ttl=5s&max%5Fttl=6s"] {
            assert!(message(twice).contains("twice"), "{twice}");
        }
        assert!(message("replicas=-1").contains("replicas=\"-1\""));
        assert!(message("prefix={x}").contains("not allowed"));
    }

    #[test]
    fn a_sentinel_url_names_the_sentinels_and_what_they_watch() {
        let url =
            "redis+sentinel://me:secret@a:1,b,[::1]/main-1/2?prefix=app&sentinel_password=sesame";
        let read = options(url).unwrap();
        assert_eq!(read.address(), "main-1 of ::1:26379,a:1,b:26379");
        let settings = read.server.redis_settings();
        assert_eq!((settings.db(), settings.username()), (2, Some("me")));
        assert!(read.is_behind_sentinels() && read.names.prefix() == "app:");
        assert!(!format!("{:?} {read:?}", read.sentinels).contains("sesame"));
        let plain = options("redis+sentinel://a/main").unwrap();
        assert_eq!(plain.server.redis_settings().db(), 0);
        for url in [
            "redis+sentinel://me:sesame@a",
            "redis+sentinel://me:sesame@/main",
            "redis+sentinel://me:sesame@a/ma%20in",
            "redis+sentinel://me:sesame@a/main/x",
        ] {
            refused(url);
        }
    }

    #[test]
    fn a_cluster_url_names_some_nodes_and_no_database() {
        let url = "redis+cluster://me:secret@a:7000,b,[::1]:7002/?prefix=app";
        let read = options(url).unwrap();
        assert_eq!(read.address(), "[::1]:7002,a:7000,b:6379");
        assert!(read.seeds.is_some() && read.server.redis_settings().username() == Some("me"));
        assert_eq!(options("redis+cluster://a").unwrap().address(), "a:6379");
        refused("redis+cluster://me:sesame@a/1");
    }

    fn addresses(text: &str) -> Vec<String> {
        let members = members(text).unwrap();
        members.iter().map(RedisOptions::address).collect()
    }

    #[test]
    fn each_member_has_an_address_of_its_own_and_the_rest_is_that_of_all() {
        let url = "redlock://me:secret@b:2,A,[::1]:3/4?prefix=app&max_ttl=5s";
        assert_eq!(addresses(url), ["::1:3", "a:6379", "b:2"]);
        for member in members(url).unwrap() {
            assert_eq!(member.names.prefix(), "app:");
            assert_eq!(member.longest_ttl().as_secs(), 5);
            let settings = member.server.redis_settings();
            assert_eq!((settings.db(), settings.username()), (4, Some("me")));
            assert!(settings.password() == Some("secret"));
        }
        let twice = refused("redlock://me:sesame@a,b,a:6379").to_string();
        assert!(twice.contains("each once"), "{twice}");
    }
}
