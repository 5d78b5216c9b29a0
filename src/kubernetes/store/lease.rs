//! A [`Record`] as a Lease, and a Lease as a record. Pure.
//!
//! The `spec` is written as client-go writes it, so its electors take turns with ours on one
//! object. What they do not know is in annotations, which they keep when they take over: so the
//! annotations count only while the holder is the one that they name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};

use super::names;
use crate::model::error::Error;
use crate::model::holder::{Label, OwnerToken};
use crate::model::key::Key;
use crate::store::{Record, State};

/// The label of every Lease of ours, by which one request lists them.
pub(super) const LABEL: &str = "leasehold/lock";
const KEY: &str = "leasehold/key";
const TOKEN: &str = "leasehold/token";
/// The `holderIdentity` for which the other annotations were written.
const HOLDER: &str = "leasehold/holder";
const STATE: &str = "leasehold/state";
const OWNER: &str = "leasehold/owner";
const TTL: &str = "leasehold/ttl-ms";
const BEAT: &str = "leasehold/beat";
const PURPOSE: &str = "leasehold/purpose";
const ALL: [&str; 8] = [KEY, TOKEN, HOLDER, STATE, OWNER, TTL, BEAT, PURPOSE];

/// How many digits of an owner token make a holder's identity its own.
const SHOWN: usize = 8;

/// A version of a key's record: the whole object, so that a swap keeps what others wrote into it.
#[derive(Clone)]
pub struct LeaseVersion(pub(super) Arc<Lease>);

impl LeaseVersion {
    fn id(&self) -> (Option<&str>, Option<&str>) {
        let metadata = &self.0.metadata;
        (
            metadata.uid.as_deref(),
            metadata.resource_version.as_deref(),
        )
    }
}

impl PartialEq for LeaseVersion {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

/// Without the annotations, one of which is a secret.
impl fmt::Debug for LeaseVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LeaseVersion").field(&self.id().1).finish()
    }
}

/// The key of a Lease of ours.
pub(super) fn key_of(lease: &Lease) -> Option<Key> {
    names::key_of(lease.metadata.name.as_deref()?)
}

/// Reads a Lease, whoever wrote it.
///
/// # Errors
///
/// `Corrupt` if it is no record, and an elector of Kubernetes would not write it either.
pub(super) fn read(lease: &Lease) -> Result<Record, Error> {
    let none = (BTreeMap::new(), LeaseSpec::default());
    let annotations = lease.metadata.annotations.as_ref().unwrap_or(&none.0);
    let spec = lease.spec.as_ref().unwrap_or(&none.1);
    let holder = spec.holder_identity.as_deref().unwrap_or_default();
    let corrupt = |what: &str| {
        Error::corrupt(format!(
            "a Lease is no lock: name={} {what}; fix or delete it",
            lease.metadata.name.as_deref().unwrap_or_default()
        ))
    };
    let text = |name: &str| annotations.get(name).map(String::as_str);
    let number = |name: &str| -> Result<Option<u64>, Error> {
        let value = text(name).map(str::parse).transpose();
        value.map_err(|_| corrupt(&format!("annotation={name}")))
    };
    let transitions = spec.lease_transitions.unwrap_or_default();
    let counted = u64::try_from(transitions).unwrap_or_default();
    let token = number(TOKEN)?.unwrap_or_default().max(counted);

    let is_ours = text(HOLDER) == Some(holder);
    let (state, ttl) = match text(STATE).filter(|_| is_ours) {
        Some("free") => (State::Free, Duration::ZERO),
        Some(held @ ("held" | "barred")) => {
            let ttl = number(TTL)?.ok_or_else(|| corrupt("annotation=leasehold/ttl-ms"))?;
            let state = if held == "held" {
                State::Held
            } else {
                State::Barred
            };
            (state, Duration::from_millis(ttl))
        }
        Some(_) => return Err(corrupt("annotation=leasehold/state")),
        None if holder.is_empty() => (State::Free, Duration::ZERO),
        // An elector of Kubernetes holds it.
        None => {
            let seconds = spec.lease_duration_seconds.unwrap_or_default();
            let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
            let seconds = seconds
                .ok_or_else(|| corrupt("it has a holderIdentity and no leaseDurationSeconds"))?;
            (State::Held, Duration::from_secs(seconds))
        }
    };
    let is_held_by_us = is_ours && state == State::Held;
    let owner = match text(OWNER).filter(|_| is_held_by_us) {
        Some(digits) => Some(
            OwnerToken::from_digits(digits).ok_or_else(|| corrupt("annotation=leasehold/owner"))?,
        ),
        None if is_held_by_us => return Err(corrupt("annotation=leasehold/owner")),
        None => None,
    };
    let label = match state {
        State::Held if is_ours => label_of(holder, text(PURPOSE)),
        State::Held => Label::parse(&holder.chars().take(Label::MAX_LEN).collect::<String>()).ok(),
        _ => None,
    };
    Ok(Record {
        state,
        owner,
        token,
        ttl,
        beat: text(BEAT)
            .filter(|_| is_ours)
            .unwrap_or_default()
            .to_owned(),
        label,
    })
}

