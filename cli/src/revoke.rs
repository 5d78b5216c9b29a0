//! `leasehold revoke`: takes a lock away from a holder that hangs.

use leasehold::store::{Revoke, Revoked};
use serde_json::json;

use crate::args::RevokeArgs;
use crate::exit::{Failure, code};
use crate::output::{Output, millis, span};

pub(crate) async fn revoke(args: &RevokeArgs, output: Output) -> Result<u8, Failure> {
    let locks = args.store.looker().await?;
    let how = if args.now {
        Revoke::Now
    } else {
        Revoke::AfterTtl
    };
    let revoked = locks.revoke(&args.key, how).await;
    let looked = match &revoked {
        Ok(Revoked::NotHeld) => locks.inspect(&args.key).await,
        _ => Ok(None),
    };
    locks.shutdown().await;
    let key = args.key.as_str();
    match revoked? {
        Revoked::Revoked { free_in } => {
            output.answer(
                format!("{key} was taken away, and is free in {}", span(free_in)),
                &json!({ "key": key, "was_held": true, "free_in_ms": millis(free_in) }),
            )?;
            Ok(code::DONE)
        }
        Revoked::NotHeld => {
            let found = looked?.filter(|found| found.holders == 0);
            let is_resting = found.as_ref().is_some_and(|found| found.is_resting);
            let free_in = found.and_then(|found| found.remaining);
            let people = match free_in {
                Some(left) if is_resting => format!(
                    "nobody holds {key}, and it rests for another {}; revoke --now ends that",
                    span(left)
                ),
                Some(left) => format!("nobody holds {key}, and it is free in {}", span(left)),
                None => format!("{key} is free"),
            };
            let free_in_ms = free_in.map_or(0, millis);
            let scripts = json!({ "key": key, "was_held": false, "is_resting": is_resting, "free_in_ms": free_in_ms });
            output.answer(people, &scripts)?;
            Ok(code::NO)
        }
        other => Err(Failure {
            code: code::SOFTWARE,
            message: format!("the store answered what this tool does not know: {other:?}"),
        }),
    }
}
