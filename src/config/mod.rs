//! Managers from a file and from the environment (feature `config`).
//!
//! [`Config`] describes the format.
//!
//! In the environment the names are in upper case, after `LEASEHOLD_`: `LEASEHOLD_STORE`,
//! `LEASEHOLD_TTL`. They override the top of the file. A variable without a value counts as one
//! that is not set. The names that the Redis starters of other lock frameworks use are aliases:
//!
//! | alias | field |
//! |---|---|
//! | `address` | `store` |
//! | `timeout_millis = 10` | `request_timeout = "10ms"` |
//! | `own_second = 10` | `ttl = "10s"` |
//! | `min_spin_millis = 10` | `retry_delay = "10ms"` |
//! | `random_millis = 10` | `retry_jitter = "10ms"` |
//!
//! Everything is validated before the first connection. An unknown name, an invalid value or an
//! impossible combination is an error that names the file, the line and the field. The file is read
//! with spans (`toml`), because libraries that merge first (the crate `config`) lose the position
//! of a value.

mod entry;
mod environment;
mod field;
mod file;
mod handlers;
mod log_file;
mod manager;
mod managers;

pub use manager::ManagerConfig;
pub use managers::Config;
