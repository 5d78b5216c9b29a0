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
