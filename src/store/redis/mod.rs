//! [`RedisStore`]: locks in one Redis server, or in a cluster of them (feature `redis`).
//!
//! # Keys in the server
//!
//! With the prefix `app`, the lock `accounts/7` has these keys:
//!
//! | key | value | lives |
//! |---|---|---|
//! | `app:accounts/7` | `<owner token> <fencing token> <x or w>[<since>] <label> @<time>`; `leasehold:readers` for readers, `leasehold:next <owner token> <since>` while the next in line is called (`<since>`: the server's time in ms since when the key was never free, if others waited; `<time>`: about the server's time of the grant in ms, as the client that asked knew it, for people only), `leasehold:barred` for nobody, `leasehold:resting` for a rest | the longest TTL, or the rest |
//! | `app:accounts/7{app:accounts/7}:queue` | who waits, by arrival | the longest place, and an eighth of one |
//! | `app:accounts/7{app:accounts/7}:alone` | those of them that share with nobody, by arrival | the longest place, and an eighth of one |
//! | `app:accounts/7{app:accounts/7}:places` | until when the place of each is kept | the longest place, and an eighth of one |
//! | `app:accounts/7{app:accounts/7}:readers` | until when each reader holds, or is called | the longest TTL |
//! | `app:accounts/7{app:accounts/7}:grants` | token, label and `@<time>` of each reader, and `since` | the longest TTL |
//! | `app:accounts/7{app:accounts/7}:gap` | nothing: the lock is free for other clients | 25 or 200 ms |
//! | `app:accounts/7{app:accounts/7}:offers` | of the places that may be granted by message: for how long (ms), the counter of tokens that the claim knows, the name of the key with the counters, the mode, the label and `@<time>` | the longest place, and an eighth of one |
//! | `app:{leasehold}:tokens` | a hash: the counter of fencing tokens of all locks, and the version of the protocol; in a cluster one for each slot, `app:{<tag>}:leasehold:tokens` | a day after it was armed last |
//! | `app:{leasehold}:marker` | the version of the protocol, the server's incarnation (its run, and the id of its data), until when it grants nothing, `max_ttl`; in a cluster one for each slot, `app:{<tag>}:leasehold:marker` | always |
//! | `app:{<tag>}:leasehold:witness` | in a cluster: when the slot's node became what it is | always |
//!
//! The keys beside a lock depend on its whole name only. So the lock `b:x` under the prefix `a` is the lock `x` under `a:b`, for readers
//! and the queue too. Its tokens grow under each of the two prefixes, which have counters of their own.
//!
//! A lock that nobody holds or waits for has no key of its own: after a million locks only the counter and the marker remain.
//!
//! The lock is a plain key, so any client that does `SET app:accounts/7 <random> NX PX <ttl>` and compares before it deletes
//! takes turns with us, in any language. The key exists for as long as anybody holds, readers too, while the next in line is
//! called, and while the time of a revoked hold runs out. Such a client is kept out then, and we wait for its value. All keys of
//! a lock are in one slot, and all begin with the prefix, so an access list needs one pattern (`~app:* &app:*`). The commands that it
//! needs are in [the guide](crate::docs::stores).
//!
//! # How it answers
//!
//! Every operation is one script, executed by the server at one instant. A script that grants takes the next number of the
//! counter as the token. Where there is no counter, it grants nothing, and the client asks `arm.lua` to judge the server and to
//! arm a new counter, which begins with the larger of the last number and the server's time in microseconds. So tokens also
//! grow after the server lost all data (I8), as long as its clock was not set back. The counter's name has two parts:
//!
//! - *The incarnation* of the server: its run, and the id of its data, which is new with each promotion. The texts of the scripts
//!   that grant name it too. A server of version 7 or later never copies or stores the texts that it knows, so a server that does
//!   not know one may be another, which a proxy has put behind the same connection: then it compares itself with the text before
//!   it grants. One of version 6 does so each time.
//! - *The generation*, a time. **An attempt may be executed after its withdrawal** (a proxy delayed it). The withdrawal of a
//!   claim with an unanswered request removes the counter that the request named, so the late request is refused. All clients
//!   learn the next name from their next request. A claim that was withdrawn, or whose hold was found gone, is not granted
//!   again by the store that did so; another store with the same claim could be granted it, but no manager shares its claims.
//!
//! Clients of one prefix run one version of this protocol: a client of another version gets an error that names both, and never
//! a lock.
//!
//! - **A server that was restarted or flushed may have forgotten locks** that are still held: it grants nothing until the last
//!   of them has ended, [`max_ttl`](RedisOptions::max_ttl) later (`quarantine.rs`).
//! - **A connection that timed out once is given up**, since its queue holds commands of unknown fate
//!   (`connection/reconnecting.rs`).
//!
//! # Order of waiters
//!
//! Every claim that waits has a place from the first busy answer, for as long as it asks again in time, and for up to a day
//! between two attempts. The next attempt of any claim drops all dead waiters at once. A reader waits for those before it that
//! share with nobody; whoever shares with nobody waits for all before it. A plain claim asks `attempt.lua`, which is enough if
//! the lock is free, and then `enter.lua`, which gives it a place. One that waits already asks `enter.lua` at once, and so does
//! one of a manager that received a message about the lock in the last tenth of a second.
//!
//! **A lock with a queue is handed over** (`queue.lua`). Whoever ends a hold makes the lock's key name the first live place,
//! for a second at most (or its own TTL, if that is shorter), and wakes that claim only. So nobody gets in between, and a
//! release costs the same however many claims and processes wait: a manager listens on a channel of its own for each lock,
//! `app:accounts/7{app:accounts/7}:free:<the last 8 digits of its owner tokens>`. What everybody is to know, such as a lock that is free
//! and that nobody has a place for, is published on `app:accounts/7{app:accounts/7}:free`. The next claim asks, and only then holds,
//! under a new token. If the claim shares with nobody and its store listens, an exclusive hold that is released is granted to it at
//! once, for the same second: the message that wakes it then has the token, the server's time (us) and the counter, and is the
//! grant (`waiting/message.rs` says what it proves). Readers at the head of the queue are called together. A waiter that died is skipped if its place has
//! ended, and costs the others this time otherwise. A hold that ran out, or that another client ended, is handed over by
//! whoever asks first: until then a client that sees only the plain key may be before the queue.
//!
//! **Other clients get in through a gap.** Behind a queue that never empties, the key would never be free for a client that
//! polls with `SET NX`. When the key was not free for four seconds, the next release leaves it free for 25 ms, and about every
//! 32 seconds for 200 ms. Nobody of the queue is granted it in that time; the first place is woken, and asks again after it.
//! This takes about 1 % of the time of a lock that is always waited for. Readers that come while others read join them for thirty
//! seconds. Those that come then wait for ten seconds, as behind a writer: if the last one leaves, that opens a gap. If one stays, they
//! join it, until the lock was read for twice as long, and so on.
//!
//! A revocation takes a lock from any holder, other clients included: they lose it as we do, by finding another value. The
//! bar lasts for the rest of the revoked lease. A value that never expires is not barred, since nobody knows when its holder
//! ends.
//!
//! # What is not promised
//!
//! Behind Sentinel and in a cluster a master that was paused or cut off, and returns, grants for some time until it learns
//! that it was deposed. In a cluster it stops by itself when it has missed the others for the node time-out. Without
//! [`replicas`](RedisOptions::replicas) two may hold then; with it, only if as many replicas were cut off together with it.
//! The servers' own `min-replicas-to-write` bounds that too, except early ones of version 6, whose scripts ignore it (6.2.5 does,
//! 6.2.14 does not).
//!
//! A server's clock that steps forward ends leases early, for every store that counts by it. If it does so while a claim waits,
//! a lease that was granted by message may be longer than the key lasts, by as much as the message was late. With asynchronous replicas
//! and without [`replicas`](RedisOptions::replicas), a fail-over may lose the newest grants and their tokens: the
//! quarantine still keeps the next holder out for `max_ttl`, but the capability then reports
//! [`Fencing::None`](super::Fencing::None).

mod acquire;
mod arm;
mod attempt_route;
mod client;
mod cluster;
mod connection;
mod counters;
mod downgrade;
pub(crate) mod fault;
mod inspect;
mod marker_history;
mod member;
mod members;
mod names;
mod options;
mod quarantine;
mod renew;
mod replicated;
mod reply;
mod revoke;
mod script;
mod sentinel;
mod servers;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod simulation;
mod startup;
mod store;
mod url;
mod waiting;

pub(crate) use connection::{Failure, Target};
pub use options::RedisOptions;
pub(crate) use script::{Call, Script};
pub(crate) use servers::Servers;
pub use store::RedisStore;
