//! `leasehold conform`: the behaviour suite, on a store of one's own.

use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::connect::UrlStore;
use leasehold::testing::conformance;
use leasehold::testing::conformance::{Clause, Harness, Report, Verdict};
use leasehold::{Error, ErrorKind, LockManager, Settings};
use serde_json::{Value, json};

use crate::args::ConformArgs;
use crate::exit::{Failure, code};
use crate::output::Output;

const TTL: Duration = Duration::from_secs(1);
/// Where a bucket takes no less.
const LONG_TTL: Duration = Duration::from_secs(5);

pub(crate) async fn conform(args: &ConformArgs, output: Output) -> Result<u8, Failure> {
    let url = args.store.named()?.to_owned();
    let harness = AtUrl {
        settings: settings(&url, args.ttl).await?,
        url,
        clock: Clock::system()?,
    };
    let report = conformance::run(&harness).await;
    output.answer(people(&report), &scripts(&report))?;
    let is_kept = report.failures().count() == 0 && !passed(&report).is_empty();
    if is_kept {
        return Ok(code::DONE);
    }
    // A store that cannot be reached any more breaks no clause.
    let locks = LockManager::connect(&harness.url).await?;
    let looked = locks.inspect("conform").await;
    locks.shutdown().await;
    if let Err(error) = looked
        && error.kind() == ErrorKind::Unavailable
    {
        return Err(error.into());
    }
    Ok(code::NO)
}

/// A short TTL, where the store leaves it to us.
async fn settings(url: &str, ttl: Option<Duration>) -> Result<Settings, Failure> {
    let locks = LockManager::connect(url).await?;
    let mut settings = locks.settings().clone();
    let capability = locks.capability();
    if capability.ttl_per_lock {
        let short = match capability.observes_expiry {
            true => LONG_TTL,
            false => TTL,
        };
        settings.ttl = ttl.unwrap_or(short);
    } else if ttl.is_some_and(|ttl| ttl != settings.ttl) {
        return Err(Failure::usage(format!(
            "this store has one ttl for all locks: ttl={:?}; omit --ttl, and set it in the URL",
            settings.ttl
        )));
    }
    locks.shutdown().await;
    settings.validate()?;
    Ok(settings)
}

struct AtUrl {
    url: String,
    settings: Settings,
    clock: Clock,
}

impl Harness for AtUrl {
    type Store = UrlStore;

    async fn client(&self) -> Result<UrlStore, Error> {
        UrlStore::connect_for(&self.url, self.settings.clone()).await
    }

    fn ttl(&self) -> Duration {
        self.settings.ttl
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }
}

fn passed(report: &Report) -> Vec<&'static str> {
    let findings = report.findings().iter();
    let passed = findings.filter(|finding| finding.verdict == Verdict::Passed);
    passed.map(|finding| finding.case).collect()
}

fn people(report: &Report) -> String {
    let sums = Clause::ALL.map(|clause| format!("{clause:?} {}", report.sum(clause)));
    format!("{report}\n{}", sums.join(", "))
}

fn scripts(report: &Report) -> Value {
    let findings = report.findings().iter().map(|finding| {
        let (verdict, why) = match &finding.verdict {
            Verdict::Passed => ("passed", None),
            Verdict::Failed(why) => ("failed", Some(why.as_str())),
            Verdict::DidNotApply(why) => ("did not apply", Some(*why)),
        };
        json!({
            "clause": format!("{:?}", finding.clause),
            "case": finding.case,
            "shows": finding.shows,
            "verdict": verdict,
            "why": why,
        })
    });
    Value::Array(findings.collect())
}