/// The Lease that replaces `base`. What others wrote into its metadata stays.
pub(super) fn written(key: &Key, base: Option<&Lease>, record: &Record, now: MicroTime) -> Lease {
    let old = base
        .and_then(|lease| lease.spec.clone())
        .unwrap_or_default();
    let holder = identity(record);
    let is_same = record.state == State::Held && old.holder_identity.as_deref() == Some(&*holder);
    let transitions = old.lease_transitions.unwrap_or_default();
    let is_new = base.is_some() && !is_same && record.state == State::Held;
    let transitions = transitions.saturating_add(i32::from(is_new));
    let seconds = seconds_for_electors(record);

    let mut metadata = base.map_or_else(ObjectMeta::default, |lease| lease.metadata.clone());
    metadata.managed_fields = None;
    if metadata.name.is_none() {
        metadata.name = names::of(key).ok();
    }
    let labels = metadata.labels.get_or_insert_default();
    labels.insert(LABEL.to_owned(), "1".to_owned());
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.retain(|name, _| !ALL.contains(&name.as_str()));
    let mut put = |name: &str, value: String| annotations.insert(name.to_owned(), value);
    put(KEY, key.to_string());
    put(TOKEN, record.token.to_string());
    put(HOLDER, holder.clone());
    put(BEAT, record.beat.clone());
    let state = match record.state {
        State::Free => "free",
        State::Held => "held",
        State::Barred => "barred",
    };
    put(STATE, state.to_owned());
    if record.state != State::Free {
        put(TTL, record.ttl.as_millis().to_string());
    }
    if let Some(owner) = record.owner {
        put(OWNER, owner.expose());
    }
    if let Some(purpose) = record.label.as_ref().and_then(Label::purpose) {
        put(PURPOSE, purpose.to_owned());
    }
    let acquired = old.acquire_time.clone().filter(|_| is_same);
    Lease {
        metadata,
        spec: Some(LeaseSpec {
            acquire_time: acquired.or_else(|| Some(now.clone())),
            holder_identity: Some(holder),
            lease_duration_seconds: Some(i32::try_from(seconds).unwrap_or(i32::MAX)),
            lease_transitions: Some(transitions),
            renew_time: Some(now),
            ..old
        }),
    }
}

/// How long client-go waits. It compares `renewTime` in whole seconds, and nothing of a write that
/// it does not know, so two writes of ours in one second are one to it: it may count from almost a
/// second before the later one.
fn seconds_for_electors(record: &Record) -> u128 {
    let slack = u128::from(record.state != State::Free);
    (record.ttl.as_millis().div_ceil(1_000) + slack).max(1)
}

