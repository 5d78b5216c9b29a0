//! [`K8sFence`]: an object of Kubernetes that can be changed only under the newest token.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::serde_json::{self, Value, json};

use crate::clock::Clock;
use crate::fence::Fence;
use crate::fence::in_run::{patience, resolve_within};
use crate::fence::newer_holder::newer_holder;
use crate::kubernetes::store::{KubernetesOptions, Link, Verb};
use crate::model::commit::{Applied, CommitPermit, EffectError, HeldKey};
use crate::model::doubt::Resolution;
use crate::model::error::{Error, ErrorKind};
use crate::model::key::Key;
use crate::model::token::FencingToken;

/// The annotation that has the newest token of each key, as an object of JSON.
const TOKENS: &str = "leasehold/fence";
/// The annotation that has the name of the last commit.
const COMMIT: &str = "leasehold/commit";
/// How often the object is read again when another client wrote it in between.
const TRIES: usize = 8;

/// One object of a Kubernetes API server, of any kind, that a holder changes only while it is the
/// newest (feature `kubernetes`).
///
/// Raising the fence writes the token into an annotation of the object, so its `resourceVersion`
/// changes, and the update of an older holder that has read it before is refused. One that reads it
/// afterwards finds the newer token. The API server makes the comparison and the change in one
/// step.
///
/// ```no_run
/// # async fn example(locks: leasehold::LockManager) -> Result<(), Box<dyn std::error::Error>> {
/// use leasehold::kubernetes::K8sFence;
///
/// let path = "/api/v1/namespaces/shop/configmaps/prices";
/// let fence = K8sFence::connect("k8s://shop", path).await?;
/// let guard = locks.lock("prices").fence(fence.clone()).acquire().await?;
/// let done = guard.guarded_async(async |tx| {
///     let fence = fence.clone();
///     let mut object = fence.read().await?;
///     object["data"]["tea"] = "3".into();
///     tx.commit_with(move |permit| fence.apply(permit, object));
///     Ok(())
/// });
/// let _ = done.await?;
/// # Ok(())
/// # }
/// ```
///
/// The locks may be in any store. The account needs the verbs `get` and `update` on the object.
/// Changes without the fence are not protected, those of a client that keeps no annotations among
/// them. Cloning is cheap.
///
/// The object keeps the name of its last commit only, so there is no
/// [`Resolve`](crate::fence::Resolve): a doubt is resolved within the run, or not at all. If a run
/// ends in doubt, compare the annotation `leasehold/commit` with the run's
/// [`TxnId`](crate::run::TxnId). If it is that name, the commit is applied; after `void:` it is not
/// applied, and never will be. Any other name proves nothing: check the object.
#[derive(Clone)]
pub struct K8sFence {
    link: Arc<Link>,
    path: Arc<str>,
}

impl K8sFence {
    /// Makes a fence around one object, on the API server of a [URL](KubernetesOptions::parse).
    /// `path` is that of its API, from `/api/` or `/apis/` to its name. The object has to be there.
    ///
    /// # Errors
    ///
    /// As [`KubernetesStore::connect`](super::KubernetesStore::connect).
    ///
    /// # Cancel safety
    ///
    /// As [`KubernetesStore::connect`](super::KubernetesStore::connect).
    pub async fn connect(url: &str, path: &str) -> Result<Self, Error> {
        if !(path.starts_with("/api/") || path.starts_with("/apis/")) || path.contains(['?', '#']) {
            return Err(Error::invalid(
                "this is no path of an object; write /api/v1/namespaces/shop/configmaps/prices",
            ));
        }
        let options = KubernetesOptions::parse(url)?;
        let link = Link::open(options, Clock::system()?).await?;
        Ok(Self {
            link,
            path: Arc::from(path),
        })
    }

