//! A real fork: the child finds every lease lost, the parent none (I9).

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

/// What a child finds; reported by its exit code, since the harness that would print a panic is not
/// in it.
const AS_PROMISED: i32 = 0;
const STILL_LIVE: i32 = 1;
const WRONG_REASON: i32 = 2;
const PANICKED: i32 = 3;

/// Runs `child` in a fork of this process and returns its exit code.
#[allow(unsafe_code, reason = "there is no fork without it")]
fn in_a_fork(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child looks at leases that no other thread has, so no thread of the parent holds
    // a lock that it needs. The C library does that for the allocator. It leaves by `_exit`:
    // nothing of the parent is unwound, flushed or dropped twice.
    unsafe {
        match libc::fork() {
            0 => libc::_exit(catch_unwind(AssertUnwindSafe(child)).unwrap_or(PANICKED)),
            -1 => panic!("fork: {}", std::io::Error::last_os_error()),
            id => {
                let mut status = 0;
                assert_eq!(libc::waitpid(id, &raw mut status, 0), id);
                assert!(libc::WIFEXITED(status), "the child died: {status}");
                libc::WEXITSTATUS(status)
            }
        }
    }
}

fn system_lease() -> Lease {
    let clock = Clock::system().unwrap();
    let granted = Granted {
        key: &Key::parse("accounts/7").unwrap(),
        token: FencingToken::new(7).unwrap(),
        is_fencing: true,
        sent_at: &clock.stamp(),
        // Long enough that no child is ever so late that it finds a lapse instead of a fork.
        ttl: Duration::from_secs(24 * 60 * 60),
    };
    Lease::new(clock, terms(), &granted)
}

fn finds(lease: &Lease, first_look: impl Fn(&Lease) -> bool) -> i32 {
    if first_look(lease) {
        STILL_LIVE
    } else if lease.lost_reason() != Some(Ended::Forked) {
        WRONG_REASON
    } else {
        AS_PROMISED
    }
}

#[test]
fn a_child_finds_the_lease_lost_at_its_first_look_and_the_parent_does_not() {
    let looks: [fn(&Lease) -> bool; 3] = [
        Lease::is_live,
        |lease| lease.remaining() > Duration::ZERO,
        |lease| renew(lease).is_ok(),
    ];
    for look in looks {
        let lease = system_lease();
        assert_eq!(in_a_fork(|| finds(&lease, look)), AS_PROMISED);
        assert!(lease.is_live(), "the parent goes on");
        assert_eq!(lease.lost_reason(), None);
        renew(&lease).unwrap();
    }
}

#[test]
fn a_child_of_a_child_finds_it_lost_too() {
    let lease = system_lease();
    let code = in_a_fork(|| in_a_fork(|| finds(&lease, Lease::is_live)));
    assert_eq!(code, AS_PROMISED);
}

#[test]
fn a_lease_that_the_child_takes_itself_is_live() {
    let code = in_a_fork(|| i32::from(!system_lease().is_live()));
    assert_eq!(code, 0);
}
