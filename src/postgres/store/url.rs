//! Reads the URL of a PostgreSQL store. No message shows a part of it except an option's name and
//! value.

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use super::dialer::Encryption;
use super::options::PostgresOptions;
use crate::model::error::Error;
use crate::store::url::{HostPort, StoreUrl, decoded};

pub(super) const PORT: u16 = 5432;
const OPTIONS: &str = "max_ttl=1m&create=auto";
const EXAMPLE: &str = "postgres://user:password@host:5432/database";

pub(super) fn options(text: &str) -> Result<PostgresOptions, Error> {
    let url = StoreUrl::parse(text, EXAMPLE)?;
    if !matches!(url.scheme(), "postgres" | "postgresql") {
        return Err(Error::invalid(format!(
            "this is no PostgreSQL URL; write {EXAMPLE}"
        )));
    }
    let mut options = PostgresOptions::new(Config::new(), String::new());
    if let Some(user) = url.user()? {
        options.config.user(user);
    }
    if let Some(password) = url.password()? {
        options.config.password(password);
    }
    match url.path() {
        "" => {}
        path if path.contains(['/', '@']) => {
            return Err(Error::invalid(format!(
                "the path of a PostgreSQL URL is the name of one database; write {EXAMPLE}, and ?, /, # and @ in a password or a name as %3F, %2F, %23 and %40"
            )));
        }
        path => {
            options.config.dbname(decoded(path)?);
        }
    }
    let is_socket = url.has("host");
    if is_socket && url.has_hosts() {
        return Err(not_a_socket());
    }
    if url.has("port") && url.has_hosts() {
        return Err(Error::invalid(
            "the option port is that of a socket, in a URL without hosts; write the port behind the host, as in db.example:5432",
        ));
    }
    if let Some((folder, port)) = socket(&url)? {
        options.use_socket(&folder)?;
        options.config.port(port);
    } else if !is_socket {
        let hosts = url.hosts(PORT)?;
        for HostPort { host, port } in &hosts {
            options.config.host(host).port(*port);
        }
        let hosts: Vec<_> = hosts.iter().map(HostPort::to_string).collect();
        options.address = hosts.join(",");
    }
    given(options, &url)
}

/// The folder and the port of a socket that is written as a host: `%2Frun%2Fpostgresql:5432`.
fn socket(url: &StoreUrl) -> Result<Option<(String, u16)>, Error> {
    let written = url.written_hosts();
    if !written
        .get(..3)
        .is_some_and(|begin| begin.eq_ignore_ascii_case("%2f"))
    {
        return Ok(None);
    }
    let (folder, port) = written.split_once(':').unwrap_or((written, ""));
    let port = if port.is_empty() {
        Ok(PORT)
    } else {
        port.parse()
    };
    let port = port.map_err(|_| not_a_socket())?;
    Ok(Some((decoded(folder)?, port)))
}

/// The options for the database of a client.
pub(super) fn of_client(config: Config, query: &str) -> Result<PostgresOptions, Error> {
    let url = StoreUrl::parse(&format!("postgres://client?{query}"), OPTIONS)?;
    if url.hosts(PORT)?.len() != 1 || !url.path().is_empty() || url.has("host") {
        return Err(Error::invalid(format!(
            "these are no options for the database of a client; write {OPTIONS}, and hosts in its configuration"
        )));
    }
    let hosts: Vec<_> = (config.get_hosts().iter())
        .map(|host| match host {
            Host::Tcp(host) => host.clone(),
            #[cfg(unix)]
            Host::Unix(folder) => folder.display().to_string(),
        })
        .collect();
    if hosts.is_empty() {
        return Err(Error::invalid(
            "the configuration of the client names no host; call Config::host",
        ));
    }
    let is_tls = config.get_ssl_mode() == SslMode::Require;
    let mut options = PostgresOptions::new(config, hosts.join(","));
    if is_tls {
        options.dialer.encryption = Encryption::Required;
    }
    given(options, &url)
}

/// Sets what the URL's options give.
fn given(mut options: PostgresOptions, url: &StoreUrl) -> Result<PostgresOptions, Error> {
    PostgresOptions::OPTIONS.read(url.scheme(), url.options(), &mut options)?;
    let (user, password) = (options.config.get_user(), options.config.get_password());
    let given = (user.is_some(), password.is_some());
    (options.dialer).check(given, &mut options.config)?;
    Ok(options)
}

