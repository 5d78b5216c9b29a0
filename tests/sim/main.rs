//! The whole system in a simulated world: nodes with clocks of their own, a network, a nemesis, and
//! judges.
//!
//! One number decides everything that happens in a world. `cargo test --test sim` runs a few; the
//! package `tests/proof/sim` runs many, some eight times as fast. A failure prints the line that
//! repeats its own. See `src/docs/proof.md`.

mod cell;
mod coverage;
mod dice;
mod end;
mod handlers;
mod history;
mod judge;
mod leases;
mod log;
mod nemesis;
mod net;
mod node;
mod options;
mod picture;
#[cfg(feature = "redis-worlds")]
mod redis;
mod register;
mod resource;
mod runs;
mod seen;
mod setup;
mod shards;
mod shrink;
mod state;
mod store;
mod svg;
mod thread;
mod truth;
mod turns;
mod work;
mod worker;
mod world;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Scope;

use coverage::Coverage;
use options::{Options, Store};
use setup::Setup;
use world::{Report, Wanted, simulate};

/// Beside so many worlds in memory there is one on each shipped store.
const ONE_SHIPPED: u64 = 40;
/// And beside so many there is one of shards, and one on a register.
const ONE_OF_SHARDS: u64 = 10;

/// What runs a world at full speed.
const COMMAND: &str =
    "cargo test --release --manifest-path tests/proof/sim/Cargo.toml --test sim --";

/// Of a thread that runs worlds, in bytes: without the optimizer each nested future is moved
/// through a frame of its own.
const STACK: usize = 32 << 20;

/// This many worlds or more must reach every cell of faults and states.
const REACHES_ALL: u64 = 10_000;

const DRAWN: Wanted = Wanted {
    lines: false,
    drawing: true,
    history: false,
};

const CORPUS: &str = include_str!("corpus.txt");

thread_local! {
    /// The first panic of this world that nobody planned.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

#[derive(Default)]
struct Sums {
    worlds: u64,
    virtual_ns: u64,
    steps: u64,
    grants: u64,
    runs: u64,
    twice: u64,
    coverage: Coverage,
    failures: Vec<(u64, String)>,
}

fn main() -> ExitCode {
    // Work panics on purpose here. A runtime swallows what its tasks panic with, so it is kept for
    // the judges.
    std::panic::set_hook(Box::new(|panic| {
        let text = panic.to_string();
        if !text.contains("as planned") {
            PANIC.with_borrow_mut(|first| first.get_or_insert(text).truncate(400));
        }
    }));
    let options = match Options::read(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    if let Some(path) = &options.history {
        return histories(&options, path);
    }
    match &options.replay {
        Some(setup) if options.shrinks => smaller(setup),
        Some(setup) => replay(setup),
        None => many(&options),
    }
}

fn smaller(setup: &Setup) -> ExitCode {
    let failure_of = |setup: &Setup| simulated(setup, Wanted::default()).failure;
    let Some(failure) = failure_of(setup) else {
        println!("nothing fails");
        return ExitCode::SUCCESS;
    };
    let small = shrink::shrink(setup, &failure, failure_of);
    println!("{failure}\n    {COMMAND} replay={}", small.replay());
    println!("    {}", drawn(&small));
    ExitCode::FAILURE
}

/// Worlds in which a stopped process does not notice the time, which no lock survives: the judges
/// must say so, or they are blind.
fn unsound_worlds_fail(store: Store) -> Result<String, String> {
    let mut last = String::new();
    for seed in 0..60 {
        let mut setup = store.world(Setup::draw(seed))?;
        setup.is_unsound = true;
        let failure = simulated(&setup, Wanted::default())
            .failure
            .unwrap_or_default();
        if ["O1 kept by the store", "O2 exclusion"].contains(&shrink::oracle(&failure)) {
            let drawing = simulated(&setup, DRAWN).drawing.unwrap_or_default();
            last = drawn(&setup);
            // In some worlds nobody runs anything under the hold.
            if shows_all(&drawing) {
                println!("{last}");
                return Ok(setup.replay());
            }
        }
    }
    if last.is_empty() {
        return Err("FAILED judges: nobody noticed that clocks stopped".to_owned());
    }
    Err(format!("FAILED drawing: {last} does not show it"))
}

/// Whether a drawing has every layer, and the hold that two processes believed in.
fn shows_all(drawing: &str) -> bool {
    let layers = ["fault", "kept", "believed", "uncovered", "run", "failure"];
    let is_there = |layer: &&str| drawing.contains(&format!("class='{layer}'"));
    layers.iter().all(is_there) && drawing.ends_with("</svg>\n")
}

/// Draws a world into a file beside what was compiled, and says where.
fn drawn(setup: &Setup) -> String {
    let Some(drawing) = simulated(setup, DRAWN).drawing else {
        return "no picture: the world ended with a panic".to_owned();
    };
    let mut name = format!("sim-{}", setup.replay().replace(['/', '=', ','], "-"));
    // A line of many events is longer than the name of a file may be.
    name.truncate(120);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name + ".svg");
    match std::fs::write(&path, drawing) {
        Ok(()) => format!("picture: {}", path.display()),
        Err(error) => format!("no picture: {error} path={}", path.display()),
    }
}

fn replay(setup: &Setup) -> ExitCode {
    let wanted = Wanted {
        lines: true,
        ..Wanted::default()
    };
    let report = simulated(setup, wanted);
    for line in &report.lines {
        println!("{line}");
    }
    println!(
        "digest {:016x}, {} steps, {} grants, {} runs",
        report.digest, report.steps, report.grants, report.runs
    );
    println!("{}", drawn(setup));
    match report.failure {
        None => ExitCode::SUCCESS,
        Some(failure) => {
            println!("FAILED {failure}");
            ExitCode::FAILURE
        }
    }
}

/// A panic that was not planned is a failure too, also one of a task.
fn simulated(setup: &Setup, wanted: Wanted) -> Report {
    PANIC.take();
    let run = AssertUnwindSafe(|| simulate(setup, wanted));
    let mut report = catch_unwind(run).unwrap_or_default();
    if let Some(text) = PANIC.take() {
        report.failure = Some(format!("a panic at {}", text.replace('\n', " ")));
    }
    report
}

fn on_deep_stack<'scope>(scope: &'scope Scope<'scope, '_>, work: impl FnOnce() + Send + 'scope) {
    let thread = std::thread::Builder::new().stack_size(STACK);
    let spawned = thread.spawn_scoped(scope, work);
    spawned.expect("the system has a thread");
}

