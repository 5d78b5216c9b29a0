//! What comes out of a commit call: [`CommitAnswer`], and [`CommitValue`] for the value in it.

use std::any::Any;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::executor::outcome::Cause;
use crate::model::commit::{Applied, EffectError};
use crate::model::error::BoxError;

/// What a commit call may return, apart from a [`EffectError`]: `()`, [`Applied`], or
/// `Result<Applied<V>, R>`, whose error is the caller's own decision against the commit, with which
/// nothing was applied.
pub trait CommitAnswer {
    /// What the commit computed.
    type Value;
    /// Why the caller decided against the commit.
    type Refusal;

    /// The answer as a result.
    ///
    /// # Errors
    ///
    /// The caller's own decision against the commit.
    fn judged(self) -> Result<Applied<Self::Value>, Self::Refusal>;
}

impl CommitAnswer for () {
    type Value = ();
    type Refusal = Infallible;

    fn judged(self) -> Result<Applied, Infallible> {
        Ok(Applied::plain())
    }
}

impl<V> CommitAnswer for Applied<V> {
    type Value = V;
    type Refusal = Infallible;

    fn judged(self) -> Result<Self, Infallible> {
        Ok(self)
    }
}

impl<V, R> CommitAnswer for Result<Applied<V>, R> {
    type Value = V;
    type Refusal = R;

    fn judged(self) -> Self {
        self
    }
}

/// The value of a commit call that was set by [`commit_with`](super::Tx::commit_with); it is there
/// once the commit is applied.
///
/// Return it from the work, and [`Committed`](crate::Committed) contains it.
pub struct CommitValue<V>(Arc<Mutex<Option<V>>>);

impl<V> CommitValue<V> {
    pub(crate) fn empty() -> Self {
        Self(Arc::default())
    }

    /// Takes the value; `None` before the commit is known to be applied, and after it was taken.
    #[must_use]
    pub fn take(&self) -> Option<V> {
        self.0.lock().take()
    }

    /// Another handle to the same value, for the commit call.
    pub(crate) fn shared(&self) -> Self {
        Self(Arc::clone(&self.0))
    }

    /// Keeps the value of an answer, and returns the rest of it.
    pub(crate) fn keep<A>(&self, answer: Result<A, EffectError>) -> Answer
    where
        A: CommitAnswer<Value = V>,
        A::Refusal: Into<BoxError> + Send + 'static,
    {
        Ok(match answer?.judged() {
            Ok(applied) => {
                let (applied, value) = applied.split();
                *self.0.lock() = Some(value);
                Ok(applied)
            }
            Err(why) => Err(Declined::new(why)),
        })
    }
}

impl<V> fmt::Debug for CommitValue<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommitValue")
            .field("is_there", &self.0.lock().is_some())
            .finish()
    }
}

/// What a commit call answered, without its value.
pub(crate) type Answer = Result<Result<Applied, Declined>, EffectError>;

/// The caller's own decision against the commit, of any type.
#[derive(Debug)]
pub(crate) struct Declined {
    why: Box<dyn Any + Send>,
    boxed: fn(Box<dyn Any + Send>) -> BoxError,
}

impl Declined {
    fn new<R: Into<BoxError> + Send + 'static>(why: R) -> Self {
        Self {
            why: Box::new(why),
            boxed: |why| match why.downcast::<R>() {
                Ok(why) => (*why).into(),
                Err(_) => "the commit was declined".into(),
            },
        }
    }

    /// As an error of the work, if it has that type.
    pub(crate) fn into_cause<E: 'static>(self) -> Cause<E> {
        let why = match self.why.downcast::<E>() {
            Ok(why) => return Cause::Failed(*why),
            Err(why) => (self.boxed)(why),
        };
        let why: Box<dyn Any + Send> = Box::new(why);
        match why.downcast::<E>() {
            Ok(why) => Cause::Failed(*why),
            Err(why) => Cause::NotApplied(match why.downcast::<BoxError>() {
                Ok(why) => *why,
                Err(_) => "the commit was declined".into(),
            }),
        }
    }
}
