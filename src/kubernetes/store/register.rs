//! [`KubernetesRegister`]: records in Leases, replaced by their `resourceVersion`.

use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::serde::de::DeserializeOwned;
use k8s_openapi::{List, serde_json};

use super::answer::{Answer, Verb};
use super::lease::{self, LABEL, LeaseVersion};
use super::link::Link;
use super::names;
use super::watcher::{self, Watchers};
use crate::clock::{Stamp, wall_millis};
use crate::model::error::Error;
use crate::model::key::Key;
use crate::store::{Hint, Listed, Record, Register, Swapped};

/// How many Leases one request of a list gives.
const PAGE: usize = 500;
/// How many of these requests a list sends at most.
const PAGES: usize = 1_000;

/// Records in the Leases of one namespace: the register of a
/// [`KubernetesStore`](super::KubernetesStore).
#[derive(Clone, Debug)]
pub struct KubernetesRegister {
    link: Arc<Link>,
    watchers: Arc<Watchers>,
}

impl KubernetesRegister {
    pub(super) fn over(link: Arc<Link>) -> Self {
        Self {
            link,
            watchers: Arc::default(),
        }
    }

    async fn list_page(&self, after: &str) -> Result<List<Lease>, Error> {
        let mut path = format!(
            "{}?labelSelector={LABEL}&limit={PAGE}",
            path(&self.link.namespace, "")
        );
        if !after.is_empty() {
            let after =
                percent_encoding::utf8_percent_encode(after, percent_encoding::NON_ALPHANUMERIC);
            path.push_str(&format!("&continue={after}"));
        }
        let answer = self.link.call(Verb::List, &path, None).await?;
        if answer.code != 200 {
            return Err(answer.refusal(Verb::List, &path));
        }
        read(&answer)
    }
}

/// The path of a Lease, or of all without a name.
pub(super) fn path(namespace: &str, name: &str) -> String {
    let separator = if name.is_empty() { "" } else { "/" };
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases{separator}{name}")
}

fn read<T: DeserializeOwned>(answer: &Answer) -> Result<T, Error> {
    serde_json::from_slice(&answer.body).map_err(|error| {
        Error::corrupt("the API server answered with something else than Leases; check its address")
            .because(error)
    })
}

fn now() -> MicroTime {
    let millis = i64::try_from(wall_millis()).unwrap_or_default();
    MicroTime(Timestamp::from_millisecond(millis).unwrap_or_default())
}

#[deny(clippy::missing_trait_methods)]
impl Register for KubernetesRegister {
    type Version = LeaseVersion;

    fn name(&self) -> &'static str {
        "kubernetes"
    }

    async fn load(&self, key: &Key) -> Result<Option<(Record, LeaseVersion)>, Error> {
        let path = path(&self.link.namespace, &names::of(key)?);
        let answer = self.link.call(Verb::Get, &path, None).await?;
        if answer.code == 404 {
            return Ok(None);
        }
        let lease: Lease = read(&answer)?;
        Ok(Some((lease::read(&lease)?, LeaseVersion(Arc::new(lease)))))
    }

    async fn swap(
        &self,
        key: &Key,
        expected: Option<&LeaseVersion>,
        record: &Record,
    ) -> Result<Swapped<LeaseVersion>, Error> {
        let name = names::of(key)?;
        let base = expected.map(|version| &*version.0);
        let lease = lease::written(key, base, record, now());
        let body = serde_json::to_vec(&lease).map_err(|error| {
            Error::invalid("the Lease cannot be written; see the cause").because(error)
        })?;
        let namespace = &self.link.namespace;
        let (verb, path) = match expected {
            Some(_) => (Verb::Update, path(namespace, &name)),
            None => (Verb::Create, path(namespace, "")),
        };
        let answer = self.link.call(verb, &path, Some(body)).await?;
        match (answer.code, verb) {
            (200..=299, _) => {
                // Stored: what cannot be read is in doubt.
                let stored: Lease = read(&answer).map_err(|error| {
                    Error::in_doubt("the answer to a write cannot be read").because(error)
                })?;
                Ok(Swapped::Swapped(LeaseVersion(Arc::new(stored))))
            }
            // Somebody deleted it.
            (404, Verb::Update) | (409, _) => Ok(Swapped::Moved),
            _ => Err(answer.refusal(verb, &path)),
        }
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Listed<LeaseVersion>>, Error> {
        let mut listed = Vec::new();
        let mut after = String::new();
        for _ in 0..PAGES {
            let page = self.list_page(&after).await?;
            for lease in page.items {
                let Some(key) =
                    lease::key_of(&lease).filter(|key| key.as_str().starts_with(prefix))
                else {
                    continue;
                };
                if let Ok(record) = lease::read(&lease) {
                    let version = LeaseVersion(Arc::new(lease));
                    listed.push(Listed {
                        key,
                        record,
                        version,
                    });
                }
            }
            match page.metadata.continue_.filter(|after| !after.is_empty()) {
                Some(next) => after = next,
                None => return Ok(listed),
            }
        }
        Err(Error::corrupt(format!(
            "the API server gives more than {PAGES} pages of Leases: prefix={prefix:?}; use another namespace"
        )))
    }

    fn watches(&self) -> bool {
        true
    }

    async fn watch(&self, key: &Key) -> Result<Hint, Error> {
        watcher::subscribe(&self.watchers, &self.link, key).await
    }

    fn watched(&self, key: &Key) -> Option<(Record, LeaseVersion, Stamp)> {
        let (lease, at) = self.watchers.newest(key)?;
        Some((lease::read(&lease).ok()?, LeaseVersion(lease), at))
    }

    async fn close(&self) -> Result<(), Error> {
        self.link.close();
        Ok(())
    }
}
