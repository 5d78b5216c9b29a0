//! [`KubernetesStore`]: locks in Leases of a Kubernetes API server (feature `kubernetes`).
#![doc = include_str!("store/PROTOCOL.md")]

pub(crate) mod store;

pub use store::{KubernetesOptions, KubernetesRegister, KubernetesStore, LeaseVersion};
