//! What an API server answered, by its audit log.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::fs;
use std::path::Path;

use k8s_openapi::jiff::Timestamp;
use k8s_openapi::serde_json::{Value, from_str};

pub(crate) const POLICY_FILE: &str = "audit.yaml";
pub(crate) const LOG_FILE: &str = "audit.log";
/// The objects of Leases and ConfigMaps, and of all else that it was asked for.
pub(crate) const POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: RequestResponse
  resources:
  - {group: coordination.k8s.io, resources: [leases]}
  - {group: '', resources: [configmaps]}
- level: Metadata
";

/// A request that was answered.
pub(crate) struct Answered {
    id: String,
    pub(crate) user: String,
    /// As a Role has it: `get`, `watch`, `patch`.
    pub(crate) verb: String,
    pub(crate) resource: String,
    pub(crate) name: String,
    pub(crate) code: u64,
    /// When, by the server's clock.
    pub(crate) at: Timestamp,
    /// The object of the answer, where the policy keeps it.
    pub(crate) object: Value,
}

impl Answered {
    /// Where its object is in the order of all changes in etcd; `None` of what changed nothing.
    pub(crate) fn version(&self) -> Option<u64> {
        let changes = ["create", "update", "patch"].contains(&self.verb.as_str());
        let is_done = matches!(self.code, 200..=299);
        let version = self.object["metadata"]["resourceVersion"].as_str();
        version
            .filter(|_| changes && is_done)
            .map(|version| version.parse().unwrap())
    }

    pub(crate) fn annotation(&self, name: &str) -> &str {
        let value = self.object["metadata"]["annotations"][name].as_str();
        value.unwrap_or_default()
    }
}

/// All requests of one namespace, each once: a watch from its first answer on.
pub(crate) fn read(folder: &Path, namespace: &str) -> Vec<Answered> {
    let text = fs::read_to_string(folder.join(LOG_FILE)).unwrap();
    // The last line may be half written.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let lines = whole.lines().map(|line| from_str::<Value>(line).unwrap());
    let mut all: Vec<Answered> = Vec::new();
    for line in lines.filter(|line| line["objectRef"]["namespace"] == namespace) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let answered = Answered {
            id: text(&line["auditID"]),
            user: text(&line["user"]["username"]),
            verb: text(&line["verb"]),
            resource: text(&line["objectRef"]["resource"]),
            name: text(&line["objectRef"]["name"]),
            code: line["responseStatus"]["code"].as_u64().unwrap_or_default(),
            at: text(&line["stageTimestamp"]).parse().unwrap(),
            object: line["responseObject"].clone(),
        };
        match all.iter().rposition(|other| other.id == answered.id) {
            Some(_) if answered.verb == "watch" => {}
            Some(begun) => all[begun] = answered,
            None => all.push(answered),
        }
    }
    all
}

/// What changed an object, in the order of etcd.
pub(crate) fn changes(all: &[Answered]) -> Vec<(u64, &Answered)> {
    let mut changes: Vec<_> = (all.iter())
        .filter_map(|answered| Some((answered.version()?, answered)))
        .collect();
    changes.sort_by_key(|(version, _)| *version);
    changes
}