    /// Reads the object as etcd has it, with the version that a later change compares.
    ///
    /// # Errors
    ///
    /// `Invalid` if it is not there; `Denied` if access rights forbid it; `Unavailable` if the API
    /// server does not answer.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn read(&self) -> Result<Value, Error> {
        let answer = self.link.call(Verb::Get, &self.path, None).await?;
        if answer.code != 200 {
            return Err(Error::invalid(format!(
                "the object behind the fence is not there: path={}; create it first",
                self.path
            )));
        }
        serde_json::from_slice(&answer.body).map_err(|error| {
            Error::corrupt("the API server answered with something else than an object")
                .because(error)
        })
    }

    /// Replaces the object as the commit of a guarded run:
    /// `tx.commit_with(move |permit| fence.apply(permit, object))`. `object` is what
    /// [`read`](Self::read) gave within this run, with its changes.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write). A write that was not answered is asked about while there is time.
    ///
    /// # Cancel safety
    ///
    /// A dropped commit is in doubt.
    pub fn apply(
        &self,
        permit: CommitPermit,
        object: Value,
    ) -> impl Future<Output = Result<Applied, EffectError>> + Send + use<> {
        let fence = self.clone();
        async move {
            permit.sends();
            permit.used_to_send(fence.commit(&permit, object)).await
        }
    }

    async fn commit(&self, permit: &CommitPermit, object: Value) -> Result<Applied, EffectError> {
        let clock = &self.link.clock;
        let left = permit.not_after.since(&clock.stamp());
        let name = permit.txn_id.to_string();
        let read_at = object["metadata"]["resourceVersion"].clone();
        let written = self.write_under(permit.locks(), &name, object);
        let error = match clock.timeout(patience(left), written).await {
            Some(Err(EffectError::Unknown(error))) => error,
            Some(answer) => return answer,
            None => "the API server did not answer the commit in time".into(),
        };
        let ask = |_| self.resolve(&name, &read_at);
        resolve_within(clock, permit.not_after, error, ask).await
    }

    /// Replaces the object under a token.
    ///
    /// # Errors
    ///
    /// [`EffectError::Fenced`] if there is a newer holder;
    /// [`NotApplied`](EffectError::NotApplied) if the object was read before the fence was raised,
    /// was changed since, or the API server refuses it; else [`Unknown`](EffectError::Unknown).
    ///
    /// # Cancel safety
    ///
    /// A dropped write is in doubt.
    pub async fn write(
        &self,
        key: &Key,
        token: FencingToken,
        object: Value,
    ) -> Result<Applied, EffectError> {
        let lock = HeldKey {
            key: key.clone(),
            token,
        };
        self.write_under(&[lock], "", object).await
    }

    async fn write_under(
        &self,
        locks: &[HeldKey],
        name: &str,
        mut object: Value,
    ) -> Result<Applied, EffectError> {
        match fate(&object, name) {
            Some(Resolution::Applied) => return Err(taken()),
            Some(Resolution::NotApplied) => {
                return Err(EffectError::not_applied("the commit was made void before"));
            }
            None => {}
        }
        let tokens = tokens_of(&object).map_err(EffectError::not_applied)?;
        for lock in locks {
            match tokens.get(lock.key.as_str()) {
                Some(seen) if *seen == lock.token.number() => {}
                Some(seen) if *seen > lock.token.number() => return Err(fenced(*seen)),
                _ => {
                    return Err(EffectError::not_applied(Error::invalid(format!(
                        "the object was read before its fence was raised: key={} path={}; tie the fence to the lock, and read within the run",
                        lock.key, self.path
                    ))));
                }
            }
        }
        annotate(&mut object, COMMIT, name);
        match self.replace(&object).await {
            Ok(true) => Ok(Applied::fenced()),
            Ok(false) => Err(self.moved(locks, name).await),
            Err(error) if error.kind() == ErrorKind::InDoubt => Err(EffectError::unknown(error)),
            Err(error) => Err(EffectError::not_applied(error)),
        }
    }

    /// Whether the object was replaced: not if its version is another one.
    async fn replace(&self, object: &Value) -> Result<bool, Error> {
        if object["metadata"]["resourceVersion"]
            .as_str()
            .is_none_or(str::is_empty)
        {
            return Err(Error::invalid(
                "the object has no metadata.resourceVersion; change what the fence has read",
            ));
        }
        let body = object.to_string().into_bytes();
        let answer = self.link.call(Verb::Update, &self.path, Some(body)).await?;
        Ok(answer.code == 200)
    }

    /// Why the object has another version: an earlier use of the same permit, a newer holder, or
    /// somebody without the fence.
    async fn moved(&self, locks: &[HeldKey], name: &str) -> EffectError {
        let tokens = match self.read().await {
            Ok(object) if fate(&object, name) == Some(Resolution::Applied) => return taken(),
            // An earlier use may be applied.
            Err(error) if !name.is_empty() => return EffectError::unknown(error),
            read => read.and_then(|object| tokens_of(&object)),
        };
        for lock in locks {
            let seen = tokens
                .as_ref()
                .ok()
                .and_then(|tokens| tokens.get(lock.key.as_str()));
            if let Some(seen) = seen.filter(|seen| **seen > lock.token.number()) {
                return fenced(*seen);
            }
        }
        EffectError::not_applied(Error::contended(format!(
            "somebody else changed the object: path={}; read it again, and try again",
            self.path
        )))
    }

    /// What became of a commit: its name or its void is there, or the version that it compares is
    /// gone.
    async fn resolve(&self, name: &str, read_at: &Value) -> Result<Resolution, Error> {
        let mut object = self.read().await?;
        if let Some(known) = fate(&object, name) {
            return Ok(known);
        }
        if object["metadata"]["resourceVersion"] != *read_at {
            return Err(Error::invalid(format!(
                "what became of the commit can never be known, because the object was changed since: path={}; check it",
                self.path
            )));
        }
        annotate(&mut object, COMMIT, &void(name));
        match self.replace(&object).await? {
            true => Ok(Resolution::NotApplied),
            false => Err(Error::unavailable("the object was changed; ask again")),
        }
    }
}

