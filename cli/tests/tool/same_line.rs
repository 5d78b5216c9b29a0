//! One line of a script, on each kind of store: the environment alone says where the locks are.

use std::process::Stdio;

use crate::command::{Mark, Running, code, printed, tool, until, until_marked};
use crate::files::Directory;
use crate::zookeeper::Server;
use crate::{command, postgres_store};

/// What the line does: as the first one, beside it, and after it.
fn behaviours(url: &str) -> Vec<String> {
    let (begun, ends) = (Mark::new(), Mark::new());
    let script = format!(
        "{}; echo $LEASEHOLD_KEY; exit 7",
        until_marked(&begun, &ends)
    );
    let line = |script: &str| {
        let words = [
            "run", "--lock", "nightly", "--wait", "0", "--", "sh", "-c", script,
        ];
        let mut line = tool(&words);
        line.env("LEASEHOLD_STORE", url);
        line.stdout(Stdio::piped()).stderr(Stdio::piped());
        line
    };
    let first = Running(line(&script).spawn().unwrap());
    until("the first one holds", || begun.is_there());
    let beside = line("echo not alone").output().unwrap();
    std::fs::write(ends.path(), "").unwrap();
    let first = first.output();
    let after = line("echo after").output().unwrap();
    let text = printed(&beside);
    assert!(text.contains("key=nightly"), "{url}: {text}");
    [first, beside, after]
        .map(|output| {
            format!(
                "{} {}",
                code(&output),
                String::from_utf8_lossy(&output.stdout)
            )
        })
        .to_vec()
}

#[test]
fn the_environment_moves_a_line_to_another_store_with_nothing_else_changed() {
    let directory = Directory::new();
    let (_redis, redis) = command::server();
    let (_postgres, postgres) = postgres_store::server();
    let server = Server::shared();
    let zookeeper = format!("zookeeper://{}/same-line", server.address());
    for url in [&directory.url(), &redis, &zookeeper, &postgres] {
        let expected = ["7 nightly\n", "75 ", "0 after\n"];
        assert_eq!(behaviours(url), expected, "{url}");
    }
}
