//! The floor: the same server asked by hand over one connection, with nothing around it.

use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::{AsyncConnectionConfig, IntoConnectionInfo, Value};

/// Compares and extends, with an owner and a TTL beside each key.
pub(crate) const RENEW: &str = "local answers = {} for i = 1, #KEYS do if redis.call('GET', KEYS[i]) == ARGV[i] then answers[i] = redis.call('PEXPIRE', KEYS[i], ARGV[#KEYS + i]) else answers[i] = 0 end end return answers";
/// The least that an attempt in a script can be: it gives no token and knows of no withdrawal.
pub(crate) const SET: &str = "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])";
/// What every tutorial shows.
pub(crate) const COMPARE_AND_DELETE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

pub(crate) const OWNER: &str = "00112233445566778899aabbccddeeff";

pub(crate) async fn connect(port: u16) -> MultiplexedConnection {
    connect_with(port, &AsyncConnectionConfig::new()).await
}

/// For a command that may wait for any time.
pub(crate) async fn connect_for_blocking(port: u16) -> MultiplexedConnection {
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    connect_with(port, &config).await
}

/// For a connection that subscribes.
pub(crate) async fn connect_to_listen(
    port: u16,
    hears: impl AsyncPushSender,
) -> MultiplexedConnection {
    let config = AsyncConnectionConfig::new().set_push_sender(hears);
    open(
        &format!("redis://127.0.0.1:{port}/?protocol=resp3"),
        &config,
    )
    .await
}

async fn connect_with(port: u16, config: &AsyncConnectionConfig) -> MultiplexedConnection {
    open(&format!("redis://127.0.0.1:{port}"), config).await
}

async fn open(url: &str, config: &AsyncConnectionConfig) -> MultiplexedConnection {
    let info = url.into_connection_info().expect("an address");
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    let client = redis::Client::open(info.set_tcp_settings(tcp)).expect("a client");
    client
        .get_multiplexed_async_connection_with_config(config)
        .await
        .expect("a connection")
}

/// Loads a script; its hash.
pub(crate) async fn load(connection: &mut MultiplexedConnection, script: &str) -> String {
    let mut load = redis::cmd("SCRIPT");
    load.arg("LOAD").arg(script);
    load.query_async(connection).await.expect("a hash")
}

pub(crate) async fn release(connection: &mut MultiplexedConnection, hash: &str, key: &str) {
    let mut command = redis::cmd("EVALSHA");
    command.arg(hash).arg(1).arg(key).arg(OWNER);
    let answer: Value = command.query_async(connection).await.expect("an answer");
    assert_eq!(answer, Value::Int(1));
}

pub(crate) async fn set(connection: &mut MultiplexedConnection, key: &str) {
    let mut command = redis::cmd("SET");
    command.arg(key).arg(OWNER).arg("NX").arg("PX").arg(10_000);
    let answer: Value = command.query_async(connection).await.expect("an answer");
    assert_eq!(answer, Value::Okay);
}
