//! Which contender waits for which: pure functions of the contenders' names, in their order.
//!
//! A reader waits for the nearest writer before it, so readers enter together. A contender that
//! wants to be alone waits for the one directly before it, whatever that one wants. Everybody waits
//! for a barrier. So one end wakes one writer, or the readers that enter together.
//!
//! A reader with a share enters if the shares before it leave enough, and those before it have all
//! entered. What is before it only gets less, so whoever has entered once may stay. Any end may let
//! it in, so it watches the first one, and polls.

use super::names::{Contender, Kind};

/// The position of a node among the contenders.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Position<'a> {
    /// There is no such node.
    Missing,
    /// Nobody keeps it out.
    First,
    /// Only this writer keeps it out, which holds. It may have become a reader: its data say so.
    BehindHolder(&'a Contender),
    /// It waits for this one.
    Behind(&'a Contender),
}

/// The position of the node with this name. `was_granted`: it held the lock when the queue was last
/// read.
pub(crate) fn position<'a>(
    contenders: &'a [Contender],
    name: &str,
    was_granted: bool,
) -> Position<'a> {
    // In a crowd each looks for itself among all.
    let own = Contender::named(name.to_owned());
    let Some(at) = own.and_then(|own| contenders.binary_search(&own).ok()) else {
        return Position::Missing;
    };
    let keeps_out = |other: &&Contender| match (contenders[at].kind, other.kind) {
        (Kind::Read, Kind::Read) => false,
        // Whoever holds does not look again at the others: a writer before it has become a reader,
        // and a simple lock that is tried counts as before it, but gives way.
        _ => !was_granted || other.kind == Kind::Barrier,
    };
    let mut blocking = contenders[..at].iter().filter(keeps_out);
    // Behind a first writer that has become a reader, the others begin with the second.
    let fits = |from: usize| {
        let is_reader = contenders[at].kind == Kind::Read && !was_granted;
        !is_reader || readers(&contenders[from..=at]).len() > at - from
    };
    let Some(nearest) = blocking.next_back() else {
        return match fits(0) {
            true => Position::First,
            false => Position::Behind(&contenders[0]),
        };
    };
    let is_alone = blocking.next_back().is_none();
    let holds = nearest.kind == Kind::Write && contenders[0].name == nearest.name;
    if is_alone && holds && contenders[at].kind == Kind::Read && fits(1) {
        Position::BehindHolder(nearest)
    } else {
        Position::Behind(nearest)
    }
}

/// The barriers at the front.
pub(crate) fn barriers(contenders: &[Contender]) -> &[Contender] {
    let barriers = contenders.iter().take_while(|c| c.kind == Kind::Barrier);
    &contenders[..barriers.count()]
}

/// The contenders that hold the lock, or will hold it when they read the queue. Behind a barrier
/// none does. `first_reads`: the first one is a writer that has become a reader.
pub(crate) fn holders(contenders: &[Contender], first_reads: bool) -> &[Contender] {
    match contenders.first() {
        None => &[],
        Some(first) if first.kind == Kind::Barrier => &[],
        Some(first) if first.kind == Kind::Read => readers(contenders),
        Some(_) if first_reads => {
            let others = readers(&contenders[1..]).len();
            &contenders[..=others]
        }
        Some(_) => &contenders[..1],
    }
}

/// The readers that are before everybody else, also before a share that does not fit.
pub(crate) fn readers(contenders: &[Contender]) -> &[Contender] {
    readers_beside(&[], contenders)
}

/// The same, beside others that read already.
pub(crate) fn readers_beside<'a>(
    others: &[Contender],
    contenders: &'a [Contender],
) -> &'a [Contender] {
    let shares = others.iter().filter_map(|other| other.share);
    let mut taken = shares.map(|share| u64::from(share.permits)).sum();
    let enters = |reader: &&Contender| {
        let share = reader.share;
        let fits = reader.kind == Kind::Read && share.is_none_or(|share| share.fits(taken));
        taken += share.map_or(0, |share| u64::from(share.permits));
        fits
    };
    let readers = contenders.iter().take_while(enters);
    &contenders[..readers.count()]
}

#[cfg(test)]
mod tests {
    use super::super::names::{self, SIMPLE};
    use super::*;

    fn line(names: &[&str]) -> Vec<Contender> {
        names::contenders(names.iter().map(|&name| name.to_owned()).collect()).unwrap()
    }

    const READER: [&str; 3] = [
        "_c_a-__READ__0000000001",
        "_c_b-__READ__0000000002",
        "_c_c-__READ__0000000005",
    ];
    const WRITER: &str = "_c_w-__WRIT__0000000003";
    const LOCK: &str = "_c_x-lock-0000000004";

    fn waits_for(contenders: &[Contender], name: &str) -> Option<String> {
        match position(contenders, name, false) {
            Position::First => None,
            Position::Behind(other) | Position::BehindHolder(other) => Some(other.name.clone()),
            Position::Missing => panic!("{name} is there"),
        }
    }

