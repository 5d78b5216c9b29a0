//! [`Table`]: the results of several stores, side by side, and what did not apply to each.

use std::fmt;

use super::clause::Clause;
use super::report::{Report, Verdict};

/// Stores and their reports. [`Display`](fmt::Display) prints a row for each store and a column for
/// each clause; beneath, what did not apply to a store and why, and every case that failed.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use leasehold::clock::ManualClock;
/// use leasehold::testing::conformance;
/// use leasehold::testing::conformance::{OnManualClock, Table};
/// use leasehold::testing::Faulty;
/// use leasehold::store::MemoryStore;
///
/// let mut table = Table::default();
/// let clock = ManualClock::new();
/// let store = MemoryStore::with_clock(clock.clone());
/// let plain = OnManualClock::new(clock.clone(), || store.clone());
/// table.add("plain", conformance::run(&plain).await);
/// let wrapped = || Faulty::new(store.clone(), clock.clone(), 1);
/// let wrapped = OnManualClock::new(clock.clone(), wrapped);
/// table.add("that could fail", conformance::run(&wrapped).await);
/// println!("{table}");
/// table.assert_passed();
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[must_use = "a failed case is only found by looking"]
pub struct Table {
    rows: Vec<(String, Row)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Row {
    Ran(Report),
    DidNotRun(String),
}

impl Table {
    /// Adds a store that ran, and its report.
    pub fn add(&mut self, store: impl Into<String>, report: Report) {
        self.rows.push((store.into(), Row::Ran(report)));
    }

    /// Adds a store that should have run, and why it did not. It counts as a failure.
    pub fn add_missing(&mut self, store: impl Into<String>, why: impl Into<String>) {
        let row = Row::DidNotRun(why.into());
        self.rows.push((store.into(), row));
    }

    /// Every store ran, nothing failed, and something passed on each.
    ///
    /// # Panics
    ///
    /// With the whole table if that is not so.
    pub fn assert_passed(&self) {
        let has_passed = |row: &Row| match row {
            Row::Ran(report) => {
                report.failures().count() == 0
                    && (report.findings().iter()).any(|f| f.verdict == Verdict::Passed)
            }
            Row::DidNotRun(_) => false,
        };
        let failed: Vec<&str> = (self.rows.iter())
            .filter(|(_, row)| !has_passed(row))
            .map(|(store, _)| store.as_str())
            .collect();
        assert!(
            failed.is_empty(),
            "these failed, or did not run: {}\n{self}",
            failed.join(", ")
        );
    }

    fn reports(&self) -> impl Iterator<Item = (&str, &Report)> {
        self.rows.iter().filter_map(|(store, row)| match row {
            Row::Ran(report) => Some((store.as_str(), report)),
            Row::DidNotRun(_) => None,
        })
    }

    /// Those of every store, and those of members if there is one.
    fn clauses(&self) -> Vec<Clause> {
        let is_member = |report: &Report| {
            (report.findings().iter()).any(|found| found.clause == Clause::Membership)
        };
        let has_members = self.reports().any(|(_, report)| is_member(report));
        let member = has_members.then_some(Clause::Membership);
        Clause::ALL.into_iter().chain(member).collect()
    }
}

/// `passed/applied`, and how many did not apply.
fn cell(report: &Report, clause: Clause) -> String {
    let sum = report.sum(clause);
    match (sum.passed + sum.failed, sum.did_not_apply) {
        (0, _) => "-".to_owned(),
        (all, 0) => format!("{}/{all}", sum.passed),
        (all, others) => format!("{}/{all}+{others}", sum.passed),
    }
}

/// So many cases of a clause that did not apply, why, and to which stores.
struct Lack<'a> {
    clause: Clause,
    why: &'static str,
    cases: usize,
    stores: Vec<&'a str>,
}

impl Table {
    /// In the order of the clauses.
    fn lacks(&self) -> Vec<Lack<'_>> {
        let mut lacks: Vec<Lack<'_>> = Vec::new();
        for (store, report) in self.reports() {
            for (clause, why, cases) in did_not_apply(report) {
                let is_same = |lack: &&mut Lack<'_>| {
                    (lack.clause, lack.why, lack.cases) == (clause, why, cases)
                };
                match lacks.iter_mut().find(is_same) {
                    Some(lack) => lack.stores.push(store),
                    None => lacks.push(Lack {
                        clause,
                        why,
                        cases,
                        stores: vec![store],
                    }),
                }
            }
        }
        lacks.sort_by_key(|lack| lack.clause);
        lacks
    }
}

