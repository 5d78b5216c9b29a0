//! [`Prefix`]: several applications in one store, each with its own keys.

use std::time::Duration;

use super::{
    Acquired, Capability, Claim, Grant, Hint, LockInfo, Member, Raised, Released, Renewed, Revoke,
    Revoked, Store, Vote,
};
use crate::model::error::Error;
use crate::model::key::Key;
use crate::model::token::FencingToken;

/// A store whose keys all begin with a prefix in the inner store.
///
/// `accounts/7` in `Prefix::new(store, "app/")` is `app/accounts/7` in `store`. Returned records have no prefix, and other
/// keys are neither seen nor changed. Include the separator in the prefix.
#[derive(Clone, Debug)]
#[doc(alias = "namespace")]
pub struct Prefix<S> {
    store: S,
    prefix: String,
}

impl<S: Store> Prefix<S> {
    /// Adds `prefix` to every key.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if no [`Key`] can begin with it.
    pub fn new(store: S, prefix: impl Into<String>) -> Result<Self, Error> {
        let prefix = prefix.into();
        if !prefix.is_empty() {
            Key::parse(&format!("{prefix}k")).map_err(|e| refused(&prefix, e))?;
        }
        Ok(Self { store, prefix })
    }

    /// The key in the inner store. Prefix and key together must be a key, so a long prefix leaves less for the keys.
    fn key(&self, key: &Key) -> Result<Key, Error> {
        Key::parse(&format!("{}{key}", self.prefix)).map_err(|e| refused(&self.prefix, e))
    }

    fn claim(&self, claim: &Claim) -> Result<Claim, Error> {
        let key = self.key(&claim.key)?;
        Ok(Claim {
            key,
            ..claim.clone()
        })
    }

    fn grant(&self, grant: &Grant) -> Result<Grant, Error> {
        let claim = self.claim(&grant.claim)?;
        Ok(Grant::new(claim, grant.token, grant.proof))
    }

    /// What is reported without the prefix; `None` if the rest is not a key, such as `/x` of `app//x`.
    fn info(&self, info: LockInfo) -> Option<LockInfo> {
        let key = info.key.as_str().strip_prefix(&self.prefix)?;
        let key = Key::parse(key).ok()?;
        Some(LockInfo { key, ..info })
    }
}

fn refused(prefix: &str, why: Error) -> Error {
    let prefix: String = prefix.chars().take(40).collect();
    Error::invalid(format!(
        "prefix and key together are not a valid key: prefix={prefix:?}; use a shorter prefix or another key"
    ))
    .because(why)
}

