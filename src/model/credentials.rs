//! [`Credentials`]: a user and a password.

use std::fmt;

/// A user and a password for a server. `Debug` shows neither.
///
/// ```
/// let credentials = leasehold::Credentials::new("app", "sesame");
/// assert_eq!(format!("{credentials:?}"), "Credentials(redacted)");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    user: Option<String>,
    password: String,
}

impl Credentials {
    /// Credentials from plain text.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self {
            user: Some(user.into()),
            password: password.into(),
        }
    }

    /// A password alone. The user is that of the URL, or the server's default user.
    pub fn with_password(password: impl Into<String>) -> Self {
        Self {
            user: None,
            password: password.into(),
        }
    }

    #[cfg_attr(
        not(any(feature = "postgres", feature = "redis", feature = "zookeeper")),
        allow(dead_code, reason = "for stores with a server")
    )]
    pub(crate) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The same for this user, if they name none.
    #[cfg(feature = "zookeeper")]
    pub(crate) fn or_of(mut self, user: Option<&str>) -> Self {
        self.user = self.user.or_else(|| user.map(str::to_owned));
        self
    }

    #[cfg_attr(
        not(any(feature = "postgres", feature = "redis", feature = "zookeeper")),
        allow(dead_code, reason = "for stores with a server")
    )]
    pub(crate) fn expose(&self) -> &str {
        &self.password
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(redacted)")
    }
}
