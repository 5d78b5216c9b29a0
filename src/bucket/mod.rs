//! [`BucketStore`]: locks in a bucket of an object storage, S3 or Azure (feature `object-store`).
#![doc = include_str!("PROTOCOL.md")]

mod answer;
mod bucket_store;
mod client;
mod options;
mod preflight;
mod register;
mod service;
mod text;

pub use bucket_store::BucketStore;
/// The crate whose client [`BucketStore::over`] takes.
pub use object_store;
pub use options::{BucketOptions, ObjectService};
pub use register::{BucketRegister, ObjectVersion};
