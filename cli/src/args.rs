//! The command line. The help of each subcommand ends with an example.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use leasehold::run::TxnId;
use leasehold::semaphore::MAX_SLOTS;
use leasehold::store::Label;
use leasehold::{Error, FencingToken, Key};
use serde::{Deserialize, Serialize};

use crate::exit::{Failure, code};
use crate::fire::Fire;
use crate::run::Patience;
use crate::wait::Wait;

const AFTER_HELP: &str = "\
Exit codes:
  0    done; for `run`, the command's own status, or 128 and the signal that ended it
  1    the answer is no: the lock is free, a clause is broken, an update was lost,
       less is left of the lease than asked for
  64   bad usage                          65  the store holds data that is not ours
  69   the store cannot be reached        70  an error of the tool itself
  71   the system refused: no process, no terminal, no file, no room for the answer
  75   the lock was not acquired in time  76  the lease was lost, and the command was ended
  77   the store refuses this caller
  126  the command cannot be executed     127 the command was not found

Examples:
  leasehold run --lock nightly --wait 0 -- ./backup.sh
  leasehold run --store redis://127.0.0.1:6379 --once nightly@$(date -u +%FT%HZ) -- ./backup.sh";

fn after_long_help() -> String {
    let options = leasehold::connect::url_options();
    format!(
        "{AFTER_HELP}\n\nOptions of a store's URL, as in redis://host:6379/0?prefix=app&max_ttl=1m:\n{options}"
    )
}

/// Run a command only while you hold a lock, and inspect the locks of a store.
#[derive(Parser, Debug)]
#[command(name = "leasehold", version, propagate_version = true)]
#[command(after_help = AFTER_HELP, after_long_help = after_long_help())]
pub(crate) struct Cli {
    /// Print one JSON object a line, for scripts
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Print what the library does, not its warnings alone; -vv: in detail. RUST_LOG says it for
    /// each module
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Run(RunArgs),
    Leader(LeaderArgs),
    StepDown(StepDownArgs),
    Hold(HoldArgs),
    Check(CheckArgs),
    Revoke(RevokeArgs),
    Resolve(ResolveArgs),
    Inspect(InspectArgs),
    List(ListArgs),
    Conform(ConformArgs),
    Counter(CounterArgs),
    Sql(SqlArgs),
    Generate(GenerateArgs),
}

#[derive(Args, Debug)]
pub(crate) struct StoreArgs {
    /// Where the locks live: file:///path, redis://host:6379/0?prefix=app,
    /// postgres://host/database, zookeeper://host:2181/chroot, k8s: for the namespace of this pod,
    /// s3://bucket/prefix, az://container/prefix
    /// [default: file:, a directory of this user, for the processes of this machine]
    ///
    /// In the environment as LEASEHOLD_STORE rather than on the command line, other users of the
    /// machine do not see its password. A command that the tool runs does not get its store, and
    /// has no default: there, name one.
    #[arg(long, value_name = "URL", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) store: Option<String>,
}

/// The help of `--store` where there is no default, since these subcommands are of no use for the
/// locks of one machine.
const SHARED_STORE: &str = "\
Where the locks live: redis://host:6379/0?prefix=app, postgres://host/database, zookeeper://host:2181/chroot, \
k8s: for the namespace of this pod, s3://bucket/prefix, az://container/prefix. \
There is no default. In the environment as LEASEHOLD_STORE rather than on the command line, other users of the machine do not \
see its password";

/// The help of `--store` where the server of the data is asked.
const STORE_OF_DATA: &str = "\
Where the data is, as the URL of the fence: redis://host:6379/0?prefix=app, \
postgres://host/database, zookeeper://host:2181/chroot. The locks may be elsewhere. \
There is no default. In the environment as LEASEHOLD_STORE rather than on the command line, \
other users of the machine do not see its password";

/// The command, and what happens to it when its lease is lost.
#[derive(Args, Debug)]
pub(crate) struct CommandArgs {
    /// How long the store keeps the lock if this machine dies [default: 10s, or the store's own]
    #[arg(long, value_name = "SPAN", value_parser = humantime::parse_duration)]
    pub(crate) ttl: Option<Duration>,

    /// How long the command has between SIGTERM and SIGKILL when the lease is lost [default: 2s, or
    /// what the ttl has room for]
    ///
    /// A lease that is gone at once (the lock was taken away or deleted, or the machine slept)
    /// leaves no such time: the command gets SIGKILL and no SIGTERM.
    #[arg(long, value_name = "SPAN", value_parser = humantime::parse_duration)]
    pub(crate) kill_grace: Option<Duration>,

