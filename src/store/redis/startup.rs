//! What a connect reports at once: for how long a single server grants nothing yet.

use std::time::Duration;

use ::redis::Value;

use super::client::RedisClient;
use super::connection::{Purpose, Session};
use super::quarantine::{Past, Quarantine};
use super::servers::Servers;

/// Logs a warning if the server is in quarantine. What cannot be read is not reported: the first attempt reports it.
pub(super) async fn report_quarantine(client: &RedisClient) {
    let Servers::One(pool) = &client.servers else {
        return;
    };
    let Ok(connection) = pool.connection(Purpose::Ask) else {
        return;
    };
    let Ok(session) = connection.session().await else {
        return;
    };
    let left = quarantine_left(client, &session).await.unwrap_or_default();
    if left.is_zero() || !client.markers.is_news(None, true) {
        return;
    }
    let max_ttl = client.options().max_ttl;
    let uptime = session.server().uptime.filter(|age| *age < max_ttl);
    let what = uptime.map_or_else(
        || "was restarted, replaced or flushed".to_owned(),
        |age| format!("started {age:.0?} ago"),
    );
    tracing::warn!(
        target: "leasehold::redis", "redis at {} grants nothing for another {left:.0?}: it {what} and may have forgotten locks whose leases last up to \
         max_ttl={max_ttl:?}; set restart_quarantine=off in the URL for throw-away servers",
        connection.address(),
    );
}

/// `None` where it cannot be read.
async fn quarantine_left(client: &RedisClient, session: &Session<'_>) -> Option<Duration> {
    let options = client.options();
    let server = session.server();
    if !options.quarantine || server.run_id.is_none() {
        return None;
    }
    let mut both = ::redis::pipe();
    both.cmd("GET").arg(options.names.marker(None));
    both.cmd("TIME");
    let answers = session.ask_all(&both).await.ok()?;
    let [Ok(marker), Ok(time)] = answers.as_slice() else {
        return None;
    };
    let max_ttl = options.max_ttl;
    let past = Past {
        age: session.age(max_ttl),
        same_for: Duration::ZERO,
        is_missed: false,
        has_slots: false,
    };
    let quarantine = Quarantine::of(server, &past, max_ttl);
    let marker = match marker {
        Value::Nil => return Some(quarantine.if_none),
        Value::BulkString(marker) => std::str::from_utf8(marker).ok()?,
        _ => return None,
    };
    let mut words = marker.split(' ').skip(1);
    let (run, until) = (words.next()?, words.next()?.parse::<u64>().ok()?);
    let (seconds, micros): (u64, u64) = ::redis::from_redis_value(time.clone()).ok()?;
    let rest = Duration::from_millis(until.saturating_sub(seconds * 1_000 + micros / 1_000));
    if Some(run) == server.incarnation.as_deref() && rest <= max_ttl {
        return Some(rest);
    }
    Some(quarantine.if_other)
}