/// The clause, why, and how many cases of it.
fn did_not_apply(report: &Report) -> Vec<(Clause, &'static str, usize)> {
    let mut reasons: Vec<(Clause, &'static str, usize)> = Vec::new();
    for finding in report.findings() {
        if let Verdict::DidNotApply(why) = finding.verdict {
            let is_same =
                |one: &&mut (Clause, &str, usize)| (one.0, one.1) == (finding.clause, why);
            match reasons.iter_mut().find(is_same) {
                Some(reason) => reason.2 += 1,
                None => reasons.push((finding.clause, why, 1)),
            }
        }
    }
    reasons
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let longest = self.rows.iter().map(|(store, _)| store.chars().count());
        let first = longest.max().unwrap_or(0).max("store".len());
        let columns: Vec<(Clause, usize)> = (self.clauses().into_iter())
            .map(|clause| (clause, format!("{clause:?}").len().max("10/10+1".len())))
            .collect();

        let mut head = format!("{:<first$}", "store");
        for (clause, width) in &columns {
            head += &format!("  {:<width$}", format!("{clause:?}"));
        }
        writeln!(f, "{}", head.trim_end())?;
        for (store, row) in &self.rows {
            let mut line = format!("{store:<first$}");
            match row {
                Row::Ran(report) => {
                    for (clause, width) in &columns {
                        line += &format!("  {:<width$}", cell(report, *clause));
                    }
                }
                Row::DidNotRun(why) => line += &format!("  DID NOT RUN: {why}"),
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        writeln!(
            f,
            "passed/applied; +n: so many did not apply; -: none applied"
        )?;
        for lack in self.lacks() {
            let (clause, stores) = (format!("{:?}", lack.clause), lack.stores.join("; "));
            let Lack { why, cases, .. } = lack;
            writeln!(f, "did not apply  {clause:<11} {cases:>2}  {why}: {stores}")?;
        }
        for (store, report) in self.reports() {
            for failed in report.failures() {
                if let Verdict::Failed(message) = &failed.verdict {
                    let (clause, case) = (failed.clause, failed.case);
                    writeln!(f, "FAILED         {store}: {clause:?} {case}: {message}")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Finding;
    use super::*;

    fn report(verdicts: &[(Clause, Verdict)]) -> Report {
        let mut report = Report::default();
        for (clause, verdict) in verdicts {
            report.add(Finding {
                clause: *clause,
                case: "a_case",
                shows: "something",
                verdict: verdict.clone(),
            });
        }
        report
    }

    #[test]
    fn a_table_shows_what_passed_and_what_did_not_apply_and_why() {
        let mut table = Table::default();
        let no_queue = Verdict::DidNotApply("the store keeps no queue");
        table.add(
            "plain",
            report(&[
                (Clause::Exclusion, Verdict::Passed),
                (Clause::Order, no_queue.clone()),
                (Clause::Order, no_queue),
            ]),
        );
        let same = table.reports().next().unwrap().1.clone();
        table.add("other", same);
        table.assert_passed();
        let text = table.to_string();
        let row = text.lines().find(|line| line.starts_with("plain"));
        let cells: Vec<_> = row.unwrap_or_default().split_whitespace().collect();
        assert_eq!(cells[..3], ["plain", "1/1", "-"], "{text}");
        assert!(
            text.contains(
                "did not apply  Order        2  the store keeps no queue: plain; other\n"
            ),
            "{text}"
        );
        assert!(!text.contains("Membership"), "{text}");
    }

    #[test]
    #[should_panic(expected = "these failed, or did not run: broken\n")]
    fn a_store_that_failed_fails_the_table() {
        let mut table = Table::default();
        table.add("sound", report(&[(Clause::Expiry, Verdict::Passed)]));
        let failed = Verdict::Failed("it never ended".to_owned());
        table.add("broken", report(&[(Clause::Expiry, failed)]));
        assert!(
            table
                .to_string()
                .contains("broken: Expiry a_case: it never ended")
        );
        table.assert_passed();
    }

    #[test]
    #[should_panic(expected = "DID NOT RUN: no server")]
    fn a_store_that_did_not_run_fails_the_table() {
        let mut table = Table::default();
        table.add("sound", report(&[(Clause::Expiry, Verdict::Passed)]));
        table.add_missing("absent", "no server");
        table.assert_passed();
    }
}
