//! Sixteen tasks in four processes take turns: by a fair lock, by a plain lock, by the scripts of a
//! fair lock alone, and by `BLPOP`.

use std::time::Duration;

use leasehold::Settings;

use crate::blocks::{Goal, alternate, quantile};
use crate::by_hand;
use crate::crew::{By, Crew, LIST, PROCESSES, Pauses, Section, TASKS};
use crate::fleet::requests;
use crate::server::RedisServer;

const WITH_PAUSES: Pauses = Pauses {
    inside: Duration::from_millis(2),
    outside: Duration::from_millis(5),
};
const WITHOUT: Pauses = Pauses {
    inside: Duration::ZERO,
    outside: Duration::ZERO,
};

/// All turns of one side.
#[derive(Default)]
struct Turns {
    turns: usize,
    requests: u64,
    transfers: Vec<f64>,
    waits: Vec<f64>,
    of_task: [usize; PROCESSES * TASKS],
    overlaps: usize,
}

impl Turns {
    /// Returns the turns in a second.
    fn add(&mut self, sections: &[Section], requests: u64) -> f64 {
        self.turns += sections.len();
        self.requests += requests;
        let millis = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e6;
        for pair in sections.windows(2) {
            self.overlaps += usize::from(pair[1].start < pair[0].end);
            self.transfers.push(millis(pair[0].end, pair[1].start));
        }
        for section in sections {
            self.waits.push(millis(section.asked, section.start));
            self.of_task[section.task] += 1;
        }
        let first = sections.iter().map(|section| section.asked).min();
        let last = sections.iter().map(|section| section.end).max();
        let span = millis(first.unwrap_or_default(), last.unwrap_or_default());
        sections.len() as f64 / (span / 1e3)
    }

    fn requests_each(&self) -> f64 {
        self.requests as f64 / self.turns as f64
    }

    fn slowest(&self) -> f64 {
        let least = self.of_task.iter().min().copied().unwrap_or_default();
        let most = self.of_task.iter().max().copied().unwrap_or_default();
        least as f64 / most as f64
    }

    fn print(&mut self, who: &str) {
        let [p50, p99] = [0.5, 0.99].map(|part| quantile(&mut self.transfers, part));
        let wait = quantile(&mut self.waits, 0.99);
        println!(
            "    {who}: {} turns, {:.2} requests each, transfer p50 {p50:.2} ms p99 {p99:.2} ms, wait p99 {wait:.0} ms, slowest task / fastest {:.2} ({:?} turns), overlaps {}",
            self.turns,
            self.requests_each(),
            self.slowest(),
            self.of_task,
            self.overlaps
        );
    }
}

fn contend(
    name: &str,
    server: &RedisServer,
    by: By,
    pauses: Pauses,
    span: Duration,
    goal: Goal,
) -> Turns {
    let _ = server.cli(&["DEL", LIST]);
    let _ = server.cli(&["RPUSH", LIST, "1"]);
    let mut ours = Crew::start(by, server.port(), pauses);
    let mut list = Crew::start(By::List, server.port(), pauses);
    let (mut of_ours, mut of_list) = (Turns::default(), Turns::default());
    let block = |crew: &mut Crew, turns: &mut Turns| {
        let before = requests(server);
        let sections = crew.contend(span);
        turns.add(&sections, requests(server) - before)
    };
    let blocks = alternate(
        || block(&mut list, &mut of_list),
        || block(&mut ours, &mut of_ours),
    );
    blocks.print(name, goal, "turns/s");
    of_list.print("BLPOP");
    of_ours.print("ours");
    of_ours
}

fn reached(what: &str, value: f64, goal: Goal) {
    println!("    {what}: {value:.2}{}", goal.verdict(value));
}

pub(crate) fn fair(servers: &[RedisServer]) {
    let span = Duration::from_millis(700);
    let name = "fair lock, 4 x 4, 2 ms inside, 5 ms outside / BLPOP";
    let goal = Goal::AtLeast(0.95);
    let mut ours = contend(name, &servers[0], By::Fair, WITH_PAUSES, span, goal);
    reached("requests", ours.requests_each(), Goal::AtMost(4.0));
    let transfer = quantile(&mut ours.transfers, 0.99);
    reached("transfer p99, ms", transfer, Goal::AtMost(1.0));
    reached("slowest / fastest task", ours.slowest(), Goal::AtLeast(0.9));
}

pub(crate) fn plain(servers: &[RedisServer]) {
    let span = Duration::from_millis(1_500);
    let name = "plain lock, 4 x 4, 2 ms inside, 5 ms outside / BLPOP";
    let mut ours = contend(name, &servers[0], By::Plain, WITH_PAUSES, span, Goal::None);
    reached("slowest / fastest task", ours.slowest(), Goal::AtLeast(0.5));
    let others = Settings::default().handoff_time * (PROCESSES as u32 - 1);
    let wait = quantile(&mut ours.waits, 0.99) / (others.as_secs_f64() * 1e3);
    let what = format!("wait p99 / {others:?}, the handoff time of the others");
    reached(&what, wait, Goal::AtMost(1.2));
}

pub(crate) fn closed(servers: &[RedisServer]) {
    let span = Duration::from_millis(500);
    let name = "fair lock, 4 x 4 without pauses / BLPOP";
    let goal = Goal::AtLeast(0.5);
    let _ = contend(name, &servers[0], By::Fair, WITHOUT, span, goal);
    by_hand::prepare(&servers[0]);
    let name = "its two scripts by hand / BLPOP";
    let _ = contend(name, &servers[0], By::Hand, WITHOUT, span, Goal::None);
}