#[deny(clippy::missing_trait_methods)]
impl<S: Store> Store for Prefix<S> {
    fn name(&self) -> &'static str {
        self.store.name()
    }

    fn capability(&self) -> Capability {
        self.store.capability()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Acquired, Error> {
        let acquired = self.store.acquire(&self.claim(claim)?).await?;
        Ok(ours(acquired, claim))
    }

    async fn renew(&self, grants: &[Grant]) -> Vec<Renewed> {
        // This store never gave a grant of a key that the inner store cannot have.
        let beneath: Vec<_> = grants.iter().map(|grant| self.grant(grant)).collect();
        let asked: Vec<_> = beneath
            .iter()
            .filter_map(|g| g.as_ref().ok().cloned())
            .collect();
        let mut answers = self.store.renew(&asked).await.into_iter();
        beneath
            .iter()
            .map(|grant| match grant {
                Ok(_) => answers.next().unwrap_or_else(unanswered),
                Err(_) => Renewed::Gone,
            })
            .collect()
    }

    async fn release(&self, grant: &Grant) -> Released {
        match self.grant(grant) {
            Ok(grant) => self.store.release(&grant).await,
            Err(_) => Released::AlreadyGone,
        }
    }

    async fn rest(&self, grant: &Grant, rest: Duration) -> Released {
        match self.grant(grant) {
            Ok(grant) => self.store.rest(&grant, rest).await,
            Err(_) => Released::AlreadyGone,
        }
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), Error> {
        self.store.withdraw(&self.claim(claim)?).await
    }

    async fn subscribe(&self, claim: &Claim) -> Result<Hint, Error> {
        let hint = self.store.subscribe(&self.claim(claim)?).await?;
        Ok(of_claim(hint, claim))
    }

    fn listen(&self, claim: &Claim) -> Option<Hint> {
        let hint = self.store.listen(&self.claim(claim).ok()?)?;
        Some(of_claim(hint, claim))
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant, Error> {
        let beneath = self.store.downgrade(&self.grant(grant)?).await?;
        let claim = Claim {
            mode: beneath.claim.mode,
            ..grant.claim.clone()
        };
        Ok(Grant::new(claim, beneath.token, beneath.proof))
    }

    async fn revoke(&self, key: &Key, how: Revoke) -> Result<Revoked, Error> {
        self.store.revoke(&self.key(key)?, how).await
    }

    async fn inspect(&self, key: &Key) -> Result<Option<LockInfo>, Error> {
        let info = self.store.inspect(&self.key(key)?).await?;
        Ok(info.and_then(|info| self.info(info)))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>, Error> {
        let infos = self.store.list(&format!("{}{prefix}", self.prefix)).await?;
        let ours = infos.into_iter().filter_map(|info| self.info(info));
        Ok(ours.collect())
    }

    async fn close(&self) -> Result<(), Error> {
        self.store.close().await
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: Member> Member for Prefix<S> {
    async fn ready(&self) -> Result<(), Error> {
        self.store.ready().await
    }

    async fn vote(&self, claim: &Claim, floor: Option<FencingToken>) -> Result<Vote, Error> {
        let vote = self.store.vote(&self.claim(claim)?, floor).await?;
        let acquired = ours(vote.acquired, claim);
        Ok(Vote { acquired, ..vote })
    }

    async fn raise(&self, claim: &Claim, token: FencingToken) -> Result<Raised, Error> {
        self.store.raise(&self.claim(claim)?, token).await
    }
}

/// The same answer, with the caller's claim.
fn ours(acquired: Acquired, claim: &Claim) -> Acquired {
    match acquired {
        Acquired::Granted(grant) => {
            Acquired::Granted(Grant::new(claim.clone(), grant.token, grant.proof))
        }
        other @ (Acquired::Busy { .. } | Acquired::NotReady { .. }) => other,
    }
}

/// The same hint, with the caller's claim.
fn of_claim(hint: Hint, claim: &Claim) -> Hint {
    let claim = claim.clone();
    Hint::granting(async move {
        let grant = hint.await?;
        Some(Grant::new(claim, grant.token, grant.proof))
    })
}

fn unanswered() -> Renewed {
    Renewed::Unknown(Error::in_doubt(
        "the inner store answered fewer renewals than requested; check its `renew`",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::model::holder::{Label, OwnerToken};
    use crate::store::MemoryStore;
    use futures_util::FutureExt;
    use std::time::Duration;

    fn claim(key: &str) -> Claim {
        let owner = OwnerToken::generate().unwrap();
        let label = Label::parse("test").unwrap();
        Claim::new(
            Key::parse(key).unwrap(),
            owner,
            label,
            Duration::from_secs(1),
        )
    }

    fn now<T>(future: impl Future<Output = T>) -> T {
        future.now_or_never().unwrap()
    }

    fn keys(store: &impl Store, prefix: &str) -> Vec<String> {
        let records = now(store.list(prefix)).unwrap();
        records.iter().map(|r| r.key.to_string()).collect()
    }

    #[test]
    fn records_have_no_prefix_and_other_keys_are_not_listed() {
        let memory = MemoryStore::with_clock(ManualClock::new());
        let app = Prefix::new(memory.clone(), "app/").unwrap();
        let other = Prefix::new(memory.clone(), "apple/").unwrap();
        for (store, key) in [(&app, "b"), (&app, "a/1"), (&other, "a/1")] {
            let granted = now(store.acquire(&claim(key))).unwrap();
            assert!(matches!(granted, Acquired::Granted(grant) if grant.claim.key.as_str() == key));
        }
        assert_eq!(keys(&app, ""), ["a/1", "b"]);
        assert_eq!(keys(&app, "a"), ["a/1"]);
        assert_eq!(keys(&memory, ""), ["app/a/1", "app/b", "apple/a/1"]);
        let record = now(app.inspect(&Key::parse("b").unwrap()))
            .unwrap()
            .unwrap();
        assert_eq!(record.key.as_str(), "b");
    }

    #[test]
    fn prefix_and_key_together_have_at_most_the_length_of_a_key() {
        let memory = MemoryStore::with_clock(ManualClock::new());
        let store = Prefix::new(memory, "p".repeat(190)).unwrap();
        assert!(now(store.acquire(&claim(&"k".repeat(10)))).is_ok());
        let error = now(store.acquire(&claim(&"k".repeat(11)))).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Invalid);
        assert!(error.to_string().contains("prefix="), "{error}");
    }

    #[test]
    fn a_prefix_that_no_key_can_begin_with_is_refused() {
        for prefix in ["{app}", "/app", "a b", "../", &"p".repeat(200)] {
            let memory = MemoryStore::with_clock(ManualClock::new());
            assert!(Prefix::new(memory, prefix).is_err(), "{prefix}");
        }
    }
}
