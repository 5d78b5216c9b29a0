//! `leasehold release --force`: a lock is taken away from a holder that hangs.

use leasehold::store::{Revoke, Revoked};
use serde_json::json;

use crate::args::ReleaseArgs;
use crate::exit::{Failure, code};
use crate::output::{Output, millis, span};

pub(crate) async fn release(args: &ReleaseArgs, output: Output) -> Result<u8, Failure> {
    if !args.force {
        return Err(Failure::usage(
            "a lock is its holder's to release; say --force to take it away",
        ));
    }
    let locks = args.store.looker().await?;
    let how = if args.now {
        Revoke::Now
    } else {
        Revoke::AfterTtl
    };
    let revoked = locks.force_release(&args.key, how).await;
    locks.shutdown().await;
    let key = args.key.as_str();
    match revoked? {
        Revoked::Revoked { free_in } => {
            output.answer(
                format!("{key} was taken away, and is free in {}", span(free_in)),
                &json!({ "key": key, "was_held": true, "free_in_ms": millis(free_in) }),
            );
            Ok(code::DONE)
        }
        Revoked::NotHeld => {
            let scripts = json!({ "key": key, "was_held": false });
            output.answer(format!("{key} is free"), &scripts);
            Ok(code::NO)
        }
        other => Err(Failure {
            code: code::SOFTWARE,
            message: format!("the store answered what this tool does not know: {other:?}"),
        }),
    }
}
