//! [`TlsFiles`]: the certificates of a connection, which are read at each connect; and why a
//! handshake failed.

use std::path::PathBuf;

#[cfg(feature = "tls")]
pub(crate) use with_tls::refusal;

use crate::model::error::Error;

/// The files of an authority to trust instead of those of the system, and of a client's
/// certificate with its key.
#[derive(Clone, Debug)]
pub(crate) struct TlsFiles {
    /// The names of the options, for messages.
    names: [&'static str; 3],
    pub(crate) ca: Option<PathBuf>,
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

impl TlsFiles {
    /// `names`: of the options of authority, certificate and key.
    pub(crate) const fn named(names: [&'static str; 3]) -> Self {
        Self {
            names,
            ca: None,
            cert: None,
            key: None,
        }
    }

    /// The file of an option of TLS.
    pub(crate) fn path(text: &str) -> Result<Option<PathBuf>, Error> {
        if !cfg!(feature = "tls") {
            return Err(Error::unsupported(
                "leasehold was built without TLS; build it with the feature tls",
            ));
        }
        super::files::path(text).map(Some)
    }

    /// That the files belong together. `instead`: what switches TLS on in this URL.
    pub(crate) fn check(&self, is_tls: bool, instead: &str) -> Result<(), Error> {
        let [ca, cert, key] = self.names;
        if !is_tls && (self.ca.is_some() || self.cert.is_some() || self.key.is_some()) {
            return Err(Error::invalid(format!(
                "the options {ca}, {cert} and {key} need TLS; {instead}"
            )));
        }
        if self.cert.is_some() != self.key.is_some() {
            return Err(Error::invalid(format!(
                "a certificate of a client needs its key; write both {cert} and {key}"
            )));
        }
        Ok(())
    }
}

#[cfg(feature = "tls")]
mod with_tls {
    use std::io;
    use std::path::PathBuf;
    use std::time::Duration;

    use rustls::client::WantsClientCert;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::sign::CertifiedKey;
    use rustls::{
        AlertDescription as Alert, CertificateError as Bad, ClientConfig, ConfigBuilder,
        Error as Tls, InconsistentKeys, RootCertStore,
    };
    use tokio::sync::oneshot;

    use super::super::files;
    use super::TlsFiles;
    use crate::clock::Clock;
    use crate::model::error::Error;

    /// What the files contain, in PEM. It was read once as what it is meant to be.
    pub(crate) struct Pem {
        ca: Option<Vec<u8>>,
        /// Certificate and key.
        client: Option<(Vec<u8>, Vec<u8>)>,
    }

    impl Pem {
        /// With our certificate, if there is one.
        pub(crate) fn shown_by(
            &self,
            builder: ConfigBuilder<ClientConfig, WantsClientCert>,
        ) -> Result<ClientConfig, Error> {
            let Some((cert, key)) = &self.client else {
                return Ok(builder.with_no_client_auth());
            };
            // The files were checked when they were read.
            let unreadable = || {
                Error::unavailable(
                    "the certificate of the client or its key cannot be used; check both files",
                )
            };
            let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| unreadable())?;
            let with = builder.with_client_auth_cert(certificates(cert).collect(), key);
            with.map_err(|_| unreadable())
        }
    }

    fn certificates(pem: &[u8]) -> impl Iterator<Item = CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(pem).filter_map(Result::ok)
    }

    impl TlsFiles {
        /// What the files contain now.
        ///
        /// # Errors
        ///
        /// `Unavailable` if a file cannot be read, or is not what it is meant to be.
        pub(crate) async fn read(&self, limit: (&Clock, Duration)) -> Result<Pem, Error> {
            let [ca, cert, key] = self.names;
            let ca = one(ca, self.ca.as_ref(), limit, is_certificate).await?;
            let cert = one(cert, self.cert.as_ref(), limit, is_certificate).await?;
            let key = one(key, self.key.as_ref(), limit, is_key).await?;
            let client = cert.zip(key);
            if let (Some((cert, key)), Some(path)) = (&client, &self.key) {
                are_one(cert, key).map_err(|why| files::unusable(self.names[2], path, why))?;
            }
            Ok(Pem { ca, client })
        }

        /// The authorities to trust. Those that cannot be read verify nothing.
        ///
        /// # Errors
        ///
        /// `Unavailable` if those of the system are not read within the limit.
        pub(crate) async fn roots(
            &self,
            pem: &Pem,
            limit: (&Clock, Duration),
        ) -> Result<RootCertStore, Error> {
            let mut roots = RootCertStore::empty();
            match &pem.ca {
                Some(ca) => roots.add_parsable_certificates(certificates(ca)),
                None => roots.add_parsable_certificates(self.of_the_system(limit).await?),
            };
            Ok(roots)
        }

        /// They are read from many files, in a thread of its own: that may take longer than the
        /// runtime lives.
        pub(crate) async fn of_the_system(
            &self,
            (clock, limit): (&Clock, Duration),
        ) -> Result<Vec<CertificateDer<'static>>, Error> {
            let load = || rustls_native_certs::load_native_certs().certs;
            let loaded = in_time(load, (clock, limit)).await?;
            loaded.ok_or_else(|| {
                Error::unavailable(format!(
                    "the certificates of the system were not read in time: timeout={limit:?}; name a file with {}, or check the file system of SSL_CERT_FILE and SSL_CERT_DIR",
                    self.names[0]
                ))
            })
        }
    }

