//! [`Resolve`] for a Redis server: the name of a commit is a field of a hash beside the lock.
//!
//! A name that is absent proves that the commit was not applied only if its record cannot have been
//! deleted. `names.lua` deletes old ones itself, and remembers of which time the newest was. The
//! hash as a whole ends when nobody commits under the lock for long; then the fence's key, which
//! never ends, knows the newest name. So an answer does not depend on where the server's clock was
//! meanwhile.

use ::redis::Value;

use super::answer::text;
use super::{COMMIT, KEPT, NAME_AHEAD, Name, RedisFence, VOID};
use crate::fence::{Resolve, too_old};
use crate::model::doubt::{Doubt, Resolution};
use crate::model::error::Error;
use crate::redis::store::{Call, fault};

impl Resolve for RedisFence {
    async fn resolve(&self, doubt: &Doubt) -> Result<Resolution, Error> {
        const WHAT: &str = "resolve a commit";
        let key = &doubt.first()?.key;
        let txn_id = doubt.txn_id;
        let name = Name {
            txn_id,
            part: COMMIT,
        };
        let [records, order] = self.names(key);
        let call = Call::new([records, order, self.raised(key)])
            .number(NAME_AHEAD.as_millis())
            .number(KEPT.as_millis())
            .arg(name.to_string())
            .number(txn_id.made_at().into());
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
            b"foreign" => Err(Error::corrupt(format!(
                "the fence key holds a value that is not ours: key={key}; it was left as it is, check it"
            ))),
            b"ahead" => Err(Error::invalid(format!(
                "the run began more than a day after the server's time: key={key} txn_id={txn_id}; check the name, and compare the clocks"
            ))),
            _ => Err(fault::unexpected_reply(WHAT)),
        }
    }
}
