//! The table `[handlers]`: the handlers and observers of a manager.
//!
//! ```toml
//! [handlers]
//! # One line for each acquire, release and loss: to the subscriber of
//! # the process, or to a file of its own.
//! access_log = "locks.log"
//! # Feature `metrics`.
//! metrics = true
//! # These four: feature `flow-control`. `waits` delays a call that is over
//! # a limit; otherwise the call is refused.
//! rate_per_key = "10/s"
//! rate_in_total = "1000/1m"
//! at_once = 200
//! waits = true
//! ```

use std::time::Duration;

use toml::Value;

use super::entry::{Entry, Section, located};
use super::log_file::LogFile;
use crate::handler::AccessLog;
use crate::manager::LockManagerBuilder;
use crate::model::error::{Error, ErrorKind};
use crate::model::span::LONGEST_RATE;

pub(super) const FIELDS: &[&str] = &[
    "handlers.access_log",
    "handlers.metrics",
    "handlers.rate_per_key",
    "handlers.rate_in_total",
    "handlers.at_once",
    "handlers.waits",
];

/// The handlers that are switched on.
#[derive(Clone, Default, Debug)]
pub(super) struct Handlers {
    access_log: AccessLogTo,
    metrics: bool,
    flow: Flow,
}

/// Where the access log goes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
enum AccessLogTo {
    #[default]
    Nowhere,
    Subscriber,
    File(String),
}

/// A number of calls for each span of time.
type Rate = (u32, Duration);

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Flow {
    per_key: Option<Rate>,
    in_total: Option<Rate>,
    at_once: Option<usize>,
    waits: bool,
}

impl Handlers {
    pub(super) fn of(section: &Section) -> Result<Self, Error> {
        let read = Read(section);
        let handlers = Self {
            access_log: read.access_log()?,
            metrics: read.switch("handlers.metrics")?,
            flow: Flow {
                per_key: read.rate("handlers.rate_per_key")?,
                in_total: read.rate("handlers.rate_in_total")?,
                at_once: read.count("handlers.at_once")?,
                waits: read.switch("handlers.waits")?,
            },
        };
        let Flow {
            per_key,
            in_total,
            at_once,
            waits,
        } = handlers.flow;
        if waits && per_key.is_none() && in_total.is_none() && at_once.is_none() {
            let message = "no limit is set; set rate_per_key, rate_in_total or at_once";
            return Err(read.refusal("handlers.waits", ErrorKind::Invalid, message));
        }
        if handlers.metrics && cfg!(not(feature = "metrics")) {
            let message =
                "this build of leasehold does not include it; switch on its feature \"metrics\"";
            return Err(read.refusal("handlers.metrics", ErrorKind::Unsupported, message));
        }
        if handlers.flow != Flow::default() && cfg!(not(feature = "flow-control")) {
            let message = "this build of leasehold does not include it; switch on its feature \"flow-control\"";
            let field = FIELDS[2..].iter().find(|field| section.has(field));
            let field = field.copied().unwrap_or("handlers.waits");
            return Err(read.refusal(field, ErrorKind::Unsupported, message));
        }
        Ok(handlers)
    }

    /// Flow control is outermost: a call that it refuses reaches no other handler.
    pub(super) fn add(
        &self,
        name: Option<&str>,
        builder: LockManagerBuilder,
    ) -> Result<LockManagerBuilder, Error> {
        let builder = self.flow.add(builder)?;
        let builder = self.access_log.add(builder)?;
        Ok(self.add_metrics(name, builder))
    }

    #[cfg(feature = "metrics")]
    fn add_metrics(&self, name: Option<&str>, builder: LockManagerBuilder) -> LockManagerBuilder {
        use crate::handler::metrics::Metrics;
        match name {
            _ if !self.metrics => builder,
            Some(name) => builder.observer(Metrics::of(name)),
            None => builder.observer(Metrics::new()),
        }
    }

