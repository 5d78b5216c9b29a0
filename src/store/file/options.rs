//! [`FileOptions`]: the directory of a store of files, and how it is used. Read from a `file:` URL.

use std::path::PathBuf;
use std::time::Duration;

use nix::errno::Errno;
use nix::unistd::{Uid, User};

use super::errors::a_directory_of_this_user;
use crate::model::error::Error;
use crate::model::options::Accepts::{Text, Words};
use crate::model::options::{Field, Options};

const EXAMPLE: &str = "file:, file:///var/lib/app/locks or file:///run/locks?on_death=now";

/// When the holds of a process end that died without releasing them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum OnDeath {
    /// With their TTL, so that whatever the process had sent has that long to arrive.
    #[default]
    Ttl,
    /// At once, when the process and every child that inherited its life file are gone; with the
    /// TTL at the latest.
    Now,
}

/// Where a [`FileStore`](super::FileStore) keeps its locks, and how.
///
/// ```
/// use leasehold::store::{FileOptions, OnDeath};
///
/// let options = FileOptions::parse("file:///run/app/locks?on_death=now")?;
/// assert_eq!(options.on_death, OnDeath::Now);
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FileOptions {
    /// The directory. It is made if it is missing, and belongs to this user alone (mode 0700),
    /// unless there is a group.
    pub directory: PathBuf,
    /// When the holds of this process end if it dies. Each process decides for itself.
    pub on_death: OnDeath,
    /// Whether programs that this process starts keep its holds alive after its own death, with
    /// [`OnDeath::Now`]. Off by default.
    pub children_hold: bool,
    /// The name or number of a group whose members share the directory. Every user names the same
    /// group.
    pub group: Option<String>,
    /// How long a request waits for another process that works on the same key. Default 400 ms:
    /// less than a manager waits for a request.
    pub request_timeout: Duration,
    /// Another identity of this boot, for tests.
    pub(super) boot: Option<String>,
}

impl FileOptions {
    #[rustfmt::skip]
    pub(crate) const OPTIONS: Options<Self> = Options { of: "file:", fields: &[
        Field::new("on_death", "ttl", Words(&["ttl", "now"], |o, word| o.on_death = if word == "now" { OnDeath::Now } else { OnDeath::Ttl }),
            "when the holds of this process end if it dies"),
        Field::new("children", "", Words(&["hold"], |o, _| o.children_hold = true),
            "with `on_death=now`: programs that this process starts keep its holds"),
        Field::new("group", "", Text("the name or number of a group", Self::use_group),
            "the group whose members share the directory; all of them name it"),
    ] };

    /// A directory, with the default for everything else.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            on_death: OnDeath::default(),
            children_hold: false,
            group: None,
            request_timeout: Duration::from_millis(400),
            boot: None,
        }
    }

    /// Reads a URL: `file:` for the [default directory](Self::default_directory), or
    /// `file:///path`, with [options](crate::docs::stores::files#options).
    ///
    /// # Errors
    ///
    /// `Invalid` if it is no such URL.
    pub fn parse(url: &str) -> Result<Self, Error> {
        let rest = url.strip_prefix("file:").ok_or_else(malformed)?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        if path.contains('#') || query.contains('#') {
            return Err(malformed());
        }
        let path = decoded(path.strip_prefix("//").unwrap_or(path))?;
        let mut options = if path.is_empty() && !rest.starts_with("//") {
            Self::new(Self::default_directory()?)
        } else if path.starts_with('/') && path.len() > 1 {
            Self::new(path)
        } else {
            return Err(malformed());
        };
        let mut given = Vec::new();
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').ok_or_else(malformed)?;
            given.push((name, decoded(value)?));
        }
        let given = given.iter().map(|(name, value)| (*name, value.as_str()));
        Self::OPTIONS.read("file", given, &mut options)?;
        if options.children_hold && options.on_death != OnDeath::Now {
            return Err(Error::invalid(
                "children=hold has an effect with on_death=now only; write both",
            ));
        }
        Ok(options)
    }

    fn use_group(&mut self, group: &str) -> Result<(), Error> {
        if group.is_empty() {
            return Err(Error::invalid("it is empty; use group=NAME"));
        }
        self.group = Some(group.to_owned());
        Ok(())
    }

    /// The directory of `file:`: for root `/run/lock/leasehold`, for others
    /// `~/.local/state/leasehold`.
    ///
    /// The home is that of the system's user database, with its LDAP or SSSD, and never `$HOME`: a
    /// shell and cron use the same directory.
    ///
    /// # Errors
    ///
    /// `Invalid` if the user database has no home for this user. `Unavailable` if it cannot be
    /// read.
    pub fn default_directory() -> Result<PathBuf, Error> {
        let user = Uid::effective();
        if user.is_root() {
            return Ok(PathBuf::from("/run/lock/leasehold"));
        }
        let found = match User::from_uid(user) {
            // There is no database, as in an image that has nothing but a program.
            Err(Errno::ENOENT) => Ok(None),
            found => found,
        };
        let found = found.map_err(|errno| {
            Error::unavailable(format!(
                "the user database cannot be read, so the home of this user is unknown: uid={user} error={errno}"
            ))
        })?;
        match found.map(|found| found.dir) {
            Some(home) if home.is_absolute() => Ok(home.join(".local/state/leasehold")),
            _ => Err(Error::invalid(format!(
                "the user database has no home directory for this user: uid={user}; {}",
                a_directory_of_this_user()
            ))),
        }
    }
}

fn malformed() -> Error {
    Error::invalid(format!("this is no URL of a directory; use {EXAMPLE}"))
}

/// Percent-decoding.
fn decoded(text: &str) -> Result<String, Error> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err(malformed());
        };
        bytes.push((high * 16 + low) as u8);
    }
    if bytes.contains(&0) {
        return Err(malformed());
    }
    String::from_utf8(bytes).map_err(|_| malformed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_directory_and_its_options() {
        let options = FileOptions::parse("file:///a%20b/c?on_death=now&children=hold&group=staff");
        let options = options.unwrap();
        assert_eq!(options.directory, PathBuf::from("/a b/c"));
        assert_eq!(options.on_death, OnDeath::Now);
        assert!(options.children_hold);
        assert_eq!(options.group.as_deref(), Some("staff"));
        let plain = FileOptions::parse("file:/a").unwrap();
        assert_eq!(plain, FileOptions::new("/a"));
        let default = FileOptions::parse("file:").unwrap();
        assert_eq!(default.directory, FileOptions::default_directory().unwrap());
    }

    #[test]
    fn a_url_that_names_no_directory_is_refused() {
        for url in [
            "file:a",
            "file://host/a",
            "file://",
            "file:///",
            "file:///a?on_death=never",
            "file:///a?colour=blue",
            "file:///a?on_death=now&on_death=ttl",
            "file:///a?children=hold",
            "file:///a?group=",
            "file:///a%0",
            "file:///a%00b",
            "file:///a#b",
        ] {
            let error = FileOptions::parse(url).expect_err(url);
            assert_eq!(error.kind(), crate::ErrorKind::Invalid, "{url}");
        }
    }
}
