//! A subscriber that panics around a commit call does not undo what the call applied.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::executor_support::{Gauge, Stage};
use tracing::span::{Id, Record};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

#[derive(Clone, Copy, PartialEq, Debug)]
enum When {
    /// As the span of the commit is left, after its call.
    Exit,
    /// As the span learns of the answer.
    Record,
}

struct Panicking(When);

impl Panicking {
    fn meets<S: tracing::Subscriber + for<'a> LookupSpan<'a>>(
        &self,
        when: When,
        id: &Id,
        cx: &Context<'_, S>,
    ) {
        let is_commit = cx.span(id).is_some_and(|span| span.name() == "lock.commit");
        let is_met = is_commit && self.0 == when && !std::thread::panicking();
        assert!(!is_met, "a planted panic");
    }
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Panicking {
    fn on_exit(&self, id: &Id, cx: Context<'_, S>) {
        self.meets(When::Exit, id, &cx);
    }

    fn on_record(&self, id: &Id, _: &Record<'_>, cx: Context<'_, S>) {
        self.meets(When::Record, id, &cx);
    }
}

#[test]
fn a_subscriber_that_panics_after_a_commit_call_undoes_no_step() {
    // With one subscriber alone, tracing asks the thread that comes to a span first whether anybody
    // wants it: a test beside this one, which has none.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    for when in [When::Exit, When::Record] {
        let (stage, outside) = (Stage::new(), Gauge::default());
        let subscriber = tracing_subscriber::registry().with(Panicking(when));
        let panicked = tracing::subscriber::with_default(subscriber, || {
            catch_unwind(AssertUnwindSafe(|| {
                stage.executor.guarded(|tx| {
                    let send = || {
                        outside.set(1);
                        Ok(())
                    };
                    tx.step("send", send, |_| outside.set(0))?;
                    tx.commit_with(|_| Ok(()));
                    Ok(())
                })
            }))
        });
        assert!(panicked.is_err(), "{when:?}");
        assert_eq!(outside.value(), 1, "{when:?}");
    }
}