    /// Keep the lock until the processes that the command leaves behind have ended too
    #[arg(long)]
    pub(crate) wait_children: bool,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// Which lock to acquire, and how.
#[derive(Args, Debug)]
pub(crate) struct LockArgs {
    /// The lock; several are acquired all or none
    #[arg(short, long, value_name = "KEY", required = true)]
    pub(crate) lock: Vec<Key>,

    /// How long to wait for a busy lock: 10 (seconds), 1m30s, forever [default: 45s]; 0: try once
    #[arg(long, value_name = "SPAN", value_parser = Wait::parse)]
    pub(crate) wait: Option<Wait>,

    /// Hold it together with others that use --shared (a read lock)
    #[arg(long, conflicts_with_all = ["write", "slots"])]
    pub(crate) shared: bool,

    /// Exclude others that use --shared or --write (a write lock)
    #[arg(long, conflicts_with = "slots")]
    pub(crate) write: bool,

    /// Hold one of N slots, so that N holders run at once; at most 64
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SLOTS)))]
    pub(crate) slots: Option<u32>,

    /// Keep others out until this has passed since the lock was acquired, also when the command
    /// ends earlier
    ///
    /// For a job that timers of several hosts start, a little apart: the key rests in the store
    /// after the command has ended, and the tool exits at once. No rest follows a lease that was
    /// lost, or a tool that was killed. Not on ZooKeeper and Redlock.
    #[arg(long, value_name = "SPAN", value_parser = humantime::parse_duration, conflicts_with_all = ["shared", "write", "slots"])]
    pub(crate) at_least: Option<Duration>,

    /// Exit with CODE instead of 75 (not acquired) and 76 (lost)
    #[arg(short = 'E', long, value_name = "CODE")]
    pub(crate) exit_code: Option<u8>,

    /// Who holds the lock, for people [default: host:process id]
    #[arg(long, value_name = "TEXT", value_parser = Label::parse)]
    pub(crate) label: Option<Label>,

    /// What the lock is held for, for people: "nightly backup"; at most 100 characters
    #[arg(long, value_name = "TEXT", value_parser = purpose)]
    pub(crate) purpose: Option<String>,
}

fn purpose(text: &str) -> Result<String, Error> {
    Label::of_this_process().with_purpose(text)?;
    Ok(text.to_owned())
}

impl LockArgs {
    /// The wait that was given.
    pub(crate) fn within(&self) -> Option<Duration> {
        self.wait.map(Wait::span)
    }

    /// How long to try to reach the store.
    pub(crate) fn patience(&self) -> Patience {
        self.wait.map_or(Patience::AsTheWait, Wait::patience)
    }

    /// With the exit code that was asked for, if the lock was not acquired.
    pub(crate) fn exit_with(&self, failure: Failure) -> Failure {
        match self.exit_code {
            Some(code) if failure.code == code::NOT_ACQUIRED => Failure { code, ..failure },
            _ => failure,
        }
    }

    /// Refuses options that do not go together.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let is_of_one =
            self.shared || self.write || self.slots.is_some() || self.at_least.is_some();
        if self.lock.len() > 1 && is_of_one {
            return Err(Failure::usage(
                "several --lock are exclusive; omit --shared, --write, --slots and --at-least, or name one lock",
            ));
        }
        Ok(())
    }
}

/// Hold a lock without a command
///
/// Prints the fencing token when the lock is held, and holds it until stdin closes or a signal
/// arrives. Exits with 0 after the end of stdin if the lease is live then, and with 76 as soon as
/// it is lost.
#[derive(Args, Debug)]
#[command(after_help = "\
Example: a shell script that works under a lock
  coproc leasehold hold --lock nightly
  read -u ${COPROC[0]} token && ./backup.sh --token $token
  exec {COPROC[1]}>&-")]
pub(crate) struct HoldArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    #[command(flatten)]
    pub(crate) lock: LockArgs,

    /// How long the store keeps the lock if this machine dies [default: 10s, or the store's own]
    #[arg(long, value_name = "SPAN", value_parser = humantime::parse_duration)]
    pub(crate) ttl: Option<Duration>,
}

