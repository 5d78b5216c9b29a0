//! `leasehold resolve`: finds out what became of a commit in doubt.

use leasehold::executor::{Doubt, HeldKey, Resolution};
use leasehold::fence::{PgFence, Resolve};
use leasehold::{Error, FencingToken};
use serde_json::json;

use crate::args::ResolveArgs;
use crate::exit::{Failure, code};
use crate::output::Output;

pub(crate) async fn resolve(args: &ResolveArgs, output: Output) -> Result<u8, Failure> {
    let url = args.store.shared()?;
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(Failure::usage(
            "only a commit in PostgreSQL can be resolved; name the database of the data: --store postgres://user@host/database",
        ));
    }
    let lock = HeldKey {
        key: args.key.clone(),
        token: args.token,
    };
    let doubt = Doubt::new(vec![lock], args.txn_id);
    let resolution = PgFence::connect(url).await?.resolve(&doubt).await?;
    let is_applied = resolution == Resolution::Applied;
    let txn_id = args.txn_id;
    let answer = if is_applied {
        format!("{txn_id} is committed")
    } else {
        format!("{txn_id} is not committed, and never will be")
    };
    let scripts =
        json!({ "key": args.key.as_str(), "txn_id": txn_id.to_string(), "is_applied": is_applied });
    output.answer(answer, &scripts);
    Ok(if is_applied { code::DONE } else { code::NO })
}

/// Reads `--token`.
pub(crate) fn token(text: &str) -> Result<FencingToken, Error> {
    let number = text
        .parse()
        .map_err(|_| Error::invalid("a token is a number; copy it from the outcome or the log"))?;
    FencingToken::new(number)
}