    /// `None` if it took longer.
    pub(super) async fn in_time<T: Send + 'static>(
        load: impl FnOnce() -> T + Send + 'static,
        (clock, limit): (&Clock, Duration),
    ) -> Result<Option<T>, Error> {
        let (answer, loaded) = oneshot::channel();
        let loading = std::thread::Builder::new().spawn(move || {
            let _ = answer.send(load());
        });
        loading.map_err(|error| Error::unavailable("no thread could be started").because(error))?;
        Ok(clock.timeout(limit, loaded).await.and_then(Result::ok))
    }

    async fn one(
        option: &str,
        path: Option<&PathBuf>,
        limit: (&Clock, Duration),
        is_meant: fn(&[u8]) -> Result<(), &'static str>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let Some(path) = path else { return Ok(None) };
        let bytes = files::read(option, path, limit).await?;
        is_meant(&bytes).map_err(|why| files::unusable(option, path, why))?;
        Ok(Some(bytes))
    }

    fn is_certificate(bytes: &[u8]) -> Result<(), &'static str> {
        let mut all = CertificateDer::pem_slice_iter(bytes).peekable();
        if all.peek().is_none() || all.any(|one| one.is_err()) {
            return Err("it has no certificate in PEM, or a broken one");
        }
        Ok(())
    }

    fn is_key(bytes: &[u8]) -> Result<(), &'static str> {
        let key = PrivateKeyDer::from_pem_slice(bytes);
        key.map(drop)
            .map_err(|_| "it has no private key in PEM without a passphrase")
    }

    /// That the key is that of the certificate. While a pair is replaced, its files may be of two.
    fn are_one(cert: &[u8], key: &[u8]) -> Result<(), &'static str> {
        const UNSUPPORTED: &str = "it, or its certificate, is of a kind that is not supported";
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(cert).collect();
        let (Ok(chain), Ok(key)) = (chain, PrivateKeyDer::from_pem_slice(key)) else {
            return Err(UNSUPPORTED);
        };
        let provider = rustls::crypto::ring::default_provider();
        let key = provider.key_provider.load_private_key(key);
        match CertifiedKey::new(chain, key.map_err(|_| UNSUPPORTED)?).keys_match() {
            Ok(()) | Err(Tls::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(()),
            Err(Tls::InconsistentKeys(_)) => Err("it is the key of another certificate"),
            // A certificate of version 1.
            Err(_) => Err(UNSUPPORTED),
        }
    }

    /// Why a handshake failed, in the words of an operator, and what to do. `None`: it is not about
    /// TLS.
    pub(crate) fn refusal(error: &io::Error) -> Option<[&'static str; 2]> {
        let error = error.get_ref()?.downcast_ref::<Tls>()?;
        Some(match error {
            Tls::InvalidCertificate(Bad::UnknownIssuer) => [
                "the server's certificate is of an unknown authority",
                "name the file of its authority in the URL",
            ],
            Tls::InvalidCertificate(Bad::Expired | Bad::ExpiredContext { .. }) => [
                "the server's certificate has expired",
                "renew it, and check the clock of this machine",
            ],
            Tls::InvalidCertificate(Bad::NotValidYet | Bad::NotValidYetContext { .. }) => [
                "the server's certificate is not valid yet",
                "check the clock of this machine",
            ],
            Tls::InvalidCertificate(Bad::NotValidForName | Bad::NotValidForNameContext { .. }) => [
                "the server's certificate is for another host name",
                "write the host in the URL as the certificate has it",
            ],
            Tls::InvalidCertificate(_) => [
                "the server's certificate is not valid",
                "check it, and the file of its authority",
            ],
            // Before version 1.3 of TLS the server says no more.
            Tls::AlertReceived(Alert::CertificateRequired | Alert::HandshakeFailure) => [
                "the server demands a client certificate",
                "name the files of a certificate and its key in the URL",
            ],
            Tls::AlertReceived(
                Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::UnknownCA
                | Alert::AccessDenied
                | Alert::DecryptError,
            ) => [
                "the server refuses our client certificate",
                "check that it has not expired, and that the server trusts its authority",
            ],
            Tls::InvalidMessage(_) => [
                "this does not answer in TLS",
                "check the port, and whether the server has TLS",
            ],
            _ => [
                "the handshake failed",
                "check the certificates of both sides, and the host in the URL",
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "tls")]
    #[tokio::test]
    async fn authorities_of_the_system_are_waited_for_as_long_as_a_connect_may_take() {
        use futures_util::FutureExt;

        const LIMIT: std::time::Duration = std::time::Duration::from_millis(300);
        let time = crate::clock::ManualClock::new();
        let clock = crate::clock::Clock::from(time.clone());
        let (open, never) = std::sync::mpsc::channel::<()>();
        let load = move || {
            let _ = never.recv();
        };
        let mut loading = std::pin::pin!(with_tls::in_time(load, (&clock, LIMIT)));
        assert!(loading.as_mut().now_or_never().is_none());
        time.advance(LIMIT);
        let ended = loading.now_or_never().expect("its time is over");
        assert!(ended.unwrap().is_none());
        drop(open);
    }

    #[test]
    fn files_that_do_not_belong_together_are_refused() {
        let files = |ca: bool, cert: bool, key: bool| TlsFiles {
            ca: ca.then(PathBuf::new),
            cert: cert.then(PathBuf::new),
            key: key.then(PathBuf::new),
            ..TlsFiles::named(["ca", "cert", "key"])
        };
        let refused = |files: TlsFiles, is_tls| {
            let refused = files.check(is_tls, "write rediss://");
            refused.unwrap_err().to_string()
        };
        for plain in [files(true, false, false), files(false, true, true)] {
            assert!(refused(plain, false).contains("write rediss://"));
        }
        for half in [files(true, true, false), files(false, false, true)] {
            assert!(refused(half, true).contains("both cert and key"));
        }
        files(true, true, true).check(true, "").unwrap();
        files(false, false, false).check(false, "").unwrap();
    }

    #[cfg(feature = "tls")]
    #[test]
    fn a_handshake_that_fails_has_a_reason_and_other_errors_have_none() {
        use std::io::{Error as Io, ErrorKind};

        use rustls::{AlertDescription, CertificateError, Error as Tls, InvalidMessage};

        for (error, why) in [
            (
                Tls::InvalidCertificate(CertificateError::NotValidYet),
                "not valid yet",
            ),
            (
                Tls::InvalidCertificate(CertificateError::Revoked),
                "is not valid",
            ),
            (
                Tls::AlertReceived(AlertDescription::HandshakeFailure),
                "demands a client certificate",
            ),
            (
                Tls::InvalidMessage(InvalidMessage::InvalidContentType),
                "does not answer in TLS",
            ),
            (Tls::DecryptError, "the handshake failed"),
        ] {
            let [reason, advice] = refusal(&Io::new(ErrorKind::InvalidData, error)).unwrap();
            assert!(reason.contains(why) && !advice.is_empty(), "{reason}");
        }
        assert_eq!(refusal(&Io::other("no")), None);
        assert_eq!(refusal(&Io::from(ErrorKind::ConnectionReset)), None);
    }
}
