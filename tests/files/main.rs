//! Locks in files among real processes that are killed, stopped, starved and given strange mounts.
//!
//! A program without libtest: it starts itself again as `worker`, so that each process has as few
//! threads and system calls of its own as possible. `cargo test --test files -- NAME` runs the
//! tests whose names contain NAME, `--list` names all.
//!
//! `LEASEHOLD_COUNTING_SECONDS=20` makes the two counting tests last that long, instead of ending
//! as soon as they have seen enough.
#![allow(clippy::unwrap_used, reason = "a failing test")]

#[cfg(target_os = "linux")]
mod calls;
#[cfg(target_os = "linux")]
mod counting;
#[cfg(target_os = "linux")]
#[path = "../support/shards.rs"]
mod crew;
#[cfg(target_os = "linux")]
mod crowd;
#[cfg(target_os = "linux")]
mod deleted;
#[cfg(target_os = "linux")]
#[path = "../sim/dice.rs"]
#[allow(dead_code, reason = "the simulation throws them in more ways")]
mod dice;
#[cfg(target_os = "linux")]
mod limits;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(target_os = "linux")]
mod office;
#[cfg(target_os = "linux")]
mod once;
#[cfg(target_os = "linux")]
#[path = "../support/one_time.rs"]
mod one_time;
#[cfg(target_os = "linux")]
#[path = "../support/passing_on.rs"]
mod passing_on;
#[cfg(target_os = "linux")]
mod place;
#[cfg(target_os = "linux")]
#[path = "../support/shard_faults.rs"]
mod shard_faults;
#[cfg(target_os = "linux")]
mod shards;
#[cfg(target_os = "linux")]
mod tokens;

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
}

#[cfg(target_os = "linux")]
const TESTS: &[(&str, fn())] = &[
    (
        "a_process_that_is_killed_at_any_system_call_leaves_a_whole_store",
        calls::a_process_that_is_killed_at_any_system_call_leaves_a_whole_store,
    ),
    (
        "a_crowd_that_fills_the_queue_is_served_and_the_others_are_refused",
        crowd::a_crowd_that_fills_the_queue_is_served_and_the_others_are_refused,
    ),
    (
        "a_file_that_was_deleted_before_it_was_locked_is_not_used",
        deleted::a_file_that_was_deleted_before_it_was_locked_is_not_used,
    ),
    (
        "no_update_is_lost_behind_a_fence_whoever_is_killed_or_stopped",
        counting::no_update_is_lost_behind_a_fence_whoever_is_killed_or_stopped,
    ),
    (
        "without_a_fence_only_a_run_that_went_past_its_lease_overlaps",
        counting::without_a_fence_only_a_run_that_went_past_its_lease_overlaps,
    ),
    (
        "a_one_time_job_is_done_by_one_of_two_managers",
        once::a_one_time_job_is_done_by_one_of_two_managers,
    ),
    (
        "a_lock_and_an_office_pass_on",
        office::a_lock_and_an_office_pass_on,
    ),
    (
        "tokens_grow_while_files_come_and_go",
        tokens::tokens_grow_while_files_come_and_go,
    ),
    (
        "a_process_without_descriptors_gets_an_error_and_no_lock",
        limits::a_process_without_descriptors_gets_an_error_and_no_lock,
    ),
    (
        "another_boot_id_is_refused_by_a_process_without_descriptors",
        limits::another_boot_id_is_refused_by_a_process_without_descriptors,
    ),
    (
        "a_disk_that_is_full_at_any_page_refuses_and_keeps_every_hold",
        limits::a_disk_that_is_full_at_any_page_refuses_and_keeps_every_hold,
    ),
    (
        "one_directory_is_one_set_of_locks_on_every_mount",
        mounts::one_directory_is_one_set_of_locks_on_every_mount,
    ),
    (
        "a_read_only_directory_is_refused",
        mounts::a_read_only_directory_is_refused,
    ),
    (
        "a_process_that_may_not_write_files_as_large_as_the_stores_is_refused",
        limits::a_process_that_may_not_write_files_as_large_as_the_stores_is_refused,
    ),
    (
        "members_come_and_go_on_files",
        shards::members_come_and_go_on_files,
    ),
    (
        "owners_of_shards_follow_each_other_whoever_is_killed_or_stopped",
        shards::owners_follow_each_other_whoever_is_killed_or_stopped,
    ),
];

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some("worker") {
        let words: Vec<String> = words.collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        worker(&words);
        return std::process::ExitCode::SUCCESS;
    }
    if std::env::args().any(|word| word == "--list") {
        for (name, _) in TESTS {
            println!("{name}: test");
        }
        return std::process::ExitCode::SUCCESS;
    }
    let filters: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let (mut passed, mut failed, mut left_out) = (0, 0, 0);
    for (name, test) in TESTS {
        if !filters.is_empty() && !filters.iter().any(|filter| name.contains(filter.as_str())) {
            left_out += 1;
            continue;
        }
        let is_good = std::panic::catch_unwind(test).is_ok();
        println!("test {name} ... {}", if is_good { "ok" } else { "FAILED" });
        passed += u32::from(is_good);
        failed += u32::from(!is_good);
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {word}. {passed} passed; {failed} failed; 0 ignored; 0 measured; {left_out} filtered out"
    );
    std::process::ExitCode::from(u8::from(failed > 0))
}

/// What this program does as another process.
#[cfg(target_os = "linux")]
fn worker(words: &[&str]) {
    match words {
        ["step", operation, url, ttl] => calls::step(operation, url, ttl),
        ["count", url, log, report, fence] => counting::count(url, log, report, *fence == "fenced"),
        ["tokens", url, log] => tokens::take_and_release(url, log),
        ["full", directory] => limits::fill(directory),
        ["other-boot", directory] => limits::open_with_few_descriptors(directory),
        ["mounted", one, other] => mounts::exclude(one, other),
        ["shards"] => shard_faults::serve_if_asked(),
        ["read-only", directory] => mounts::open_read_only(directory),
        other => panic!("no such work: {other:?}"),
    }
}
