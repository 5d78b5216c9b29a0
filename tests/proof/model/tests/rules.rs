//! With all rules on, the checker finds nothing; with one off, it finds the fault that the rule
//! prevents.

use leasehold_model::{Fence, Protocol, Rules};
use stateright::{Checker, Model};

/// The properties that are violated, with the number of states that were looked at.
fn violated(rules: Rules) -> (Vec<&'static str>, usize) {
    let checker = Protocol { rules }.checker().threads(2).spawn_bfs().join();
    assert!(
        checker.discovery("two have written").is_some(),
        "the model does nothing"
    );
    let mut found: Vec<_> = checker.discoveries().into_keys().collect();
    found.retain(|name| *name != "two have written");
    found.sort_unstable();
    (found, checker.unique_state_count())
}

/// Whether a property is violated: the search ends with the first path that does it.
fn violates(rules: Rules, property: &'static str) -> bool {
    use stateright::HasDiscoveries;
    let checker = Protocol { rules }
        .checker()
        .threads(2)
        .finish_when(HasDiscoveries::AnyOf([property].into()))
        .spawn_bfs()
        .join();
    println!("{property}: {} states", checker.unique_state_count());
    checker.discovery(property).is_some()
}

#[test]
fn with_all_rules_nothing_is_violated() {
    let (found, states) = violated(Rules::ALL);
    println!("all rules: {states} states, all of them");
    assert!(found.is_empty(), "{found:?}");
    assert!(states > 100_000, "only {states} states");
}

#[test]
fn without_a_fence_a_stale_write_is_applied() {
    let rules = Rules {
        fence: Fence::None,
        ..Rules::ALL
    };
    assert!(violates(rules, "no stale write"));
}

#[test]
fn without_a_fence_nothing_else_is_violated() {
    let rules = Rules {
        fence: Fence::None,
        ..Rules::ALL
    };
    assert_eq!(violated(rules).0, ["no stale write"]);
}

#[test]
fn a_fence_that_the_first_write_raises_lets_a_stale_write_in() {
    let rules = Rules {
        fence: Fence::RaisedByTheFirstWrite,
        ..Rules::ALL
    };
    assert!(violates(rules, "no stale write"));
}

#[test]
fn tokens_that_do_not_grow_let_a_stale_write_in() {
    let rules = Rules {
        tokens_grow: false,
        ..Rules::ALL
    };
    assert!(violates(rules, "no stale write"));
}

#[test]
fn a_deadline_from_the_receipt_lets_two_believe() {
    let rules = Rules {
        deadline_from_sending: false,
        ..Rules::ALL
    };
    assert!(violates(rules, "one believes"));
}

#[test]
fn a_release_that_does_not_compare_lets_two_believe() {
    let rules = Rules {
        release_compares: false,
        tries: 2,
        ..Rules::ALL
    };
    assert!(violates(rules, "one believes"));
}

#[test]
fn a_late_renewal_that_counts_revives_a_lapsed_lease() {
    let rules = Rules {
        lapse_is_final: false,
        ..Rules::ALL
    };
    assert!(violates(rules, "a lapse is final"));
}

/// The shortest path to a stale write, which the guide prints.
#[test]
fn the_commit_gap_is_found_by_its_shortest_path() {
    let rules = Rules {
        fence: Fence::None,
        ..Rules::ALL
    };
    for depth in 12..24 {
        let checker = Protocol { rules }
            .checker()
            .target_max_depth(depth)
            .spawn_bfs()
            .join();
        if let Some(path) = checker.discovery("no stale write") {
            let actions = path.into_actions();
            for (step, action) in (1..).zip(&actions) {
                println!("{step:2}  {action:?}");
            }
            assert_eq!(actions.len(), 17);
            return;
        }
    }
    panic!("not found");
}