/// Hold a lock while a command runs
///
/// The command gets LEASEHOLD_KEY, LEASEHOLD_TOKEN (the fencing token) and LEASEHOLD_LEASE (the
/// file of `leasehold check`) in its environment, a process group of its own, and these signals if
/// the tool receives them: HUP, INT, QUIT, TERM, USR1, USR2, ALRM, VTALRM, PROF, XCPU, CONT, WINCH,
/// and on Linux IO and PWR. The group is in the foreground of the terminal if the tool was there
/// alone, not as part of a pipeline. The command cannot be suspended from the terminal, because its
/// lease would run out. It is started only when enough is left of the lease. When the lease cannot
/// be renewed, the whole group gets SIGTERM, so early that SIGKILL, --kill-grace later, falls
/// before the deadline. A lease that ends at once ends the command by SIGKILL alone.
///
/// The tool exits as the command did: with its status, or by the same signal (as the first process
/// of a container with 128 and its number). Signals that are ignored when the tool starts (nohup)
/// stay ignored, except SIGPIPE. None is blocked in the command.
///
/// If the tool itself is killed, by SIGKILL or another signal that it does not forward, the
/// command's own process is killed too (Linux), but not what it has started. A command that runs as
/// another user (sudo, setuid) cannot be signalled: if its lease is lost, the tool reports it and
/// exits with 76, and the command runs on without the lock. Write "sudo leasehold run ... --
/// command" instead of "leasehold run ... -- sudo command".
#[derive(Args, Debug)]
#[command(after_help = "\
Example: a job that must not run twice at a time on this machine
  leasehold run --lock nightly --wait 0s -- ./backup.sh

Example: a nightly job on three hosts, of which one runs it, once
  leasehold run --store redis://127.0.0.1:6379 --once nightly@$(date -u +%FT%HZ) -- ./backup.sh")]
#[command(mut_arg("lock", |lock| lock.required(false).required_unless_present("once")))]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    #[command(flatten)]
    pub(crate) lock: LockArgs,

    #[command(flatten)]
    pub(crate) once: OnceArgs,

    #[command(flatten)]
    pub(crate) command: CommandArgs,
}

/// A job of which each fire time is done once.
#[derive(Args, Debug)]
pub(crate) struct OnceArgs {
    /// Run the job NAME of the time TIME unless a host has done it; instead of --lock. TIME is UTC:
    /// 2026-11-26T03:00Z
    ///
    /// The time is what the schedule says, the same on every host, to the hour, the minute or the
    /// second. The tool exits with 0 if the job is done already, or with CODE of -E, and runs no
    /// command. While another host runs it, the tool waits (--wait). A command that fails, that a
    /// signal ends, or whose lease is lost, is not done. There is no default store: name one that
    /// all hosts share. Not on ZooKeeper and Redlock.
    #[arg(long, value_name = "NAME@TIME", value_parser = Fire::parse, conflicts_with_all = ["lock", "shared", "write", "slots", "at_least"])]
    pub(crate) once: Option<Fire>,

    /// For how long the job of that time stays done, from its end [default: 1d]; at most 30d
    #[arg(long, value_name = "SPAN", value_parser = humantime::parse_duration)]
    pub(crate) keep: Option<Duration>,

    /// What becomes of a job whose host died [default: retry]
    #[arg(long, value_name = "HOW")]
    pub(crate) on_death: Option<OnDeath>,

    /// A command that ran and exits with another code than 0 is done too
    #[arg(long)]
    pub(crate) failure_counts: bool,
}

impl OnceArgs {
    /// Refuses options without their job. Where `--lock` is given, `requires` of clap does not,
    /// because `--once` conflicts with it.
    ///
    /// A job is for many hosts. Under cron the environment has no LEASEHOLD_STORE: each host would
    /// take its own files, and run the job.
    pub(crate) fn check(&self, store: &StoreArgs) -> Result<(), Failure> {
        if self.once.is_some() && store.given()?.is_none() {
            return Err(Failure::usage(
                "--once needs a store that all hosts share: \
                 --store URL or LEASEHOLD_STORE (file: for one machine)",
            ));
        }
        let is_of_job = self.keep.is_some() || self.on_death.is_some() || self.failure_counts;
        if is_of_job && self.once.is_none() {
            return Err(Failure::usage(
                "--keep, --on-death and --failure-counts belong to a job; name it with --once instead of --lock",
            ));
        }
        Ok(())
    }
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnDeath {
    /// Another host runs it again: at least once
    Retry,
    /// No host runs it again, also if it failed: at most once
    Skip,
}

/// Run a command on the one host that leads
///
/// Campaigns until it leads, and runs the command. When the command ends, the tool resigns and
/// exits as the command did. When the leadership is lost, the command is ended as by `run`, and the
/// tool campaigns for the next term. After SIGTERM, SIGINT or SIGQUIT it starts no other term.
#[derive(Args, Debug)]
#[command(after_help = "\
Example: on every host
  leasehold leader --store redis://127.0.0.1:6379 --election scheduler --label $(hostname) -- ./scheduler")]
#[command(mut_arg("store", |store| store.help(SHARED_STORE).long_help(SHARED_STORE)))]
pub(crate) struct LeaderArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The election's name: a key, as of a lock
    #[arg(long, value_name = "NAME")]
    pub(crate) election: Key,

