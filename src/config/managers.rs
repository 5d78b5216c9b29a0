//! [`Config`]: the configuration of one or several managers, from a file, the environment or both.

use std::collections::BTreeMap;
use std::path::Path;

use super::manager::ManagerConfig;
use super::{environment, field, file};
use crate::manager::LockManager;
use crate::model::error::Error;

impl LockManager {
    /// Builds the manager at the top of a TOML file: its store, its settings, its label (feature
    /// `config`).
    ///
    /// Ignores the environment. [`Config`] describes the file, which may configure several
    /// managers.
    ///
    /// # Errors
    ///
    /// As [`Config::read`] and [`Config::top`]; then as [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: on Redis and PostgreSQL a dropped call leaves only an attempt to connect, which
    /// ends by itself.
    pub async fn from_config(path: impl AsRef<Path>) -> Result<Self, Error> {
        Config::read(path)?.top()?.connect().await
    }

    /// Builds the manager that the environment describes (feature `config`): `LEASEHOLD_STORE`,
    /// `LEASEHOLD_TTL` and so on. They override the top of the file that `LEASEHOLD_CONFIG` names,
    /// if it is set.
    ///
    /// # Errors
    ///
    /// As [`Config::from_env`] and [`Config::top`]; then as [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: on Redis and PostgreSQL a dropped call leaves only an attempt to connect, which
    /// ends by itself.
    pub async fn from_env() -> Result<Self, Error> {
        Config::from_env()?.top()?.connect().await
    }
}

/// The validated configuration of one or several managers, from a file, the environment or both
/// (feature `config`).
///
/// ```toml
/// # Any URL that `LockManager::connect` takes.
/// store = "redis://127.0.0.1:6379/0?prefix=shop"
/// # Any field of `Settings`.
/// ttl = "10s"
/// # The holder's name, for people.
/// label = "host-a"
///
/// [handlers]
/// # One `tracing` line for each acquire, release and loss. With the name
/// # of a file instead of `true`: to that file, which a thread writes;
/// # what it cannot keep up with, or cannot write, is dropped.
/// access_log = true
/// # Feature `metrics`. Install the recorder before `connect`.
/// metrics = true
/// # These four: feature `flow-control`. `waits` delays a call that is over
/// # a limit; otherwise the call is refused.
/// rate_per_key = "10/s"
/// rate_in_total = "1000/s"
/// at_once = 200
/// waits = true
///
/// # Inherits the values above.
/// [managers.orders]
/// wait = "2s"
/// ```
///
/// In the environment: `LEASEHOLD_STORE`, `LEASEHOLD_TTL`, `LEASEHOLD_HANDLERS_ACCESS_LOG` and so
/// on.
///
/// [The names of other frameworks](crate::config) are understood too.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// use leasehold::config::Config;
///
/// let config = Config::parse(
///     r#"
///     store = "memory:"
///     ttl = "10s"
///     [managers.orders]
///     ttl = "5s"
///     "#,
/// )?;
/// let orders = config.manager("orders")?.connect().await?;
/// assert_eq!(orders.settings().ttl.as_secs(), 5);
///
/// let error = Config::parse("store = 'memory:'\ntll = '10s'").unwrap_err();
/// assert!(error.to_string().contains("config:2:1: tll: "), "{error}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    name: String,
    top: Option<ManagerConfig>,
    managers: BTreeMap<String, ManagerConfig>,
}

impl Config {
    /// Reads a TOML file.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the file cannot be read; `Invalid`, with file, line and field, for invalid
    /// content; `Unsupported` for a store whose feature is switched off.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, Error> {
        let (name, text) = file::read(path.as_ref())?;
        Self::of(name.clone(), file::sections(&name, &text)?)
    }

    /// Reads a text in the format of a file. Messages call it `config`.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn parse(text: &str) -> Result<Self, Error> {
        Self::of("config".to_owned(), file::sections("config", text)?)
    }

    /// Reads the environment and the file that `LEASEHOLD_CONFIG` names, if it is set. The
    /// environment overrides the file.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read); `Invalid` also for a variable that begins with `LEASEHOLD_` and is
    /// unknown, or not UTF-8.
    pub fn from_env() -> Result<Self, Error> {
        Self::from_vars(environment::of_this_process()?)
    }

    /// As [`from_env`](Self::from_env), from the given variables. Those that do not begin with
    /// `LEASEHOLD_` are ignored.
    ///
    /// # Errors
    ///
    /// As [`from_env`](Self::from_env).
    pub fn from_vars(vars: impl IntoIterator<Item = (String, String)>) -> Result<Self, Error> {
        let environment = environment::read(vars)?;
        let (name, mut sections) = match &environment.file {
            Some(path) => {
                let (name, text) = file::read(Path::new(path))?;
                let sections = file::sections(&name, &text)?;
                (name, sections)
            }
            None => ("environment".to_owned(), file::Sections::default()),
        };
        sections.top = environment.section.over(&sections.top);
        Self::of(name, sections)
    }

    fn of(name: String, sections: file::Sections) -> Result<Self, Error> {
        let top = if sections.top.has("store") {
            Some(ManagerConfig::of(None, &sections.top)?)
        } else {
            // Each manager is checked with what it inherits.
            if sections.managers.is_empty() {
                let draft = field::draft(&sections.top)?;
                field::validate(&sections.top, &draft.settings)?;
                draft.handlers.validate(&sections.top)?;
            }
            None
        };
        let mut managers = BTreeMap::new();
        for (manager, section) in sections.managers {
            let config = ManagerConfig::of(Some(&manager), &section.over(&sections.top))?;
            managers.insert(manager, config);
        }
        Ok(Self {
            name,
            top,
            managers,
        })
    }

    /// Returns the manager at the top of the file.
    ///
    /// # Errors
    ///
    /// `Invalid` if the top sets no store.
    pub fn top(&self) -> Result<&ManagerConfig, Error> {
        self.top.as_ref().ok_or_else(|| {
            Error::invalid(format!(
                "{}: store: no store is set; set store = \"redis://host:6379\" at the top, or set LEASEHOLD_STORE{}",
                self.name,
                self.known(", or use a manager by name: ")
            ))
        })
    }

    /// Returns the manager of `[managers.NAME]`.
    ///
    /// # Errors
    ///
    /// `Invalid` if it does not exist.
    pub fn manager(&self, name: &str) -> Result<&ManagerConfig, Error> {
        self.managers.get(name).ok_or_else(|| {
            Error::invalid(format!(
                "{}: managers.{name}: no such manager{}; add [managers.{name}]",
                self.name,
                self.known("; there are ")
            ))
        })
    }

    /// The names of the managers below the top, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.managers.keys().map(String::as_str)
    }

    fn known(&self, before: &str) -> String {
        if self.managers.is_empty() {
            return String::new();
        }
        let names: Vec<&str> = self.names().collect();
        format!("{before}{}", names.join(", "))
    }
}
