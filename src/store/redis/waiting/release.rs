//! The release of a hold that is alone. If somebody waits, it may grant the lock to the next in line.

use ::redis::Value;

use super::super::client::RedisClient;
use super::super::connection::{Failure, Purpose};
use super::super::script::{Call, RELEASE};
use super::super::servers::Servers;
use crate::store::Claim;

/// Releases. The script may grant only at a server whose incarnation and counter this client knows; a script that names no
/// incarnation calls the next in line, and grants nothing.
pub(in super::super) async fn release(
    client: &RedisClient,
    claim: &Claim,
) -> Result<Value, Failure> {
    let (names, key) = (&client.options().names, &claim.key);
    let call = Call::sized()
        .parts(names.lock_parts(key))
        .end_keys()
        .parts([claim.owner.digits()])
        .parts(names.beside_parts(key, "free"))
        .parts(names.beside_parts(key, ""))
        .number(super::handover_millis(claim.ttl));
    let Servers::One(pool) = &client.servers else {
        return client.run(key, &RELEASE, &call).await;
    };
    let connection = pool.connection(Purpose::Ask).map_err(Failure::NotSent)?;
    let session = connection.session().await.map_err(Failure::NotSent)?;
    let incarnation = session.server().incarnation_or_hidden();
    let Some(counter) = client.counters.of(None, incarnation) else {
        return call.run_in(&RELEASE, &session).await;
    };
    let scripts = &counter.scripts;
    let tokens = || names.tokens(None);
    let compares = || call.clone().arg(tokens()).arg(&counter.name);
    let by_hash = if session.server().copies_scripts {
        compares().verified().by_hash(&scripts.release)
    } else {
        call.by_hash(&scripts.release)
    };
    let released = match session.ask(&by_hash).await {
        Err(failure) if failure.is_unknown_script() => {
            if !scripts.fit(&session, &tokens(), &counter.name).await? {
                return call.run_in(&RELEASE, &session).await;
            }
            session
                .ask(&compares().by_verified_text(&scripts.release))
                .await
        }
        answer => answer,
    };
    if released.is_ok() {
        session.served();
    }
    released
}
