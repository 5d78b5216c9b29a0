//! `inspect`, `list`, `conform`, `generate`, and the help.

use std::io::{BufRead, BufReader};

use crate::command::{
    Mark, Running, code, leasehold, lines, printed, send, server, tool, until, until_it_ends,
};
use crate::redis::free_port;

const SUBCOMMANDS: [&str; 13] = [
    "run",
    "hold",
    "check",
    "leader",
    "step-down",
    "revoke",
    "resolve",
    "inspect",
    "list",
    "conform",
    "counter",
    "sql",
    "generate",
];

#[test]
fn inspect_reports_who_holds_a_lock() {
    let (_server, url) = server();
    let begun = Mark::new();
    let script = format!("echo $LEASEHOLD_TOKEN > {}; sleep 1000", begun.path());
    let options = [
        "--lock",
        "orders/7",
        "--label",
        "host-a",
        "--purpose",
        "a count",
    ];
    let tool = Running::run(&url, &options, &script);
    let token = begun.line();

    let held = leasehold(&["inspect", "--store", &url, "orders/7"]);
    assert_eq!(code(&held), 0);
    let text = printed(&held);
    assert!(
        text.contains("host-a (a count)") && text.contains(&token),
        "{text}"
    );
    assert!(text.contains("\nheld for   about "), "{text}");
    let held = leasehold(&["inspect", "--json", "--store", &url, "orders/7"]);
    let held = &lines(&held.stdout)[0];
    assert_eq!(
        (&held["is_held"], &held["holder"]),
        (&true.into(), &"host-a".into())
    );
    assert_eq!(held["token"].to_string(), token);
    assert_eq!(held["holder_names"][0], "host-a");
    assert_eq!(held["purpose"], "a count");
    assert_eq!(held["waiters"].as_array().unwrap().len(), 0);
    assert!((1..=10_000).contains(&held["remaining_ms"].as_u64().unwrap()));
    assert!(held["held_for_ms"].is_u64() && held["asked_ago_ms"].is_null());
    assert_eq!(held["held_for_is_estimate"], true);

    let free = leasehold(&["inspect", "--store", &url, "--json", "orders/8"]);
    assert_eq!(code(&free), 1);
    assert_eq!(lines(&free.stdout)[0]["is_held"], false);

    let list =
        |prefix: &str| lines(&leasehold(&["list", "--json", "--store", &url, prefix]).stdout);
    assert_eq!(list("orders/")[0][0]["key"], "orders/7");
    assert_eq!(list("stock/")[0].as_array().unwrap().len(), 0);
    let table = printed(&leasehold(&["list", "--store", &url]));
    let rows: Vec<&str> = table.lines().collect();
    assert_eq!(rows.len(), 2, "{table}");
    assert!(
        rows[0].starts_with("KEY") && rows[1].starts_with("orders/7"),
        "{table}"
    );
    assert!(
        rows[0].ends_with("HELD FOR") && rows[1].contains(" about "),
        "{table}"
    );
    tool.signal("-TERM");
}

