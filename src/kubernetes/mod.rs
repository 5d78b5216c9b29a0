//! [`KubernetesStore`]: locks in Leases of a Kubernetes API server (feature `kubernetes`).
#![doc = include_str!("store/PROTOCOL.md")]

mod fence;
pub(crate) mod store;

pub use fence::K8sFence;
/// The type of an object that [`K8sFence`] reads and replaces.
pub use k8s_openapi::serde_json;
pub use store::{KubernetesOptions, KubernetesRegister, KubernetesStore, LeaseVersion};
