//! [`Report`]: the result of each case. Nothing is skipped silently.

use std::fmt;

use super::clause::Clause;

/// The result of one case.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "a failed case is only found by looking"]
pub enum Verdict {
    /// The store keeps what the case shows.
    Passed,
    /// The store breaks it: what was expected and what came.
    Failed(String),
    /// The store does not claim it, for this reason.
    DidNotApply(&'static str),
}

/// One case and its verdict.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// The clause that the case belongs to.
    pub clause: Clause,
    /// The case's name.
    pub case: &'static str,
    /// What the case shows, in a sentence.
    pub shows: &'static str,
    /// Its result.
    pub verdict: Verdict,
}

/// The result of every case. [`Display`](fmt::Display) prints all of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[must_use = "a failed case is only found by looking"]
pub struct Report {
    findings: Vec<Finding>,
}

/// How many cases had which result, over a clause or over all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Sum {
    /// Cases that passed.
    pub passed: usize,
    /// Cases that failed.
    pub failed: usize,
    /// Cases that did not apply.
    pub did_not_apply: usize,
}

impl Report {
    pub(super) fn add(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// Every case, in the order in which they ran.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The cases that failed.
    pub fn failures(&self) -> impl Iterator<Item = &Finding> {
        let failed = |finding: &&Finding| matches!(finding.verdict, Verdict::Failed(_));
        self.findings.iter().filter(failed)
    }

    /// How many cases of a clause came to what.
    #[must_use]
    pub fn sum(&self, clause: Clause) -> Sum {
        let mut sum = Sum::default();
        for finding in self.findings.iter().filter(|f| f.clause == clause) {
            match finding.verdict {
                Verdict::Passed => sum.passed += 1,
                Verdict::Failed(_) => sum.failed += 1,
                Verdict::DidNotApply(_) => sum.did_not_apply += 1,
            }
        }
        sum
    }

    /// Nothing failed, and something passed.
    ///
    /// # Panics
    ///
    /// With the whole report if a case failed, or if none applied at all.
    pub fn assert_passed(&self) {
        let failed = self.failures().count();
        assert!(failed == 0, "{failed} cases failed\n{self}");
        let passed = |finding: &Finding| finding.verdict == Verdict::Passed;
        assert!(self.findings.iter().any(passed), "no case applied\n{self}");
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.passed + self.failed;
        write!(f, "{}/{all}", self.passed)?;
        match self.did_not_apply {
            0 => Ok(()),
            n => write!(f, " ({n} n/a)"),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            let Finding {
                clause,
                case,
                shows,
                verdict,
            } = finding;
            let clause = format!("{clause:?}");
            match verdict {
                Verdict::Passed => writeln!(f, "passed         {clause:<12} {case}")?,
                Verdict::DidNotApply(why) => {
                    writeln!(f, "did not apply  {clause:<12} {case}: {why}")?;
                }
                Verdict::Failed(message) => {
                    writeln!(f, "FAILED         {clause:<12} {case}: {message}")?;
                    writeln!(f, "               {:<12} {shows}", "")?;
                }
            }
        }
        Ok(())
    }
}
