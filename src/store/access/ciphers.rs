//! [`builder`]: the library of ciphers that every encrypted connection of ours uses.

use std::sync::Arc;

use rustls::{ClientConfig, ConfigBuilder, WantsVerifier};

use crate::model::error::Error;

/// By one library of ciphers, whichever others the program is linked with: where there are several,
/// none is the default of the process.
///
/// # Errors
///
/// `Unsupported`.
pub(crate) fn builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    (builder.with_safe_default_protocol_versions())
        .map_err(|error| Error::unsupported(format!("no version of TLS can be used: {error}")))
}