/// Writes the histories of worlds for other judges; their own say nothing.
fn histories(options: &Options, path: &str) -> ExitCode {
    let store = options.only.unwrap_or(Store::Memory);
    let seeds = options.first..options.first + options.seeds;
    let setups: Vec<_> = match &options.replay {
        Some(setup) => vec![setup.clone()],
        None => seeds
            .map(|seed| {
                let setup = store.world(Setup::draw(seed));
                let mut setup = setup.expect("a store that is built in");
                setup.is_unsound = options.is_unsound;
                setup
            })
            .collect(),
    };
    let mut text = String::new();
    std::thread::scope(|scope| {
        on_deep_stack(scope, || {
            let wanted = Wanted {
                history: true,
                ..Wanted::default()
            };
            for setup in &setups {
                // A world that ends with a panic has no history.
                text += &simulated(setup, wanted).history.unwrap_or_default();
            }
        });
    });
    match std::fs::write(path, text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{path} cannot be written: {error}");
            ExitCode::FAILURE
        }
    }
}

fn many(options: &Options) -> ExitCode {
    let mut failed = false;
    let mut worlds = 0;
    let one_of = |many| Options {
        seeds: options.seeds / many,
        ..options.clone()
    };
    let (few, some) = (one_of(ONE_SHIPPED), one_of(ONE_OF_SHARDS));
    let series = match options.only {
        Some(store) => vec![(store, options)],
        None => vec![
            (Store::Memory, options),
            (Store::Shards, &some),
            (Store::Register, &some),
            (Store::ZooKeeper, &few),
            (Store::Redis, &few),
        ],
    };
    let is_built = |store: &Store| store.world(Setup::draw(0)).is_ok();
    let series = series.into_iter().filter(|(store, _)| is_built(store));
    for (store, options) in series {
        let sums = run(store, options);
        worlds += sums.worlds;
        failed |= print(store, &sums, options);
        if failed && options.stops {
            break;
        }
    }
    if failed {
        println!(
            "\ntest result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out"
        );
        return ExitCode::FAILURE;
    }
    println!(
        "\ntest result: ok. {} passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
        u8::from(worlds > 0)
    );
    ExitCode::SUCCESS
}

