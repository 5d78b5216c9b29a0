//! `leasehold resolve`: finds out what became of a commit in doubt.

use leasehold::fence::Resolve;
use leasehold::postgres::PgFence;
use leasehold::redis::RedisFence;
use leasehold::run::{Doubt, HeldKey, Resolution};
use leasehold::zookeeper::ZkFence;
use leasehold::{Error, FencingToken};
use serde_json::json;

use crate::args::ResolveArgs;
use crate::exit::{Failure, code};
use crate::output::Output;

pub(crate) async fn resolve(args: &ResolveArgs, output: Output) -> Result<u8, Failure> {
    if args.keys.len() != args.tokens.len() {
        return Err(Failure::usage(
            "each key needs its token: name as many tokens as keys, in the same order, with commas between them",
        ));
    }
    let locks = args.keys.iter().zip(&args.tokens);
    let locks = locks.map(|(key, token)| HeldKey {
        key: key.clone(),
        token: *token,
    });
    let doubt = Doubt::new(locks.collect(), args.txn_id);
    let is_applied = ask(&args.store.named()?, &doubt).await? == Resolution::Applied;
    let txn_id = args.txn_id;
    let answer = if is_applied {
        format!("{txn_id} is committed")
    } else {
        format!("{txn_id} is not committed, and never will be")
    };
    let keys: Vec<&str> = args.keys.iter().map(|key| key.as_str()).collect();
    let scripts =
        json!({ "key": keys.join(","), "txn_id": txn_id.to_string(), "is_applied": is_applied });
    output.answer(answer, &scripts)?;
    Ok(if is_applied { code::DONE } else { code::NO })
}

/// Asks the fence of the data, which the URL names.
async fn ask(url: &str, doubt: &Doubt) -> Result<Resolution, Failure> {
    let resolution = match url.split_once(':').unwrap_or_default().0 {
        "postgres" | "postgresql" => PgFence::connect(url).await?.resolve(doubt).await,
        "redis" | "rediss" | "redis+cluster" | "rediss+cluster" => {
            RedisFence::connect(url).await?.resolve(doubt).await
        }
        "zookeeper" => ZkFence::connect(url).await?.resolve(doubt).await,
        _ => {
            return Err(Failure::usage(
                "name the server of the data behind the fence: --store postgres://user@host/database, redis://host:6379/0?prefix=app or zookeeper://host:2181/chroot",
            ));
        }
    };
    Ok(resolution?)
}

/// Reads `--token`.
pub(crate) fn token(text: &str) -> Result<FencingToken, Error> {
    let number = text
        .parse()
        .map_err(|_| Error::invalid("a token is a number; copy it from the outcome or the log"))?;
    FencingToken::new(number)
}