impl Fence for K8sFence {
    async fn raise(&self, key: &Key, token: FencingToken) -> Result<(), Error> {
        for _ in 0..TRIES {
            let mut object = self.read().await?;
            let mut tokens = tokens_of(&object)?;
            let seen = tokens.insert(key.to_string(), token.number());
            match seen {
                Some(seen) if seen == token.number() => return Ok(()),
                Some(seen) if seen > token.number() => {
                    tokens.remove(key.as_str());
                    return Err(newer_holder(key, token, FencingToken::new(seen)?, || {
                        let version = object["metadata"]["resourceVersion"].as_str();
                        forget(
                            &self.path,
                            version.unwrap_or_default(),
                            &json!(tokens).to_string(),
                        )
                    }));
                }
                _ => {}
            }
            annotate(&mut object, TOKENS, &json!(tokens).to_string());
            if self.replace(&object).await? {
                return Ok(());
            }
        }
        Err(Error::unavailable(format!(
            "other clients keep changing the object behind the fence: path={}; check who writes it",
            self.path
        )))
    }
}

fn fenced(seen: u64) -> EffectError {
    EffectError::Fenced {
        seen: FencingToken::new(seen).ok(),
    }
}

/// The name of the commit is there, so an earlier use of its permit was applied.
fn taken() -> EffectError {
    EffectError::unknown("the name of the commit was taken before it was sent")
}

/// What takes the place of the name of a commit that is not applied.
fn void(name: &str) -> String {
    format!("void:{name}")
}

/// What the object says of the commit of a run; nothing if another one was later, and nothing of a
/// write without a name.
fn fate(object: &Value, name: &str) -> Option<Resolution> {
    let last = object["metadata"]["annotations"][COMMIT].as_str()?;
    match last {
        _ if name.is_empty() => None,
        _ if last == name => Some(Resolution::Applied),
        _ if last == void(name) => Some(Resolution::NotApplied),
        _ => None,
    }
}

fn annotate(object: &mut Value, name: &str, text: &str) {
    let annotations = &mut object["metadata"]["annotations"];
    if !annotations.is_object() {
        *annotations = json!({});
    }
    annotations[name] = text.into();
}

/// The command that leaves the fences of the other keys at an object, unless it was changed since.
/// No key has a quotation mark.
fn forget(path: &str, version: &str, others: &str) -> String {
    let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (group, place) = match parts[..] {
        ["apis", group, _, ref place @ ..] => (format!(".{group}"), place),
        ["api", _, ref place @ ..] => (String::new(), place),
        _ => (String::new(), &parts[..]),
    };
    let (space, object) = match place {
        ["namespaces", space, object @ ..] if object.len() > 1 => (format!(" -n {space}"), object),
        object => (String::new(), object),
    };
    let (kind, name) = match object {
        [kind, name, ..] => (*kind, *name),
        _ => ("the object", path),
    };
    format!(
        "kubectl annotate --overwrite --resource-version={version}{space} {kind}{group} {name} {TOKENS}='{others}'"
    )
}

/// The newest token of each key.
fn tokens_of(object: &Value) -> Result<BTreeMap<String, u64>, Error> {
    match object["metadata"]["annotations"][TOKENS].as_str() {
        None => Ok(BTreeMap::new()),
        Some(text) => serde_json::from_str(text).map_err(|error| {
            Error::corrupt(format!(
                "the annotation {TOKENS} is no fence; delete it once nobody holds the lock"
            ))
            .because(error)
        }),
    }
}

impl fmt::Debug for K8sFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("K8sFence")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}
