//! [`K8sFence`]: an object of Kubernetes that can be changed only under the newest token.

mod annotations;
mod path;

use std::fmt;
use std::sync::Arc;

use annotations::{
    Fate, TOKENS, add_commit, annotate, commits, fate, is_whole, keeps, name_of, size, tokens_of,
    void,
};
use k8s_openapi::serde_json::{self, Value, json};
use path::{forget, is_object};

use crate::clock::Clock;
use crate::fence::Fence;
use crate::fence::in_run::{patience, resolve_within};
use crate::fence::newer_holder::newer_holder;
use crate::kubernetes::store::{KubernetesOptions, Link, Verb};
use crate::model::commit::{Applied, CommitPermit, EffectError, HeldKey};
use crate::model::doubt::Resolution;
use crate::model::error::{Error, ErrorKind};
use crate::model::holder::OwnerToken;
use crate::model::key::Key;
use crate::model::token::FencingToken;
use crate::store::http::LONGEST;

/// How often the object is read again when another client wrote it in between.
const TRIES: usize = 8;
/// How many bytes the API server takes for all annotations of an object, names and values.
const MOST: usize = 256 * 1024;
/// How many of them a new key leaves to the names of the commits: eight have half of it at most.
const ROOM: usize = 1_000;

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
/// them. The API server ignores what an update changes in `.status` if that is a subresource: keep
/// what the fence protects elsewhere. A field that the server does not know is refused, from
/// Kubernetes 1.25 on. Cloning is cheap.
///
/// The object keeps the newest token of each key that ever fenced it, and all its annotations have
/// 262,144 bytes at most: that is a few thousand keys. Then a new key is refused. A key that nobody
/// locks any more may be taken out of the annotation `leasehold/fence`.
///
/// The object keeps the names of its last eight commits only, so there is no
/// [`Resolve`](crate::fence::Resolve): a doubt is resolved within the run, or not at all. If a run
/// ends in doubt, search the annotation `leasehold/commit` for the run's
/// [`TxnId`](crate::run::TxnId), which a dot and a hash of what was written follow. If it is there,
/// the commit is applied; after `void:` it is not applied, and never will be. Other names prove
/// nothing: check the object. A [`write`](Self::write) has a random name.
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
    /// `Invalid` for the path of a list or of a subresource, such as `.../status`: an update of a
    /// `status` ignores the annotations. Otherwise as
    /// [`KubernetesStore::connect`](super::KubernetesStore::connect).
    ///
    /// # Cancel safety
    ///
    /// As [`KubernetesStore::connect`](super::KubernetesStore::connect).
    pub async fn connect(url: &str, path: &str) -> Result<Self, Error> {
        if !is_object(path) {
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
    /// server does not answer within ten seconds.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn read(&self) -> Result<Value, Error> {
        let asked = self.link.call(Verb::Get, &self.path, None);
        let answer = self.link.clock.timeout(LONGEST, asked).await;
        let answer = answer.ok_or_else(|| {
            Error::unavailable(format!(
                "the API server does not answer: path={}; check its address and its state",
                self.path
            ))
        })??;
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
    /// A permit that is used for two changes applies one of them at most, and the other one is
    /// `Unknown`.
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
        let name = name_of(permit.txn_id, &object);
        let read_at = object["metadata"]["resourceVersion"].clone();
        let before = commits(&object).next().map(str::to_owned);
        let written = self.write_under(permit.locks(), &name, object);
        let error = match clock.timeout(patience(left), written).await {
            Some(Err(EffectError::Unknown(error))) => error,
            Some(answer) => return answer,
            None => "the API server did not answer the commit in time".into(),
        };
        let ask = |_| self.resolve(&name, &read_at, before.as_deref());
        resolve_within(clock, permit.not_after, error, ask).await
    }

    /// Replaces the object under a token.
    ///
    /// # Errors
    ///
    /// [`EffectError::Fenced`] if there is a newer holder;
    /// [`NotApplied`](EffectError::NotApplied) if the object was read before the fence was raised,
    /// was changed since without the fence, or the API server refuses it; else
    /// [`Unknown`](EffectError::Unknown), also after a conflict, if eight other commits or more
    /// have followed: a balancer may have sent this one twice, and an earlier copy be applied.
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
        let random = OwnerToken::generate().map_err(EffectError::not_applied)?;
        let name = format!("write:{}", random.expose());
        self.write_under(&[lock], &name, object).await
    }

    async fn write_under(
        &self,
        locks: &[HeldKey],
        name: &str,
        mut object: Value,
    ) -> Result<Applied, EffectError> {
        match fate(&object, name) {
            Some(Fate::Applied | Fate::OtherIsApplied) => {
                return Err(EffectError::unknown(self.taken()));
            }
            Some(Fate::NotApplied) => {
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
        let before = commits(&object).next().map(str::to_owned);
        add_commit(&mut object, name);
        match self.replace(&object).await {
            Ok(Some(stored)) if keeps(&stored, &object) => Ok(Applied::fenced()),
            Ok(Some(_)) => Err(EffectError::unknown(self.unkept())),
            Ok(None) => self.moved(locks, name, before.as_deref()).await,
            Err(error) if error.kind() == ErrorKind::InDoubt => Err(EffectError::unknown(error)),
            Err(error) => Err(EffectError::not_applied(error)),
        }
    }

    /// The object as it was replaced; `None` if its version is another one.
    async fn replace(&self, object: &Value) -> Result<Option<Value>, Error> {
        if object["metadata"]["resourceVersion"]
            .as_str()
            .is_none_or(str::is_empty)
        {
            return Err(Error::invalid(
                "the object has no metadata.resourceVersion; change what the fence has read",
            ));
        }
        let body = object.to_string().into_bytes();
        // A field that the server does not know would be dropped.
        let path = format!("{}?fieldValidation=Strict", self.path);
        let answer = self.link.call(Verb::Update, &path, Some(body)).await?;
        if answer.code != 200 {
            return Ok(None);
        }
        let stored = serde_json::from_slice(&answer.body);
        stored
            .map(Some)
            .map_err(|error| Error::in_doubt("the answer to a write cannot be read").because(error))
    }

    /// Another use of the permit is applied, so the run is not rolled back.
    fn taken(&self) -> Error {
        Error::invalid(format!(
            "another use of the permit is applied, and this one is not known to be: path={}; use a permit once",
            self.path
        ))
    }

    fn unkept(&self) -> Error {
        Error::invalid(format!(
            "the API server did not keep the annotations of the fence: path={}; check its admission webhooks",
            self.path
        ))
    }

    /// Why the object has another version: an earlier copy of this commit, a newer holder, or
    /// somebody without the fence. An earlier copy is applied if its name is there; it is not if
    /// the name `before` it is.
    async fn moved(
        &self,
        locks: &[HeldKey],
        name: &str,
        before: Option<&str>,
    ) -> Result<Applied, EffectError> {
        let object = self.read().await.map_err(EffectError::unknown)?;
        match fate(&object, name) {
            Some(Fate::Applied) => return Ok(Applied::fenced()),
            Some(Fate::OtherIsApplied) => return Err(EffectError::unknown(self.taken())),
            Some(Fate::NotApplied) | None => {}
        }
        if !is_whole(&object, before) {
            return Err(EffectError::unknown(Error::contended(format!(
                "other commits changed the object, and whether this one did before is not known: path={}; check it",
                self.path
            ))));
        }
        let tokens = tokens_of(&object).unwrap_or_default();
        for lock in locks {
            let seen = tokens.get(lock.key.as_str());
            if let Some(seen) = seen.filter(|seen| **seen > lock.token.number()) {
                return Err(fenced(*seen));
            }
        }
        Err(EffectError::not_applied(Error::contended(format!(
            "somebody else changed the object: path={}; read it again, and try again",
            self.path
        ))))
    }

    /// What became of a commit: its name or its void is there, or the version that it compares is
    /// gone. Then it is not applied if the name `before` it is there.
    async fn resolve(
        &self,
        name: &str,
        read_at: &Value,
        before: Option<&str>,
    ) -> Result<Resolution, Error> {
        let mut object = self.read().await?;
        match fate(&object, name) {
            Some(Fate::Applied) => return Ok(Resolution::Applied),
            Some(Fate::NotApplied) => return Ok(Resolution::NotApplied),
            Some(Fate::OtherIsApplied) => return Err(self.taken()),
            None => {}
        }
        if object["metadata"]["resourceVersion"] != *read_at {
            if is_whole(&object, before) {
                return Ok(Resolution::NotApplied);
            }
            return Err(Error::invalid(format!(
                "what became of the commit can never be known, because the object was changed since: path={}; check it",
                self.path
            )));
        }
        add_commit(&mut object, &void(name));
        match self.replace(&object).await? {
            Some(stored) if keeps(&stored, &object) => Ok(Resolution::NotApplied),
            Some(_) => Err(self.unkept()),
            None => Err(Error::unavailable("the object was changed; ask again")),
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
            if commits(&object).next().is_none() {
                // What the first commit is compared with.
                add_commit(
                    &mut object,
                    &format!("first:{}", OwnerToken::generate()?.expose()),
                );
            }
            // A key that is there needs no more room, and the names have grown into theirs.
            if seen.is_none() && size(&object) > MOST - ROOM {
                return Err(Error::invalid(format!(
                    "the annotations of the object, of {MOST} bytes at most, have no room for another fence: path={} keys={}; take keys that nobody locks any more out of its annotation {TOKENS}",
                    self.path,
                    tokens.len()
                )));
            }
            match self.replace(&object).await? {
                Some(stored) if keeps(&stored, &object) => return Ok(()),
                Some(_) => return Err(self.unkept()),
                None => {}
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

impl fmt::Debug for K8sFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("K8sFence")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}
