//! What a connect asks for each time: credentials and certificates, which change while the program
//! runs.
//!
//! | file | what |
//! |---|---|
//! | `login.rs` | user and password, from files or from a function of the user |
//! | `tls.rs` | authority, certificate and key; why a handshake failed |
//! | `files.rs` | how such a file is read |
//! | `ciphers.rs` | which library of ciphers is used |

#![cfg_attr(
    not(any(feature = "postgres", feature = "redis", feature = "zookeeper")),
    allow(dead_code, unused_imports, reason = "each store uses a part")
)]

#[cfg(any(
    feature = "object-store",
    all(feature = "tls", any(feature = "postgres", feature = "redis"))
))]
pub(crate) mod ciphers;
pub(crate) mod files;
mod login;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) mod tls;

pub(crate) use login::Login;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) use tls::TlsFiles;