    /// The candidate's name, for people
    #[arg(long, value_name = "ID", value_parser = Label::parse)]
    pub(crate) label: Label,

    /// How much this candidate is preferred: a leader leaves when a better one waits
    #[arg(long, value_name = "0-255", default_value_t = 0)]
    pub(crate) prefer: u8,

    #[command(flatten)]
    pub(crate) command: CommandArgs,
}

/// Ask a leader to leave, so that the next candidate leads
///
/// The leader's command gets SIGTERM, and SIGKILL after its --kill-grace. Then the next in the
/// queue leads, without a gap longer than a handover. The same leader campaigns again after a TTL.
/// Exits with 1 if nobody leads, and with 75 if the leader does not leave in time.
#[derive(Args, Debug)]
#[command(after_help = "\
Example: before a machine goes down
  leasehold step-down --store redis://127.0.0.1:6379 --election scheduler")]
#[command(mut_arg("store", |store| store.help(SHARED_STORE).long_help(SHARED_STORE)))]
pub(crate) struct StepDownArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The election's name
    #[arg(long, value_name = "NAME")]
    pub(crate) election: Key,
}

/// Check the lease of the command that calls this
///
/// For scripts and programs in any language that run under `leasehold run` or `leasehold leader`:
/// call it before a step that needs the lock, and again before the step that makes the result
/// permanent. It reads the file that LEASEHOLD_LEASE names. Exits with 0 if the lease is live, with
/// 1 if it is live but less than --remaining is left, and with 76 if it is over. Once it has
/// reported 76, it always does, and the tool ends the command. Between a check and the step after
/// it any time may pass: only a resource that compares LEASEHOLD_TOKEN excludes a late step. Linux
/// only.
#[derive(Args, Debug)]
#[command(after_help = "\
Example: in a script that was started by leasehold run
  leasehold check --remaining 2s && mv new.db current.db")]
pub(crate) struct CheckArgs {
    /// How much of the lease must be left
    #[arg(long, value_name = "SPAN", default_value = "0s", value_parser = humantime::parse_duration)]
    pub(crate) remaining: Duration,
}

/// Take a lock away from a holder that hangs
///
/// The next holder enters when the old holder's lease is over, even if the old holder cannot be
/// reached. Exits with 1 if nobody held the lock.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  leasehold revoke --store redis://127.0.0.1:6379 nightly")]
pub(crate) struct RevokeArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The lock
    pub(crate) key: Key,

    /// Free it at once, and end a rest: two holders may act until the old one notices
    #[arg(long)]
    pub(crate) now: bool,
}

/// Find out what became of a commit in doubt
///
/// Claims the name of the commit, so that a copy of it that arrives later is refused. Exits with 0
/// if it is committed, and with 1 if it is not and never will be.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  leasehold resolve --store postgres://app@127.0.0.1/bank accounts/7 5f0c1b2a9d3e4f60718293a4b5c6d7e8 --token 1763820000000000")]
#[command(mut_arg("store", |store| store.help(STORE_OF_DATA).long_help(STORE_OF_DATA)))]
pub(crate) struct ResolveArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The lock; of a run under several locks all of them, with commas between them
    #[arg(value_name = "KEY", required = true, value_delimiter = ',')]
    pub(crate) keys: Vec<Key>,

    /// The name of the commit, as the outcome or the log reports it: txn_id=...
    #[arg(value_name = "TXN")]
    pub(crate) txn_id: TxnId,

    /// The fencing token of the run; under several locks one for each, in the same order
    #[arg(long = "token", value_name = "TOKEN", required = true, value_delimiter = ',', value_parser = crate::resolve::token)]
    pub(crate) tokens: Vec<FencingToken>,
}

/// Show who holds a lock
///
/// Exits with 1 if it is free.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  leasehold inspect --store redis://127.0.0.1:6379 nightly")]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The lock
    pub(crate) key: Key,
}