fn run(store: Store, options: &Options) -> Sums {
    let sums = Mutex::new(Sums::default());
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let corpus = corpus(store, options);
    std::thread::scope(|scope| {
        on_deep_stack(scope, || {
            for setup in &corpus {
                judge(setup, true, &sums);
            }
        });
        for _ in 0..options.threads {
            on_deep_stack(scope, || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= options.seeds || stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let seed = options.first + number;
                    let failed = one(store, seed, options, &sums);
                    if failed && options.stops {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    sums.into_inner().expect("no thread panicked")
}

/// The worlds that found something before.
fn corpus(store: Store, options: &Options) -> Vec<Setup> {
    if options.seeds == 0 {
        return Vec::new();
    }
    let lines = CORPUS.lines().filter(|line| !line.starts_with('#'));
    let replays = lines.map(|line| line.split(' ').next().unwrap_or_default());
    let is_its = |replay: &&str| {
        replay.contains("/zookeeper") == (store == Store::ZooKeeper)
            && replay.contains("/redis") == (store == Store::Redis)
            && replay.contains("/register") == (store == Store::Register)
            && replay.contains("/shards") == (store == Store::Shards)
    };
    let setup = |replay| options::replayed(replay).expect("a replay line comes first");
    replays.filter(is_its).map(setup).collect()
}

/// One seed; every hundredth, and each that fails, twice. True if it failed.
fn one(store: Store, seed: u64, options: &Options, sums: &Mutex<Sums>) -> bool {
    let is_checked = seed.is_multiple_of(options.check_every);
    let setup = store
        .world(Setup::draw(seed))
        .expect("a store that is built in");
    judge(&setup, is_checked, sums)
}

fn judge(setup: &Setup, is_checked: bool, sums: &Mutex<Sums>) -> bool {
    let report = simulated(setup, Wanted::default());
    let mut failure = report.failure.clone();
    let is_checked = is_checked || failure.is_some();
    if is_checked {
        let again = simulated(setup, Wanted::default());
        if (again.digest, &again.failure) != (report.digest, &report.failure) {
            failure = Some(format!(
                "not deterministic: {:016x} {:?} and then {:016x} {:?}",
                report.digest, report.failure, again.digest, again.failure
            ));
        }
    }
    let mut sums = sums.lock().expect("no thread panicked");
    sums.worlds += 1;
    sums.virtual_ns += report.virtual_ns;
    sums.steps += report.steps;
    sums.grants += report.grants;
    sums.runs += report.runs as u64;
    sums.twice += u64::from(is_checked);
    sums.coverage.add(&report.coverage);
    let failed = failure.is_some();
    if let Some(failure) = failure {
        if sums.failures.len() < 20 {
            println!("seed {}: {failure}", setup.seed);
            println!("    {COMMAND} replay={}", setup.replay());
            println!("    {}", drawn(setup));
        }
        sums.failures.push((setup.seed, failure));
    }
    failed
}

/// What a series came to. True if it failed.
fn print(store: Store, sums: &Sums, options: &Options) -> bool {
    let mut failed = !sums.failures.is_empty();
    if sums.worlds > 0 && !options.stops {
        match unsound_worlds_fail(store) {
            Ok(replay) => println!("stopped clocks were noticed: replay={replay}"),
            Err(why) => {
                println!("{why}");
                failed = true;
            }
        }
    }
    // So many worlds reach every cell.
    let (missing, enough) = match store {
        Store::Memory => (sums.coverage.missing(), REACHES_ALL),
        Store::ZooKeeper => (sums.coverage.missing_on_zookeeper(), REACHES_ALL / 10),
        Store::Redis => (sums.coverage.missing_on_redis(), REACHES_ALL / 10),
        Store::Register => (sums.coverage.missing_on_register(), REACHES_ALL / 10),
        Store::Shards => (sums.coverage.missing_on_shards(), REACHES_ALL / 10),
    };
    if options.shows_coverage {
        sums.coverage.print();
        println!("    cells that were not reached: {missing:?}");
    }
    if options.seeds >= enough && !missing.is_empty() {
        println!("FAILED coverage: no world reached {missing:?}");
        failed = true;
    }
    let hours = sums.virtual_ns as f64 / 3.6e12;
    let what = match store {
        Store::Memory => "simulation",
        Store::ZooKeeper => "on zookeeper",
        Store::Redis => "on redis",
        Store::Register => "on a register",
        Store::Shards => "of shards",
    };
    println!(
        "{what}: {} worlds, {hours:.1} virtual hours, {} steps, {} grants, {} runs, {} run twice with equal digests, {} failed",
        sums.worlds,
        sums.steps,
        sums.grants,
        sums.runs,
        sums.twice,
        sums.failures.len()
    );
    let mut names: Vec<_> = sums
        .failures
        .iter()
        .map(|(_, why)| shrink::oracle(why))
        .collect();
    names.sort_unstable();
    for group in names.chunk_by(|a, b| a == b) {
        println!("{:>9} {}", group.len(), group[0]);
    }
    failed
}
