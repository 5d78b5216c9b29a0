//! [`Login`]: credentials that change while the program runs. They are asked for at each connect.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::files;
use crate::clock::Clock;
use crate::model::caught::Caught;
use crate::model::credentials::Credentials;
use crate::model::error::{BoxError, Error, ErrorKind};

type Provider = dyn Fn() -> BoxFuture<'static, Result<Credentials, BoxError>> + Send + Sync;

/// Where the credentials of each connect come from. The default: they are fixed, and the caller has
/// them.
#[derive(Clone, Default)]
pub(crate) struct Login {
    pub(crate) user_file: Option<PathBuf>,
    pub(crate) password_file: Option<PathBuf>,
    provider: Option<Arc<Provider>>,
}

impl Login {
    /// From a function of the user.
    pub(crate) fn provided<F, Fut>(provider: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Credentials, BoxError>> + Send + 'static,
    {
        Self {
            provider: Some(Arc::new(move || Box::pin(provider()))),
            ..Self::default()
        }
    }

    /// Whether the credentials never change.
    pub(crate) fn is_fixed(&self) -> bool {
        self.provider.is_none() && self.password_file.is_none()
    }

    /// That the URL says each of user and password once.
    ///
    /// # Errors
    ///
    /// `Invalid`, without any part of them.
    pub(crate) fn check(&self, has_user: bool, has_password: bool) -> Result<(), Error> {
        let wrong = if has_password && self.password_file.is_some() {
            "the URL has a password and a password_file; write one of them"
        } else if has_user && self.user_file.is_some() {
            "the URL has a user and a user_file; write one of them"
        } else if self.user_file.is_some() && self.password_file.is_none() {
            "the URL has a user_file without a password_file; write both"
        } else {
            return Ok(());
        };
        Err(Error::invalid(wrong))
    }

    /// Connects with the credentials of now. If the server refuses them, asks for them once more:
    /// they may have changed meanwhile, and a refusal of those is none for good. `dial` gets none
    /// if they are fixed.
    ///
    /// # Errors
    ///
    /// Those of `dial`, `Unavailable` if a file cannot be read, or if the provider fails or takes
    /// longer than `limit`.
    #[cfg_attr(
        not(any(feature = "postgres", feature = "redis")),
        allow(dead_code, reason = "for stores whose connections are ours")
    )]
    pub(crate) async fn connect<T, F>(
        &self,
        (clock, limit): (&Clock, Duration),
        dial: impl Fn(Option<Credentials>) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        if self.is_fixed() {
            return dial(None).await;
        }
        let first = self.now((clock, limit)).await?;
        let refused = match dial(Some(first.clone())).await {
            Err(error) if error.kind() == ErrorKind::Denied => error,
            dialled => return dialled,
        };
        let second = self.now((clock, limit)).await?;
        if second == first {
            return Err(refused.that_may_pass());
        }
        let dialled = dial(Some(second)).await;
        dialled.map_err(Error::that_may_pass)
    }

    /// The credentials of now.
    pub(crate) async fn now(&self, limit: (&Clock, Duration)) -> Result<Credentials, Error> {
        if let Some(provider) = &self.provider {
            let (clock, limit) = limit;
            // It is code of the user, and runs in a task of the store.
            let asked = async move { provider().await };
            let asked = AssertUnwindSafe(asked).catch_unwind();
            return match clock.timeout(limit, asked).await {
                Some(Err(panic)) => {
                    drop(Caught::by(panic));
                    Err(Error::unavailable("the provider of credentials panicked"))
                }
                Some(Ok(provided)) => provided.map_err(|error| {
                    Error::unavailable(
                        "the provider of credentials failed; its error is the source of this one",
                    )
                    .because(error)
                }),
                None => Err(Error::unavailable(format!(
                    "the provider of credentials took longer than a connect may: timeout={limit:?}; give it the credentials ahead of time, or set a longer timeout_millis"
                ))),
            };
        }
        let password = Self::read("password_file", self.password_file.as_ref(), limit).await?;
        let user = Self::read("user_file", self.user_file.as_ref(), limit).await?;
        let password = password.unwrap_or_default();
        Ok(match user {
            Some(user) => Credentials::new(user, password),
            None => Credentials::with_password(password),
        })
    }

    async fn read(
        option: &str,
        path: Option<&PathBuf>,
        limit: (&Clock, Duration),
    ) -> Result<Option<String>, Error> {
        let Some(path) = path else { return Ok(None) };
        let bytes = files::read(option, path, limit).await?;
        let text = String::from_utf8(bytes)
            .map_err(|_| files::unusable(option, path, "it is not UTF-8"))?;
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.is_empty() {
            return Err(files::unusable(option, path, "it is empty"));
        }
        Ok(Some(line.to_owned()))
    }
}