/// List the locks that are held
#[derive(Args, Debug)]
#[command(after_help = "\
Example: how many orders are being worked on
  leasehold list --store redis://127.0.0.1:6379 --json orders/ | jq 'length'")]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// Only keys that begin with this
    #[arg(default_value = "")]
    pub(crate) prefix: String,

    /// Look again each second, and show who waits; in a terminal the screen is drawn anew
    #[arg(long)]
    pub(crate) watch: bool,
}

/// Check that a store keeps the contract
///
/// Runs the behaviour suite, with keys of its own. Exits with 1 if a clause is broken.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  leasehold conform --store redis://127.0.0.1:6379/0?prefix=conform")]
#[command(mut_arg("store", |store| store.help(SHARED_STORE).long_help(SHARED_STORE)))]
pub(crate) struct ConformArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The TTL that the cases ask for [default: 1s, or the store's own]
    #[arg(long, value_name = "SPAN", value_parser = humantime::parse_duration)]
    pub(crate) ttl: Option<Duration>,
}

/// Count with many processes under one lock, and show that no update is lost
///
/// Starts processes of itself. Each round takes the lock, reads a counter that nothing else
/// protects, adds one and writes it back. Exits with 1 if a single update was lost.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  leasehold counter --store redis://127.0.0.1:6379 --lock try --processes 3 --rounds 100
  leasehold counter --store redis://127.0.0.1:6379 --processes 4 --tasks 8 --for 60s
  leasehold counter --store redis://127.0.0.1:6379 --rounds 1000 --wait 5s --nemesis pause")]
pub(crate) struct CounterArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The lock
    #[arg(long, value_name = "KEY", default_value = "leasehold/counter")]
    pub(crate) lock: Key,

    /// How many processes contend
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SLOTS)))]
    pub(crate) processes: u32,

    /// How many tasks contend in each process
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) tasks: u32,

    /// How many rounds each task takes [default: 100]
    #[arg(long, value_name = "N", conflicts_with = "time", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: Option<u32>,

    /// How long each task takes rounds, instead of --rounds
    #[arg(long = "for", id = "time", value_name = "SPAN", value_parser = humantime::parse_duration)]
    pub(crate) time: Option<Duration>,

    /// How long the store keeps a lock whose holder died [default: 10s, or the store's own]
    #[arg(long, value_name = "SPAN", value_parser = humantime::parse_duration)]
    pub(crate) ttl: Option<Duration>,

    /// How long each round waits for the lock
    #[arg(long, value_name = "SPAN", default_value = "3s", value_parser = humantime::parse_duration)]
    pub(crate) wait: Duration,

    /// How long each round holds the lock between its read and its write
    #[arg(long, value_name = "SPAN", default_value = "0ms", value_parser = humantime::parse_duration)]
    pub(crate) hold: Duration,

    /// How the lock is held
    #[arg(long, value_name = "MODE", default_value = "exclusive")]
    pub(crate) mode: CounterMode,

    /// Stop and continue the processes, each for longer than its ttl, while a fence protects the
    /// counter
    ///
    /// The counter is then a key in the Redis server, a row in the PostgreSQL database, or a node
    /// in the ZooKeeper ensemble, of the lock. A store without a fence is refused. The ttl is 1s
    /// unless it is given; on ZooKeeper it is the session time-out.
    #[arg(long, value_name = "HOW")]
    pub(crate) nemesis: Option<NemesisKind>,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NemesisKind {
    Pause,
}

/// Print the tables and functions that the owner of a database creates
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  leasehold sql postgres | psql -v ON_ERROR_STOP=1 \"$OWNER_URL\"
  psql \"$OWNER_URL\" -c 'GRANT USAGE ON SCHEMA leasehold TO app'")]
pub(crate) struct SqlArgs {
    /// For which database: postgres has the locks and the fence, sqlite the fence alone
    pub(crate) database: Database,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Database {
    Postgres,
    Sqlite,
}

/// Write shell completions or manual pages
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  leasehold generate bash > /etc/bash_completion.d/leasehold
  leasehold generate man --dir /usr/local/share/man/man1")]
pub(crate) struct GenerateArgs {
    /// For which shell, or `man`
    pub(crate) what: What,

    /// Where the manual pages go, one for each subcommand [default: the first page alone, to
    /// stdout]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    Bash,
    Elvish,
    Fish,
    Powershell,
    Zsh,
    Man,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum CounterMode {
    /// As a plain lock
    Exclusive,
    /// First come, first served
    Fair,
    /// As the writer of a read-write lock
    Write,
}
