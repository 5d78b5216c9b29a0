//! What the stores share whose server speaks HTTP.
//!
//! | file | what |
//! |---|---|
//! | `thread.rs` | the thread and the runtime of the connections |
//! | `pace.rs` | pauses that the server asks for |

mod pace;
mod thread;

pub(crate) use pace::Pace;
#[cfg(feature = "kubernetes")]
pub(crate) use thread::LONGEST;
pub(crate) use thread::Thread;
