//! The table `[handlers]`: the handlers and observers of a manager.

use std::time::Duration;

use super::entry::{Section, located};
use super::log_file::LogFile;
use crate::handler::AccessLog;
use crate::manager::LockManagerBuilder;
use crate::model::error::{Error, ErrorKind};
use crate::model::span::LONGEST_RATE;

/// The handlers that are switched on.
#[derive(Clone, Default, Debug)]
pub(super) struct Handlers {
    pub(super) access_log: AccessLogTo,
    pub(super) metrics: bool,
    pub(super) flow: Flow,
}

/// Where the access log goes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) enum AccessLogTo {
    #[default]
    Nowhere,
    Subscriber,
    File(String),
}

/// A number of calls for each span of time.
pub(super) type Rate = (u32, Duration);

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Flow {
    pub(super) per_key: Option<Rate>,
    pub(super) in_total: Option<Rate>,
    pub(super) at_once: Option<usize>,
    pub(super) waits: bool,
}

impl Handlers {
    /// Checks the fields against each other.
    pub(super) fn validate(&self, section: &Section) -> Result<(), Error> {
        let no_limit = Flow {
            waits: true,
            ..Flow::default()
        };
        match section.get("handlers.waits") {
            Some(entry) if self.flow == no_limit => {
                let what = "no limit is set; set rate_per_key, rate_in_total or at_once";
                Err(located(
                    &entry.origin,
                    &entry.written,
                    ErrorKind::Invalid,
                    what,
                ))
            }
            _ => Ok(()),
        }
    }

    /// Flow control is outermost: a call that it refuses reaches no other handler.
    pub(super) fn add(
        &self,
        name: Option<&str>,
        builder: LockManagerBuilder,
    ) -> Result<LockManagerBuilder, Error> {
        #[cfg(feature = "flow-control")]
        let builder = self.flow.add(builder)?;
        let builder = match &self.access_log {
            AccessLogTo::Nowhere => builder,
            AccessLogTo::Subscriber => builder.observer(AccessLog::new()),
            AccessLogTo::File(path) => builder.observer(AccessLog::to(LogFile::open(path)?)),
        };
        #[cfg(feature = "metrics")]
        if self.metrics {
            use crate::handler::metrics::Metrics;
            return Ok(builder.observer(name.map_or_else(Metrics::new, Metrics::of)));
        }
        let _ = name;
        Ok(builder)
    }
}

impl Flow {
    /// These limits, to be changed.
    pub(super) fn built(&mut self) -> Result<&mut Self, Error> {
        built(cfg!(feature = "flow-control"), "flow-control")?;
        Ok(self)
    }
}

impl AccessLogTo {
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        match text {
            "true" => Ok(Self::Subscriber),
            "false" => Ok(Self::Nowhere),
            // A word is more likely a switch that was misspelt than a file.
            path if path.contains(['.', '/', '\\']) => Ok(Self::File(path.to_owned())),
            _ => Err(Error::invalid(
                "true, false or the name of a file, such as \"locks.log\", is needed here",
            )),
        }
    }
}

#[cfg(feature = "flow-control")]
impl Flow {
    fn add(self, builder: LockManagerBuilder) -> Result<LockManagerBuilder, Error> {
        use crate::handler::{FlowControl, Rate};
        if self == Self::default() {
            return Ok(builder);
        }
        let mut flow = FlowControl::new();
        if let Some((count, span)) = self.per_key {
            flow = flow.per_key(Rate::per(count, span)?);
        }
        if let Some((count, span)) = self.in_total {
            flow = flow.in_total(Rate::per(count, span)?);
        }
        if let Some(most) = self.at_once {
            flow = flow.at_once(most);
        }
        Ok(builder.handler(if self.waits { flow.waits() } else { flow }))
    }
}

/// Refuses what this build leaves out.
pub(super) fn built(is_built: bool, feature: &str) -> Result<(), Error> {
    if is_built {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "this build of leasehold does not include it; switch on its feature {feature:?}"
    )))
}

pub(super) fn switch(text: &str) -> Result<bool, Error> {
    let needed = |_| Error::invalid("true or false is needed here");
    text.parse().map_err(needed)
}

/// A number of calls and a span, such as `10/s` or `1000/5m`.
pub(super) fn rate(text: &str) -> Result<Rate, Error> {
    let read = || {
        let (count, span) = text.split_once('/')?;
        let count: u32 = count.trim().parse().ok()?;
        let span = span.trim();
        let is_unit = span.starts_with(|first: char| first.is_ascii_alphabetic());
        let one = if is_unit { "1" } else { "" };
        let span = humantime::parse_duration(&format!("{one}{span}")).ok()?;
        // The limits of a `Rate`, which a build without the feature does not know.
        let is_rate = count > 0 && span.as_nanos() >= u128::from(count) && span <= LONGEST_RATE;
        is_rate.then_some((count, span))
    };
    read().ok_or_else(|| Error::invalid("a rate such as \"10/s\" or \"1000/5m\" is needed here"))
}

pub(super) fn at_once(text: &str) -> Result<usize, Error> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| Error::invalid("a whole number above zero is needed here"))
}
