//! [`Resolve`] for a Redis server: the name of a commit is a key that expires.
//!
//! A name that is absent proves that the commit was not applied only if its record cannot have expired yet. The server itself
//! compares: it applies a commit only if the time of its name is at most a day (D) from its own, and keeps the record for a week
//! (W). So the record of an applied commit exists until W - D after the name's time, and the resolver creates no void record
//! after that. A void record is created at most D before the name's time, and so exists until after the last moment, D after that time,
//! at which a late copy could be applied. All of these times are the server's, so its clock may step.

use std::sync::LazyLock;

use ::redis::Value;

use super::answer::text;
use super::{COMMIT, COMMIT_TTL, MOST_APART, Name, RedisFence};
use crate::fence::Resolve;
use crate::fence::resolve::too_old;
use crate::model::doubt::{Doubt, Resolution};
use crate::model::error::Error;
use crate::store::redis::{Call, Script, fault};

static VOID: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../scripts/void.lua")));

impl Resolve for RedisFence {
    async fn resolve(&self, doubt: &Doubt) -> Result<Resolution, Error> {
        const WHAT: &str = "resolve a commit";
        let key = &doubt.first()?.key;
        let txn_id = doubt.txn_id;
        let name = Name {
            txn_id,
            part: COMMIT,
        };
        let call = Call::new([self.applied(key, name)])
            .number(txn_id.made_at().into())
            .number((COMMIT_TTL - MOST_APART).as_millis())
            .number(MOST_APART.as_millis())
            .number(COMMIT_TTL.as_millis());
        let names = &self.target.options.names;
        let answer = self.servers.run(names, key, &VOID, &call).await;
        let answer = answer.map_err(|failure| failure.into_error(WHAT))?;
        let parts: &[Value] = match &answer {
            Value::Array(parts) => parts,
            _ => &[],
        };
        let word: &[u8] = match parts.first() {
            Some(Value::BulkString(word)) => word,
            _ => &[],
        };
        match word {
            b"applied" => Ok(Resolution::Applied),
            b"void" => Ok(Resolution::NotApplied),
            b"broken" => Err(Error::corrupt(format!(
                "the commit was applied in part: key={key} txn_id={txn_id} reason={}; fix the data by hand",
                text(parts.get(2))
            ))),
            b"old" => Err(too_old(doubt)),
            b"ahead" => Err(Error::invalid(format!(
                "the run began more than a day after the server's time: key={key} txn_id={txn_id}; check the name, and compare the clocks"
            ))),
            _ => Err(fault::unexpected_reply(WHAT)),
        }
    }
}