pub(super) fn not_a_socket() -> Error {
    Error::invalid(
        "the option host is the folder of a socket, in a URL without hosts; write postgres:///database?host=/run/postgresql",
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::dialer::Verified;
    use super::*;

    fn refused(text: &str) -> String {
        let error = options(text).expect_err(text);
        assert!(!format!("{error:?} {error}").contains("sesame"), "{error}");
        error.to_string()
    }

    #[test]
    fn a_url_is_read_with_its_options() {
        let url = "postgres://me:secret@b:7000,a/my%20db?max_ttl=5s&create=auto&listen=c:1&timeout_millis=200";
        let read = options(url).unwrap();
        assert_eq!(read.address, "a:5432,b:7000");
        assert_eq!(read.config.get_user(), Some("me"));
        assert_eq!(read.config.get_dbname(), Some("my db"));
        assert_eq!(read.config.get_ports(), [5432, 7000]);
        assert_eq!(read.max_ttl, Duration::from_secs(5));
        assert_eq!(read.timeout, Duration::from_millis(200));
        assert!(read.creates);
        let listening = read.listening();
        assert_eq!(listening.get_ports(), [1]);
        assert_eq!(listening.get_password(), Some(&b"secret"[..]));
        let socket = options("postgresql:///db?host=/run/postgresql").unwrap();
        assert_eq!(socket.address, "/run/postgresql");
    }

    #[test]
    fn the_options_of_libpq_say_what_is_verified() {
        let verified = |query: &str| {
            let options = options(&format!("postgres://db?{query}")).unwrap();
            options.dialer.verifies()
        };
        assert_eq!(verified("sslmode=disable"), None);
        for (query, name) in [
            ("sslmode=require", true),
            ("sslmode=require&sslrootcert=system", true),
            ("sslmode=require&sslrootcert=/run/ca", false),
            ("sslmode=verify-ca", true),
            ("sslmode=verify-ca&sslrootcert=system", true),
            ("sslmode=verify-ca&sslrootcert=/run/ca", false),
            ("sslmode=verify-full&sslrootcert=/run/ca", true),
        ] {
            let expected = if name {
                Verified::Name
            } else {
                Verified::Chain
            };
            assert_eq!(verified(query), Some(expected), "{query}");
        }
    }

    #[test]
    fn the_database_of_a_client_is_taken_with_options_of_a_url() {
        let mut config = Config::new();
        config.host("a").port(1).host_path("/run/pg").user("me");
        let read = |config: &Config, query| of_client(config.clone(), query);
        let options = read(&config, "max_ttl=5s&create=auto").unwrap();
        assert_eq!(options.address, "a,/run/pg");
        assert_eq!(options.config.get_user(), Some("me"));
        assert_eq!(options.max_ttl, Duration::from_secs(5));
        assert_eq!(options.dialer.verifies(), None);
        assert_eq!(read(&config, "").unwrap().max_ttl, Duration::from_secs(30));
        if cfg!(feature = "tls") {
            let verified = |config: &Config, query| read(config, query).unwrap().dialer.verifies();
            assert_eq!(verified(&config, "sslmode=require"), Some(Verified::Name));
            config.ssl_mode(SslMode::Require);
            assert_eq!(verified(&config, ""), Some(Verified::Name));
        }
        for query in ["max_tll=5s", "host=/run/x", "x@y/z?max_ttl=5s"] {
            read(&config, query).expect_err(query);
        }
        read(&Config::new(), "").expect_err("no host");
    }

    #[test]
    fn a_password_is_never_shown() {
        let read = options("postgres://me:sesame@db").unwrap();
        let shown = format!("{read:?}");
        assert!(
            !shown.contains("sesame") && !shown.contains("me:"),
            "{shown}"
        );
        for url in [
            "postgres://me:sesame@",
            "postgres://me:sesame@db:port",
            "postgres://me:sesame@db/a/b",
            "postgres://me:sesame@a,,b",
            "postgres://me:12?sesame@db",
            "postgres://me:12/sesame@db",
            "postgres://me:12#sesame@db",
            "postgres://db?Sesame9=1",
            "http://me:sesame@db",
        ] {
            refused(url);
        }
    }

    #[test]
    fn a_refusal_names_option_value_and_range() {
        let message = |query: &str| refused(&format!("postgres://db?{query}"));
        assert!(message("max_ttl=1ms").contains("from 100ms to 86400s"));
        assert!(message("create=maybe").contains("use auto or never"));
        assert!(message("sslmode=prefer").contains("verify-full"));
        assert!(message("sslrootcert=/run/ca").contains("need TLS"));
        assert!(message("sslmode=require&sslcert=/c").contains("both sslcert and sslkey"));
        assert!(message("user_file=/run/user").contains("write both"));
        assert!(message("listen=a%20b").contains("listen=db.example:5432"));
        assert!(message("colour=blue").contains("name=colour"));
        assert!(message("host=/run").contains("without hosts"));
    }
}
