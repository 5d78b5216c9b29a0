//! The store.

mod answer;
mod cause;
mod kubernetes_store;
mod lease;
mod link;
mod login;
mod names;
mod options;
mod plugin;
mod register;
mod watcher;

pub(crate) use answer::Verb;
pub use kubernetes_store::KubernetesStore;
pub use lease::LeaseVersion;
pub(crate) use link::Link;
pub use options::KubernetesOptions;
pub use register::KubernetesRegister;
