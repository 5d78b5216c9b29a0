//! What is judged when everything has ended: outcomes, leaks, liveness, observers.

use futures_util::FutureExt;
use leasehold::store::Store;

use crate::setup::{CALM, STORM};
use crate::state::State;
use crate::world::World;

impl World {
    pub(crate) fn judge_the_end(&mut self) {
        let leftovers: Vec<_> = (self.nodes.iter().enumerate())
            .map(|(number, node)| (number, node.is_shut(), node.leftovers(), node.cells()))
            .collect();
        let mut state = self.shared.lock();
        state.judge_runs();
        for (node, is_shut, (tasks, timer), cells) in leftovers {
            if !is_shut {
                state.fail("O10 leaks", || {
                    format!("the manager of node {node} was never shut down")
                });
            }
            if tasks > 0 || timer.is_some() {
                state.fail("O10 leaks", || {
                    format!("node {node} has {tasks} tasks and the timer {timer:?} left")
                });
            }
            state.judge_cells(node, &cells);
        }
        state.judge_servers();
        state.judge_liveness();
        state.judge_observers();
    }
}

impl State {
    /// O4: a cell shows what committed runs wrote, and nothing else.
    fn judge_cells(&mut self, node: usize, cells: &[(leasehold::Key, u64)]) {
        use crate::runs::End;
        for (key, value) in cells {
            let shown = |end: &End| {
                matches!(
                    end,
                    End::Committed(_) | End::CommittedLate { published: true }
                )
            };
            let runs = self.runs.all.iter().filter(|run| {
                run.node == node
                    && run.life == self.lives[node]
                    && run.wrote_cell.as_ref() == Some(key)
                    && run.end.as_ref().is_some_and(shown)
            });
            let due = runs.count() as u64;
            if due != *value {
                self.fail("O4 cells", || format!("the cell of {key} at node {node} shows {value}, and {due} runs committed it"));
            }
        }
    }

    fn judge_servers(&mut self) {
        let left: Vec<_> = (self.truth.servers.iter())
            .map(|server| {
                server
                    .store
                    .list("")
                    .now_or_never()
                    .expect("in memory")
                    .expect("in memory")
            })
            .collect();
        #[cfg(feature = "zookeeper")]
        if let Some(left) = self
            .ensemble
            .as_ref()
            .and_then(|zookeeper| zookeeper.leftovers())
        {
            self.fail("O10 leaks", || format!("the ensemble still has {left}"));
        }
        #[cfg(feature = "redis-worlds")]
        if let Some(left) = self
            .redis
            .as_ref()
            .and_then(|redis| redis.leftovers(self.now))
        {
            self.fail("O10 leaks", || format!("the server still has {left}"));
        }
        for (server, locks) in left.into_iter().enumerate() {
            if !locks.is_empty() {
                self.fail("O10 leaks", || {
                    format!("server {server} still keeps {locks:?}")
                });
            }
        }
        let lives = self.lives.iter().copied().enumerate();
        let left = lives.filter_map(|life| self.permits.get(&life));
        let permits: i64 = left.sum();
        if permits != 0 {
            self.fail("O10 leaks", || {
                format!("{permits} permits of handlers were not given back")
            });
        }
    }

    /// A worker got what it had asked for, perhaps while things still failed.
    pub(crate) fn held_in_calm(&mut self, node: usize, worker: usize) {
        if self.is_calm {
            let count = self.calm_holds.entry((node, worker)).or_default();
            *count = (self.now, count.1 + 1);
        }
    }

    /// O11: when nothing fails any more, locks are held again and again; from a single store, by
    /// every worker. A quorum and a register have no queue, and promise no caller its turn.
    fn judge_liveness(&mut self) {
        if self.setup.shards > 0 {
            return;
        }
        let (nodes, workers) = (self.setup.nodes, self.setup.workers);
        let is_alone = self.setup.members == 1 && !self.setup.is_register;
        let mut all = 0;
        for (node, worker) in (0..nodes).flat_map(|n| (0..workers).map(move |w| (n, w))) {
            let known = self.calm_holds.get(&(node, worker)).copied();
            let (last, count) = known.unwrap_or_default();
            all += count;
            // A hold that was planned in the storm may begin after a stall, and take half of the
            // calm.
            let had_time = self.stalled[node] < STORM + CALM / 4;
            if count == 0 && is_alone && had_time {
                let doing = self.doing.get(&(node, worker)).copied();
                self.fail("O11 liveness", || {
                    format!("worker {worker} of node {node} held nothing while nothing failed: {doing:?}, last at {last}")
                });
            }
        }
        if all < 10 {
            self.fail("O11 liveness", || {
                format!("{all} holds while nothing failed")
            });
        }
    }

    /// O12: observers saw one end for each run that was entered.
    fn judge_observers(&mut self) {
        let mut entered = std::mem::take(&mut self.runs.entered);
        let mut ended = std::mem::take(&mut self.runs.ended);
        entered.sort_unstable();
        ended.sort_unstable();
        if ended.windows(2).any(|two| two[0] == two[1]) {
            self.fail("O12 observers", || "a run ended twice".to_owned());
        }
        let crashed = self.lives.iter().any(|&life| life > 1);
        let is_missing = |run: &(usize, u64)| ended.binary_search(run).is_err();
        if !crashed && let Some(run) = entered.iter().find(|run| is_missing(run)) {
            let run = *run;
            self.fail("O12 observers", || {
                format!("the run {run:?} was entered and never ended")
            });
        }
        if !crashed && self.runs.held != self.runs.released && self.setup.observed {
            let (held, released) = (self.runs.held, self.runs.released);
            self.fail("O12 observers", || {
                format!("{held} holds began and {released} ended")
            });
        }
    }
}