/// The holder as `kubectl get lease` shows it: the name, and what makes it that of one claim.
/// Nobody's is empty, which electors take as released.
fn identity(record: &Record) -> String {
    let name = record.label.as_ref().map_or("", Label::as_str);
    match (record.state, record.owner) {
        (State::Free, _) => String::new(),
        (State::Held, Some(owner)) => format!("{name}_{}", &owner.expose()[..SHOWN]),
        _ => format!(
            "revoked_{}",
            record.beat.get(..SHOWN).unwrap_or(&record.beat)
        ),
    }
}

fn label_of(holder: &str, purpose: Option<&str>) -> Option<Label> {
    let (name, _) = holder.rsplit_once('_')?;
    let label = Label::parse(name).ok()?;
    match purpose {
        Some(purpose) => label.with_purpose(purpose).ok(),
        None => Some(label),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn key() -> Key {
        Key::parse("accounts/7").unwrap()
    }

    fn at(second: i64) -> MicroTime {
        MicroTime(Timestamp::from_second(second).unwrap())
    }

    fn held(owner: u8, token: u64) -> Record {
        let label = Label::parse("host_a:7").unwrap().with_purpose("backup");
        Record {
            state: State::Held,
            owner: Some(OwnerToken::from_bytes([owner; 16])),
            token,
            ttl: Duration::from_millis(2_500),
            beat: "ab".repeat(16),
            label: Some(label.unwrap()),
        }
    }

    fn free(token: u64) -> Record {
        Record {
            state: State::Free,
            owner: None,
            ttl: Duration::ZERO,
            label: None,
            ..held(0, token)
        }
    }

    /// What an elector of client-go does: it keeps the metadata and writes the spec.
    fn taken_by_client_go(lease: &Lease, holder: &str, seconds: i32) -> Lease {
        let mut lease = lease.clone();
        let spec = lease.spec.as_mut().unwrap();
        spec.holder_identity = Some(holder.to_owned());
        spec.lease_duration_seconds = Some(seconds);
        spec.lease_transitions = spec.lease_transitions.map(|number| number + 1);
        lease
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let barred = Record {
            state: State::Barred,
            ttl: Duration::from_secs(3),
            ..free(9)
        };
        for record in [held(1, 7), free(8), barred] {
            let lease = written(&key(), None, &record, at(1));
            assert_eq!(read(&lease).unwrap(), record);
            assert_eq!(key_of(&lease), Some(key()));
        }
    }

    #[test]
    fn the_spec_is_that_of_an_elector() {
        let first = written(&key(), None, &held(1, 7), at(1));
        let spec = first.spec.clone().unwrap();
        assert_eq!(spec.holder_identity.as_deref(), Some("host_a:7_01010101"));
        assert_eq!(spec.lease_duration_seconds, Some(4));
        assert_eq!(spec.lease_transitions, Some(0));
        assert_eq!(
            (spec.acquire_time, spec.renew_time),
            (Some(at(1)), Some(at(1)))
        );

        let renewed = written(&key(), Some(&first), &held(1, 7), at(2));
        let spec = renewed.spec.clone().unwrap();
        assert_eq!(spec.lease_transitions, Some(0));
        assert_eq!(
            (spec.acquire_time, spec.renew_time),
            (Some(at(1)), Some(at(2)))
        );

        let released = written(&key(), Some(&renewed), &free(7), at(3));
        let spec = released.spec.clone().unwrap();
        assert_eq!(spec.holder_identity.as_deref(), Some(""));
        assert_eq!(spec.lease_duration_seconds, Some(1));

        let next = written(&key(), Some(&released), &held(2, 8), at(4));
        let spec = next.spec.unwrap();
        assert_eq!(spec.lease_transitions, Some(1));
        assert_eq!(spec.acquire_time, Some(at(4)));
    }

    #[test]
    fn an_elector_that_reads_whole_seconds_waits_for_the_last_write_of_a_holder() {
        // What client-go compares, and when it was written.
        let renewed = |millis: i64| {
            let now = MicroTime(Timestamp::from_millisecond(millis).unwrap());
            let spec = written(&key(), None, &held(1, 7), now).spec.unwrap();
            let seconds = spec.renew_time.as_ref().unwrap().0.as_second();
            let waits = 1_000 * i64::from(spec.lease_duration_seconds.unwrap());
            ((spec.holder_identity, seconds), waits)
        };
        for step in 1..1_500 {
            let (mut since, mut known) = (0, renewed(0));
            let mut last = 0;
            for at in (0..10_000).step_by(step) {
                let seen = renewed(at);
                if seen != known {
                    (since, known) = (at, seen);
                }
                last = at;
            }
            let ttl = i64::try_from(held(1, 7).ttl.as_millis()).unwrap();
            assert!(since + known.1 >= last + ttl, "{step}");
        }
    }

    #[test]
    fn an_elector_that_took_over_holds_it_whatever_our_annotations_say() {
        for ours in [held(1, 7), free(7)] {
            let lease = written(&key(), None, &ours, at(1));
            let record = read(&taken_by_client_go(&lease, "pod-b_1234", 15)).unwrap();
            assert_eq!(record.state, State::Held);
            assert_eq!(record.owner, None);
            assert_eq!(record.ttl, Duration::from_secs(15));
            assert_eq!(record.token, 7);
            assert_eq!(record.beat, "");
            assert_eq!(record.label.unwrap().as_str(), "pod-b_1234");
            let released = read(&taken_by_client_go(&lease, "", 1)).unwrap();
            assert_eq!(released.state, State::Free);
            assert_eq!(released.token, 7);
        }
    }

    #[test]
    fn transitions_count_where_they_are_more_than_our_token() {
        let mut lease = written(&key(), None, &free(3), at(1));
        lease.spec.as_mut().unwrap().lease_transitions = Some(40);
        assert_eq!(read(&lease).unwrap().token, 40);
    }

    #[test]
    fn two_writes_at_one_instant_differ() {
        let other = Record {
            beat: "cd".repeat(16),
            ..held(1, 7)
        };
        let leases = [held(1, 7), other].map(|record| written(&key(), None, &record, at(1)));
        assert_ne!(leases[0], leases[1]);
    }

    #[test]
    fn what_others_wrote_into_the_metadata_stays() {
        let mut base = written(&key(), None, &held(1, 7), at(1));
        base.metadata.resource_version = Some("12".to_owned());
        let annotations = base.metadata.annotations.as_mut().unwrap();
        annotations.insert("team".to_owned(), "shop".to_owned());
        let lease = written(&key(), Some(&base), &free(7), at(2));
        let annotations = lease.metadata.annotations.unwrap();
        assert_eq!(annotations["team"], "shop");
        assert!(!annotations.contains_key(OWNER) && !annotations.contains_key(PURPOSE));
        assert_eq!(lease.metadata.resource_version.as_deref(), Some("12"));
    }

    #[test]
    fn what_is_no_record_is_corrupt() {
        let lease = written(&key(), None, &held(1, 7), at(1));
        for (name, value) in [(TOKEN, "x"), (STATE, "x"), (OWNER, "x"), (TTL, "x")] {
            let mut bad = lease.clone();
            let annotations = bad.metadata.annotations.as_mut().unwrap();
            annotations.insert(name.to_owned(), value.to_owned());
            let error = read(&bad).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Corrupt, "{name}");
        }
        let endless = read(&taken_by_client_go(&lease, "pod-b", 0)).unwrap_err();
        assert_eq!(endless.kind(), crate::ErrorKind::Corrupt);
    }

    #[test]
    fn debug_shows_no_owner() {
        let lease = written(&key(), None, &held(0xab, 7), at(1));
        let shown = format!("{:?}", LeaseVersion(Arc::new(lease)));
        assert!(!shown.contains("abab"), "{shown}");
    }
}
