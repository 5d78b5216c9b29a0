//! What a lock has beside its own key: a queue, readers, and a bar.
//!
//! The rules are those of [`MemoryStore`](crate::store::MemoryStore), in Lua. What the keys hold stands on the
//! [store's page](super).

use ::redis::Value;

use super::fault::strange;
use super::reply;
use super::script::{Call, DOWNGRADE, LEAVE, REVOKE};
use super::store::Shared;
use crate::model::error::{Error, ErrorKind, LostReason};
use crate::model::key::Key;
use crate::store::{Claim, Grant, GrantProof, LockMode, Revoke, Revoked};

/// Whether a claim that left leaves a tombstone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Burial {
    /// It was granted, and that is known.
    None,
    /// Its acquire may be executed later.
    Tombstone,
}

impl Shared {
    /// The call by which a claim leaves, from where it reads, writes or waits.
    pub(super) fn leave_call(&self, claim: &Claim, burial: Burial) -> Call {
        let (options, key) = (self.options(), &claim.key);
        let names = &options.names;
        let tombstone_ttl = match burial {
            Burial::None => 0,
            Burial::Tombstone => options.max_ttl.as_millis(),
        };
        Call::new([
            names.lock(key),
            names.queue(key),
            names.alone(key),
            names.places(key),
            names.readers(key),
            names.grants(key),
            names.tombstone(key, &claim.owner),
        ])
        .arg(claim.owner.expose())
        .arg(names.channel(key))
        .number(tombstone_ttl)
    }

    /// Withdraws a claim that may have a place.
    pub(super) async fn withdraw_queued(&self, claim: &Claim) -> Result<(), Error> {
        let call = self.leave_call(claim, Burial::Tombstone);
        match self.run(&claim.key, &LEAVE, &call).await {
            Ok(Value::Int(0 | 1)) => Ok(()),
            Ok(_) => Err(strange("withdraw")),
            Err(failure) => Err(failure.into_error("withdraw")),
        }
    }

    pub(super) async fn downgrade(&self, grant: &Grant) -> Result<Grant, Error> {
        let (names, claim) = (&self.options().names, &grant.claim);
        let key = &claim.key;
        if claim.mode == LockMode::Exclusive {
            return Err(Error::invalid(format!(
                "an exclusive hold cannot become a read hold: key={key}; take a write lock"
            )));
        }
        let call = Call::new([names.lock(key), names.readers(key), names.grants(key)])
            .arg(claim.owner.expose())
            .number(grant.token.number().into())
            .arg(claim.label.as_str())
            .arg(names.channel(key));
        let answer = self.run(key, &DOWNGRADE, &call).await;
        match answer.map_err(|failure| failure.into_error("downgrade"))? {
            Value::Int(0) => Err(Error::new(
                ErrorKind::Lost(LostReason::Gone),
                format!("the claim does not hold the lock: key={key}; ask for it again"),
            )),
            Value::Int(left) => {
                let left = reply::millis(left).ok_or_else(|| strange("downgrade"))?;
                let mut claim = claim.clone();
                claim.mode = LockMode::Read;
                Ok(Grant::new(claim, grant.token, GrantProof::of(left)))
            }
            _ => Err(strange("downgrade")),
        }
    }

    pub(super) async fn revoke(&self, key: &Key, how: Revoke) -> Result<Revoked, Error> {
        let options = self.options();
        let names = &options.names;
        let how = match how {
            Revoke::AfterTtl => "after",
            Revoke::Now => "now",
        };
        let call = Call::new([names.lock(key), names.readers(key), names.grants(key)])
            .arg(how)
            .arg(names.channel(key))
            .arg(names.tombstones(key))
            .number(options.max_ttl.as_millis());
        let answer = self.run(key, &REVOKE, &call).await;
        reply::revoked(
            key,
            &answer.map_err(|failure| failure.into_error("revoke"))?,
        )
    }
}
