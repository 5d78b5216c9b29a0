//! The lock manager: it holds locks and moves their leases forward on proven heartbeats.
//!
//! ```text
//!  user ───► call ───► caller ───► queue ───────────────────────► store
//!                         │        └─ desk: who asks, waits, is    ▲
//!                         ▼           called or handed it (pure)   │
//!                       hold ──► book ◄── task ────────────────────┘
//!                         │        │      own thread, own runtime
//!                         │        └─ engine: when to renew, retry,
//!                         │           give up (pure)
//!                         └─► lease: the word that every run reads
//! ```
//!
//! A manager runs on a thread and a runtime of its own, so that no busy worker, blocking closure or
//! starved runtime can delay a heartbeat. Callers ask the store from their own task. Only what they
//! leave behind (a dropped guard, a claim whose result is unknown) goes through the manager's
//! thread.
//!
//! The files, from the bottom up; each imports only those before it:
//!
//! | files | what |
//! |---|---|
//! | `wheel`, `engine` | when each hold is due (pure); `probe` measures it, `simulator` tests it |
//! | `desk` | who may ask for a key, who waits, who is called or handed it next (pure) |
//! | `lifetime`, `wish`, `detached_work`, `queue`, `hold`, `message` | the data: a request, a turn, a hold, a message to the task |
//! | `hooks`, `timer_lag`, `readiness`, `contact`, `failures`, `book`, `runtime`, `context`, `handle` | what a manager's parts have in common |
//! | `store_requests`, `handoff`, `end` | the one end of a hold (I5) |
//! | `own_runs`, `sink`, `guard`, `downgrade`, `joint` | what a holder has |
//! | `open_claim`, `caller`, `claim`, `call` | how a caller gets a hold |
//! | `batch`, `task`, `supervision` | what the manager's thread does |
//! | `builder`, `lock_manager`, `health`, `operators` | the face |

mod lock_manager;

mod batch;
mod book;
mod builder;
mod call;
mod caller;
mod claim;
mod contact;
mod context;
mod desk;
mod detached_work;
mod downgrade;
mod end;
mod engine;
mod failures;
mod guard;
mod handle;
mod handoff;
mod health;
mod hold;
mod hooks;
mod joint;
mod lifetime;
mod message;
mod open_claim;
mod operators;
mod own_runs;
#[cfg(feature = "testing")]
mod probe;
mod queue;
mod readiness;
mod runtime;
#[cfg(test)]
mod simulator;
mod sink;
mod store_requests;
mod supervision;
mod task;
mod timer_lag;
mod wanted;
mod wheel;
mod wish;

pub use builder::LockManagerBuilder;
pub(crate) use call::acquire;
pub use guard::LockGuard;
pub(crate) use handle::Handle;
pub use health::{Health, Held};
pub(crate) use joint::joint_executor;
pub use lock_manager::LockManager;
#[cfg(feature = "testing")]
pub use probe::Renewals;
pub(crate) use runtime::in_runtime;
pub(crate) use wish::{HoldTimes, Rest, Wish};