/// Each look that differs is a line.
#[test]
fn a_watch_reports_each_change_and_who_waits() {
    let (server, url) = server();
    let begun = Mark::new();
    let script = format!("echo >> {}; exec sleep 600", begun.path());
    let held = |label: &str| {
        let options = ["--lock", "k", "--label", label];
        Running::run(&url, &options, &script)
    };
    let watching = tool(&["list", "--store", &url, "--json", "--watch"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn();
    let mut watching = watching.unwrap();
    let mut said = BufReader::new(watching.stderr.take().unwrap()).lines();
    let mut looks = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut until_shown = |holder: Option<&str>, waiters: usize| {
        let is_so = |line: Result<String, std::io::Error>| {
            let locks: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
            let lock = &locks[0];
            let names = lock["waiters"].as_array().map_or(0, Vec::len);
            lock["holder"].as_str() == holder && names == waiters
        };
        assert!(
            looks.by_ref().any(is_so),
            "holder={holder:?} waiters={waiters}"
        );
    };
    until_shown(None, 0);
    let first = held("a");
    begun.line();
    until_shown(Some("a"), 0);
    let second = held("b");
    until_shown(Some("a"), 1);
    // A look that fails is not the last one.
    server.pause();
    assert!(said.any(|line| line.unwrap().contains("look_failed")));
    server.resume();
    first.signal("-TERM");
    until_shown(Some("b"), 0);
    second.signal("-TERM");
    first.output();
    second.output();
    send("-TERM", &watching.id().to_string());
    assert!(!until_it_ends(&mut watching).success());
}

#[test]
fn a_look_at_memory_is_refused() {
    for arguments in [
        &["inspect", "--store", "memory:", "k"][..],
        &["list", "--store", "memory:"],
    ] {
        let output = leasehold(arguments);
        assert_eq!(code(&output), 64);
        assert!(printed(&output).contains("lives in one process"));
    }
}

#[test]
fn the_cause_of_an_error_is_reported() {
    let port = free_port();
    let url = format!("redis+sentinel://127.0.0.1:{port}/main");
    let output = leasehold(&["inspect", "--store", &url, "--json", "k"]);
    assert_eq!(code(&output), 69);
    let line = &lines(&output.stderr)[0];
    let error = line["error"].as_str().unwrap();
    assert!(error.contains("no majority of the sentinels"), "{error}");
    assert!(
        error.contains(&format!("address=127.0.0.1:{port}")),
        "{error}"
    );
}

/// Real waits: leases of a second run out in the store.
#[test]
fn a_store_that_keeps_the_contract_conforms() {
    let (_server, url) = server();
    let output = leasehold(&["conform", "--store", &url, "--json"]);
    assert_eq!(code(&output), 0, "{}", printed(&output));
    let findings = lines(&output.stdout);
    let findings = findings[0].as_array().unwrap();
    assert!(
        findings
            .iter()
            .any(|finding| finding["verdict"] == "passed")
    );
    assert!(
        findings
            .iter()
            .all(|finding| finding["verdict"] != "failed")
    );
}

#[test]
fn a_store_that_cannot_be_used_does_not_conform() {
    let (server, url) = server();
    server.cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    server.cli(&["CONFIG", "SET", "maxmemory", "100mb"]);
    let output = leasehold(&["conform", "--store", &url]);
    assert_ne!(code(&output), 0, "{}", printed(&output));
}

#[test]
fn a_store_that_goes_away_meanwhile_breaks_no_clause() {
    let (mut server, url) = server();
    let suite = Running::start(&["conform", "--store", &url]);
    until("the first request", || server.cli(&["DBSIZE"]) != "0");
    server.kill();
    let output = suite.output();
    assert_eq!(code(&output), 69, "{}", printed(&output));
}

#[test]
fn every_subcommand_has_help_with_an_example() {
    for subcommand in SUBCOMMANDS {
        let help = leasehold(&[subcommand, "--help"]);
        assert_eq!(code(&help), 0);
        let text = printed(&help);
        assert!(text.contains("Example"), "{subcommand}: {text}");
        assert!(
            text.contains(&format!("leasehold {subcommand}")),
            "{subcommand}: {text}"
        );
    }
    let text = printed(&leasehold(&["--help"]));
    for code in [0, 1, 64, 65, 69, 70, 71, 75, 76, 77, 126, 127] {
        let mut words = text.split_whitespace();
        assert!(words.any(|word| word == code.to_string()), "{code}: {text}");
    }
    for option in leasehold::connect::url_options().lines() {
        assert!(text.contains(option.trim()), "{option}: {text}");
    }
    let text = printed(&leasehold(&["run", "--help"]));
    for promise in ["SIGKILL and no SIGTERM", "not what it has started", "sudo"] {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(promise), "{promise}: {text}");
    }
    assert_eq!(code(&leasehold(&["--version"])), 0);
    assert_eq!(code(&leasehold(&[])), 64);
    assert_eq!(code(&leasehold(&["lock"])), 64);
}

#[test]
fn completions_and_manual_pages_name_every_subcommand_and_nothing_hidden() {
    for what in ["bash", "zsh", "fish", "elvish", "powershell", "man"] {
        let output = leasehold(&["generate", what]);
        assert_eq!(code(&output), 0);
        // As the manual writes a hyphen.
        let text = printed(&output).replace("\\-", "-");
        for subcommand in SUBCOMMANDS {
            assert!(text.contains(subcommand), "{what}: {subcommand}");
        }
        for hidden in ["__exec", "__counting"] {
            assert!(!text.contains(hidden), "{what}: {hidden} shows");
        }
    }
    let output = leasehold(&["generate", "bash", "--json"]);
    let text = &lines(&output.stdout)[0]["text"];
    assert!(text.as_str().unwrap().contains("complete"), "{text}");
    let dir = Mark::new();
    std::fs::create_dir(dir.path()).unwrap();
    assert_eq!(
        code(&leasehold(&["generate", "man", "--dir", dir.path()])),
        0
    );
    let pages = std::fs::read_dir(dir.path()).unwrap().count();
    std::fs::remove_dir_all(dir.path()).unwrap();
    assert!(pages > SUBCOMMANDS.len(), "{pages} pages");
    assert_eq!(code(&leasehold(&["generate", "bash", "--dir", "/"])), 64);
}

/// The page of the guide and the help name the same exit codes, and every option of the help is in
/// the completions and the manual.
#[test]
fn the_page_of_the_tool_the_completions_and_the_manual_are_whole() {
    let page = include_str!("../../../src/docs/tool.md");
    for code in [0, 1, 64, 65, 69, 70, 71, 75, 76, 77, 126, 127] {
        assert!(page.contains(&format!("\n| {code} | ")), "{code}");
    }
    // What flock(1) has, and what it has not.
    for option in [
        "-E CODE`",
        "--wait 0`",
        "--wait 10`",
        "--wait forever`",
        "--shared`",
        "--write`",
        "--slots N`",
        "--lock A --lock B`",
        "--at-least 5m`",
        "--wait-children`",
        "leasehold hold`",
    ] {
        assert!(page.contains(option), "{option}");
    }
    let shells = ["bash", "zsh", "fish"];
    let completions = shells.map(|shell| printed(&leasehold(&["generate", shell])));
    let folder = std::env::temp_dir().join(format!("leasehold-man-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let manual = leasehold(&["generate", "man", "--dir", folder.to_str().unwrap()]);
    assert_eq!(code(&manual), 0, "{}", printed(&manual));
    for subcommand in SUBCOMMANDS {
        assert!(page.contains(&format!("`{subcommand}`")), "{subcommand}");
        let options = options_of(subcommand);
        assert!(options.contains(&"--json".to_owned()), "{options:?}");
        let text =
            std::fs::read_to_string(folder.join(format!("leasehold-{subcommand}.1"))).unwrap();
        let text = text.replace('\\', "");
        for option in options {
            assert!(text.contains(&option), "{subcommand} {option}: {text}");
            // Fish writes the name of a long option after `-l`.
            let name = option.trim_start_matches('-');
            let in_fish = format!(" -l {name} ");
            let words = [&option, &option, &in_fish];
            for (shell, (text, word)) in shells.iter().zip(completions.iter().zip(words)) {
                assert!(text.contains(word), "{shell} {subcommand} {word}");
            }
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The long options that the help of a subcommand describes.
fn options_of(subcommand: &str) -> Vec<String> {
    let help = printed(&leasehold(&[subcommand, "--help"]));
    let described = help.lines().map(str::trim_start).filter_map(|line| {
        let line = match line.split_once(", --") {
            Some((short, long)) if short.len() == 2 => format!("--{long}"),
            _ => line.to_owned(),
        };
        let ends = |c: char| c != '-' && !c.is_ascii_lowercase();
        let name = line.strip_prefix("--")?.split(ends).next()?;
        (!name.is_empty()).then(|| format!("--{name}"))
    });
    described.collect()
}