    #[test]
    fn readers_pass_readers_and_nobody_else() {
        let all = line(&[READER[0], READER[1], WRITER, LOCK, READER[2]]);
        assert_eq!(waits_for(&all, READER[0]), None);
        assert_eq!(waits_for(&all, READER[1]), None);
        assert_eq!(waits_for(&all, WRITER).as_deref(), Some(READER[1]));
        assert_eq!(waits_for(&all, LOCK).as_deref(), Some(WRITER));
        assert_eq!(waits_for(&all, READER[2]).as_deref(), Some(LOCK));
        for alone in [WRITER, LOCK, "x-0000000003", "u__lock__0000000000", SIMPLE] {
            let all = line(&[alone, READER[2]]);
            assert_eq!(waits_for(&all, READER[2]).as_deref(), Some(alone));
        }
    }

    #[test]
    fn only_a_writer_that_holds_is_asked_whether_it_reads_now() {
        let asks = |names: &[&str]| {
            let all = line(names);
            matches!(position(&all, READER[2], false), Position::BehindHolder(_))
        };
        assert!(asks(&[WRITER, READER[2]]));
        assert!(!asks(&[READER[0], WRITER, READER[2]]));
        assert!(!asks(&[WRITER, LOCK, READER[2]]));
        assert!(!asks(&[LOCK, READER[2]]));
        assert!(!asks(&["_c_b-bar-__WRIT__0000000003", WRITER, READER[2]]));
    }

    #[test]
    fn a_holder_passes_a_simple_lock_that_is_tried_and_no_barrier() {
        let all = line(&[SIMPLE, LOCK]);
        assert_eq!(position(&all, LOCK, true), Position::First);
        assert_eq!(position(&all, LOCK, false), Position::Behind(&all[0]));
        let bar = "_c_b-bar-lock-0000000004";
        let all = line(&[bar, LOCK]);
        assert_eq!(position(&all, LOCK, true), Position::Behind(&all[0]));
        assert_eq!(position(&all, "nobody", true), Position::Missing);
    }

    /// Every line of up to four, of every kind, with and without a first writer that reads.
    #[test]
    fn the_first_position_is_the_holder_and_only_readers_share_it() {
        const STEMS: [&str; 6] = [
            "-lock-",
            "-__WRIT__",
            "-__READ__",
            "-bar-__WRIT__",
            "-1of3-__READ__",
            "-2of3-__READ__",
        ];
        for length in 0..=4_u32 {
            for number in 0..6_usize.pow(length) {
                let stem = |at: u32| STEMS[number / 6_usize.pow(at) % 6];
                let names: Vec<_> = (0..length)
                    .map(|at| format!("_c_{at}{}{at:010}", stem(at)))
                    .collect();
                let all = line(&names.iter().map(String::as_str).collect::<Vec<_>>());
                let first_is_writer = all.first().is_some_and(|c| c.kind == Kind::Write);
                for first_reads in [false, first_is_writer] {
                    let is_in = |c: &&Contender| match position(&all, &c.name, false) {
                        Position::First => c.kind != Kind::Barrier,
                        Position::BehindHolder(_) => first_reads,
                        Position::Behind(_) | Position::Missing => false,
                    };
                    let inside: Vec<_> = all.iter().filter(is_in).collect();
                    let holders: Vec<_> = holders(&all, first_reads).iter().collect();
                    assert_eq!(inside, holders, "{names:?}");
                    let permits = |c: &&Contender| c.share.map_or(0, |share| share.permits);
                    let taken: u32 = inside.iter().map(permits).sum();
                    assert!(taken <= 3, "{names:?}");
                    let alone = inside.iter().filter(|c| c.kind != Kind::Read).count();
                    let may = inside.len() <= 1 || alone == usize::from(first_reads);
                    assert!(may, "{names:?}");
                }
            }
        }
    }

    #[test]
    fn a_share_enters_when_all_before_it_have_and_leave_enough() {
        let all = line(&[
            "_c_a-3of5-__READ__0000000001",
            "_c_b-4of5-__READ__0000000002",
            "_c_c-1of9-__READ__0000000003",
            READER[2],
        ]);
        assert_eq!(waits_for(&all, &all[0].name), None);
        for share in [1, 2] {
            let first = Some(all[0].name.clone());
            assert_eq!(waits_for(&all, &all[share].name), first);
            assert_eq!(waits_for(&all[share..], &all[share].name), None);
        }
        assert_eq!(waits_for(&all[1..], &all[2].name), None);
        // A reader without a share takes nothing, and passes nobody.
        assert_eq!(waits_for(&all, READER[2]), Some(all[0].name.clone()));
        assert_eq!(
            waits_for(&line(&[&all[0].name, READER[2]]), READER[2]),
            None
        );
        assert_eq!(position(&all, &all[1].name, true), Position::First);
    }

    #[test]
    fn who_holds_is_one_alone_or_the_readers_before_everybody() {
        let count = |names: &[&str], first_reads| holders(&line(names), first_reads).len();
        assert_eq!(count(&[], false), 0);
        assert_eq!(count(&[LOCK, READER[2]], false), 1);
        assert_eq!(count(&[WRITER, READER[2]], false), 1);
        assert_eq!(count(&[WRITER, READER[2]], true), 2);
        assert_eq!(count(&[READER[0], READER[1], WRITER, READER[2]], false), 2);
        assert_eq!(count(&["_c_b-bar-lock-0000000001", LOCK], false), 0);
    }
}
