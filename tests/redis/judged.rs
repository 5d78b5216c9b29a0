//! When a server is judged: what it has to say of itself.

use crate::server::RedisServer;

const MARKER: &str = "app:{leasehold}:marker";

const JUDGE: &str = include_str!("../../src/store/redis/scripts/judge.lua");

/// The answer at a server that says nothing of `hidden`. `off`: 1 if restarts are of no account.
fn judged(server: &RedisServer, hidden: &str, off: &str) -> String {
    let text = format!(
        "local redis = {{call = redis.call, pcall = function(...) local said = redis.pcall(...) \
         return type(said) == 'string' and string.gsub(said, '{hidden}:%w+', '') or said end}} {JUDGE}"
    );
    let token = "app:{leasehold}:token";
    let call = ["EVAL", &*text, "2", MARKER, token];
    let arguments = ["1000", "1000", off, "", "3600000", "? 0", "0"];
    server.cli(&[&call[..], &arguments].concat())
}

#[test]
fn a_server_that_does_not_say_which_run_it_is_grants_nothing_unless_restarts_are_of_no_account() {
    let server = RedisServer::start();
    for hidden in ["run_id", "master_replid"] {
        assert_eq!(judged(&server, hidden, "0"), "hidden");
        assert_eq!(server.cli(&["EXISTS", MARKER]), "0");
        let told = judged(&server, hidden, "1");
        assert!(
            told.starts_with("mark ") && told.contains(" v4 ? "),
            "{told}"
        );
        assert_eq!(server.cli(&["DEL", MARKER]), "1");
    }
    assert!(!judged(&server, "nothing", "0").contains('?'));
}