/// Providers are equal if they are the same one.
impl PartialEq for Login {
    fn eq(&self, other: &Self) -> bool {
        let are_same = match (&self.provider, &other.provider) {
            (Some(ours), Some(theirs)) => Arc::ptr_eq(ours, theirs),
            (None, None) => true,
            _ => false,
        };
        are_same && self.user_file == other.user_file && self.password_file == other.password_file
    }
}

impl Eq for Login {}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("user_file", &self.user_file)
            .field("password_file", &self.password_file)
            .field("is_provided", &self.provider.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::clock::ManualClock;

    const LIMIT: Duration = Duration::from_secs(2);

    /// Connects to a server that admits this password, and returns how often it was asked.
    async fn dials(login: &Login, admitted: &str) -> (usize, Result<(), Error>) {
        let clock = Clock::from(ManualClock::new());
        let dials = AtomicUsize::new(0);
        let connected = login.connect((&clock, LIMIT), async |credentials| {
            dials.fetch_add(1, Ordering::Relaxed);
            let is_admitted = credentials.unwrap().expose() == admitted;
            is_admitted.then_some(()).ok_or(Error::denied("no"))
        });
        let connected = connected.await;
        (dials.into_inner(), connected)
    }

    /// Answers with one password after the other, and then with the last one.
    fn provided(passwords: &'static [&'static str]) -> Login {
        let next = Arc::new(AtomicUsize::new(0));
        Login::provided(move || {
            let at = next.fetch_add(1, Ordering::Relaxed);
            async move {
                Ok(Credentials::with_password(
                    passwords[at.min(passwords.len() - 1)],
                ))
            }
        })
    }

    #[tokio::test]
    async fn credentials_that_are_refused_are_asked_for_once_more() {
        let (dials_, connected) = dials(&provided(&["old", "new"]), "new").await;
        connected.unwrap();
        assert_eq!(dials_, 2);
        let (dials_, connected) = dials(&provided(&["a", "b", "c"]), "c").await;
        assert_eq!(
            (dials_, connected.unwrap_err().kind()),
            (2, ErrorKind::Denied)
        );
        // The same ones are not tried again: a server may lock a user out.
        let (dials_, connected) = dials(&provided(&["old"]), "new").await;
        assert_eq!(
            (dials_, connected.unwrap_err().kind()),
            (1, ErrorKind::Denied)
        );
    }

    #[tokio::test]
    async fn a_provider_that_fails_or_hangs_costs_one_connect() {
        let failing = Login::provided(async || Err("no token".into()));
        let (dials_, connected) = dials(&failing, "any").await;
        let error = connected.unwrap_err();
        assert_eq!((dials_, error.kind()), (0, ErrorKind::Unavailable));
        assert!(format!("{error:?}").contains("no token"), "{error:?}");
        let panicking =
            Login::provided(async || -> Result<Credentials, BoxError> { panic!("sesame") });
        let (dials_, connected) = dials(&panicking, "any").await;
        let error = connected.unwrap_err();
        assert_eq!((dials_, error.kind()), (0, ErrorKind::Unavailable));
        assert!(!format!("{error:?}").contains("sesame"), "{error:?}");

        let time = ManualClock::new();
        let clock = Clock::from(time.clone());
        let hanging = Login::provided(std::future::pending::<Result<Credentials, BoxError>>);
        let asked = tokio::spawn(async move { hanging.now((&clock, LIMIT)).await });
        while !asked.is_finished() {
            tokio::task::yield_now().await;
            time.advance(LIMIT);
        }
        let message = asked.await.unwrap().unwrap_err().to_string();
        assert!(message.contains("timeout=2s"), "{message}");
    }

    #[tokio::test]
    async fn one_newline_at_the_end_of_a_file_is_no_part_of_it() {
        let name = format!("leasehold-login-{}", std::process::id());
        let file = std::env::temp_dir().join(name);
        let login = Login {
            password_file: Some(file.clone()),
            ..Login::default()
        };
        let clock = Clock::system().unwrap();
        let limit = (&clock, Duration::from_secs(60));
        for (text, password) in [
            ("sesame", "sesame"),
            ("sesame\n", "sesame"),
            ("sesame\r\n", "sesame"),
            (" ses\name \n\n", " ses\name \n"),
        ] {
            std::fs::write(&file, text).unwrap();
            assert!(login.now(limit).await.unwrap() == Credentials::with_password(password));
        }
        for text in [&b"\n"[..], b"\xff"] {
            std::fs::write(&file, text).unwrap();
            assert!(login.now(limit).await.is_err());
        }
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn user_and_password_are_written_once() {
        let files = |user: bool, password: bool| Login {
            user_file: user.then(PathBuf::new),
            password_file: password.then(PathBuf::new),
            provider: None,
        };
        for (login, has_user, has_password) in [
            (files(false, true), false, true),
            (files(true, true), true, false),
            (files(true, false), false, true),
        ] {
            login.check(has_user, has_password).unwrap_err();
        }
        files(false, true).check(true, false).unwrap();
        files(true, true).check(false, false).unwrap();
    }
}
