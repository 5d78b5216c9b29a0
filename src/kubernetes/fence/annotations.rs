//! The annotations of a fence at an object.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::serde_json::{self, Value, json};

use crate::model::error::Error;
use crate::model::txn::TxnId;

/// The newest token of each key, as an object of JSON.
pub(super) const TOKENS: &str = "leasehold/fence";
/// The names of the last commits, the newest first. Each commit puts its own before what it has
/// read: so one that is not there is not applied, if the name before it is there.
pub(super) const COMMITS: &str = "leasehold/commit";
/// How many names there are at most.
const KEPT: usize = 8;

/// The newest token of each key.
pub(super) fn tokens_of(object: &Value) -> Result<BTreeMap<String, u64>, Error> {
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

/// The names of the last commits, the newest first.
pub(super) fn commits(object: &Value) -> impl Iterator<Item = &str> {
    let names = object["metadata"]["annotations"][COMMITS].as_str();
    names.unwrap_or_default().split_ascii_whitespace()
}

/// The name of a commit: its run, and what it writes. A run that uses its permit twice is not
/// answered about one use by the other.
pub(super) fn name_of(run: TxnId, object: &Value) -> String {
    let mut hasher = DefaultHasher::new();
    object.to_string().hash(&mut hasher);
    format!("{run}.{:016x}", hasher.finish())
}

fn run_of(name: &str) -> &str {
    name.split('.').next().unwrap_or_default()
}

/// Whether no commit is missing since one that found the name `before` as the last.
pub(super) fn is_whole(object: &Value, before: Option<&str>) -> bool {
    let mut last = commits(object);
    match before {
        Some(before) => last.any(|name| name == before),
        None => last.next().is_none(),
    }
}

/// Puts a name before those of the last commits.
pub(super) fn add_commit(object: &mut Value, name: &str) {
    let names: Vec<_> = [name]
        .into_iter()
        .chain(commits(object))
        .take(KEPT)
        .collect();
    let names = names.join(" ");
    annotate(object, COMMITS, &names);
}

/// What takes the place of the name of a commit that is not applied.
pub(super) fn void(name: &str) -> String {
    format!("void:{name}")
}

/// What the object says of a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Applied,
    /// Another use of the same permit is applied.
    OtherIsApplied,
    /// It was made void, and so was every other use of its permit.
    NotApplied,
}

/// What the object says of a commit; nothing if so many others were later.
pub(super) fn fate(object: &Value, name: &str) -> Option<Fate> {
    let is_same_run = |known: &str| run_of(known) == run_of(name);
    let void = |known: &str| known.strip_prefix("void:").is_some_and(is_same_run);
    if commits(object).any(|known| known == name) {
        Some(Fate::Applied)
    } else if commits(object).any(is_same_run) {
        Some(Fate::OtherIsApplied)
    } else {
        commits(object).any(void).then_some(Fate::NotApplied)
    }
}

pub(super) fn annotate(object: &mut Value, name: &str, text: &str) {
    let annotations = &mut object["metadata"]["annotations"];
    if !annotations.is_object() {
        *annotations = json!({});
    }
    annotations[name] = text.into();
}

/// Whether what was stored has the annotations that were written.
pub(super) fn keeps(stored: &Value, written: &Value) -> bool {
    let of = |object: &Value, name| object["metadata"]["annotations"][name].clone();
    [TOKENS, COMMITS]
        .iter()
        .all(|name| of(stored, name) == of(written, name))
}

/// How many bytes the annotations have.
pub(super) fn size(object: &Value) -> usize {
    let annotations = object["metadata"]["annotations"].as_object();
    let sizes = annotations.into_iter().flatten();
    sizes
        .map(|(name, value)| name.len() + value.as_str().map_or(0, str::len))
        .sum()
}