    #[cfg(not(feature = "metrics"))]
    #[allow(
        clippy::unused_self,
        reason = "with the other features it reads the switch"
    )]
    fn add_metrics(&self, _name: Option<&str>, builder: LockManagerBuilder) -> LockManagerBuilder {
        builder
    }
}

impl AccessLogTo {
    fn add(&self, builder: LockManagerBuilder) -> Result<LockManagerBuilder, Error> {
        match self {
            Self::Nowhere => Ok(builder),
            Self::Subscriber => Ok(builder.observer(AccessLog::new())),
            Self::File(path) => Ok(builder.observer(AccessLog::to(LogFile::open(path)?))),
        }
    }
}

impl Flow {
    #[cfg(feature = "flow-control")]
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

    #[cfg(not(feature = "flow-control"))]
    #[allow(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "as with the other features"
    )]
    fn add(self, builder: LockManagerBuilder) -> Result<LockManagerBuilder, Error> {
        Ok(builder)
    }
}

/// Reads the values of a section. In the environment every value is text.
struct Read<'a>(&'a Section);

impl Read<'_> {
    fn switch(&self, field: &str) -> Result<bool, Error> {
        self.value(field, "true or false", |value| match value {
            Value::Boolean(on) => Some(*on),
            Value::String(text) => text.parse().ok(),
            _ => None,
        })
        .map(Option::unwrap_or_default)
    }

    fn access_log(&self) -> Result<AccessLogTo, Error> {
        let needed = "true, false or the name of a file, such as \"locks.log\",";
        let to = self.value("handlers.access_log", needed, |value| match value {
            Value::Boolean(true) => Some(AccessLogTo::Subscriber),
            Value::Boolean(false) => Some(AccessLogTo::Nowhere),
            Value::String(text) if text == "true" => Some(AccessLogTo::Subscriber),
            Value::String(text) if text == "false" => Some(AccessLogTo::Nowhere),
            // A word is more likely a switch that was misspelt than a file.
            Value::String(text) if text.contains(['.', '/', '\\']) => {
                Some(AccessLogTo::File(text.clone()))
            }
            _ => None,
        })?;
        Ok(to.unwrap_or_default())
    }

    fn count(&self, field: &str) -> Result<Option<usize>, Error> {
        self.value(field, "a whole number above zero", |value| {
            let number = match value {
                Value::Integer(number) => usize::try_from(*number).ok(),
                Value::String(text) => text.parse().ok(),
                _ => None,
            };
            number.filter(|number| *number > 0)
        })
    }

    fn rate(&self, field: &str) -> Result<Option<Rate>, Error> {
        self.value(field, "a rate such as \"10/s\" or \"1000/5m\"", |value| {
            let (count, span) = value.as_str()?.split_once('/')?;
            let count: u32 = count.trim().parse().ok()?;
            let span = span.trim();
            let is_unit = span.starts_with(|first: char| first.is_ascii_alphabetic());
            let span = if is_unit {
                format!("1{span}")
            } else {
                span.to_owned()
            };
            let span = humantime::parse_duration(&span).ok()?;
            // The limits of a `Rate`, which a build without the feature does not know.
            let is_rate = count > 0 && span.as_nanos() >= u128::from(count) && span <= LONGEST_RATE;
            is_rate.then_some((count, span))
        })
    }

    fn value<T>(
        &self,
        field: &str,
        needed: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(Entry { value, .. }) = self.0.get(field) else {
            return Ok(None);
        };
        match read(value) {
            Some(read) => Ok(Some(read)),
            None => {
                let message = format!("{needed} is needed here");
                Err(self.refusal(field, ErrorKind::Invalid, &message))
            }
        }
    }

    fn refusal(&self, field: &str, kind: ErrorKind, message: &str) -> Error {
        match self.0.get(field) {
            Some(entry) => located(&entry.origin, &entry.written, kind, message),
            None => Error::new(kind, format!("{field}: {message}")),
        }
    }
}
