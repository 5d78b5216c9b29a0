//! [`OfAnyName`]: trusts the certificates of an authority, whatever host they name
//! (`sslmode=verify-ca`).

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError as Bad, DigitallySignedStruct, Error as Tls, RootCertStore, SignatureScheme,
};

use crate::model::error::Error;

#[derive(Debug)]
pub(super) struct OfAnyName(Arc<WebPkiServerVerifier>);

impl OfAnyName {
    pub(super) fn new(
        roots: Arc<RootCertStore>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, Error> {
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider).build();
        verifier.map(Self).map_err(|_| {
            Error::unavailable(
                "there is no authority to trust; name the file of one by sslrootcert, or install the certificates of the system",
            )
        })
    }
}

impl ServerCertVerifier for OfAnyName {
    /// The name is compared last, when all else is verified.
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Tls> {
        let verified =
            self.0
                .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            Err(Tls::InvalidCertificate(
                Bad::NotValidForName | Bad::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Tls> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Tls> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
