//! What happens to the servers: killed, cut off, behind, restarted. Nothing of it in the calm.

use crate::dice::Dice;
use crate::state::State;

use super::{Ensemble, SERVERS};

/// Which faults of servers a world has. Each is off in half of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Menu {
    /// Clocks of servers are fast.
    pub(super) drifts: bool,
    kills: bool,
    cuts: bool,
    /// A follower falls behind.
    lags: bool,
    /// A follower is cut off right after it has acknowledged a write.
    aims: bool,
    /// A server sends its clients away.
    resets: bool,
}

#[derive(Clone, Copy)]
enum Strike {
    Kill,
    Cut,
    Lag,
    Reset,
}

impl Menu {
    pub(super) fn draw(dice: &mut Dice) -> Self {
        let mut is_on = || dice.falls(0.5);
        Self {
            drifts: is_on(),
            kills: is_on(),
            cuts: is_on(),
            lags: is_on(),
            aims: is_on(),
            resets: is_on(),
        }
    }

    fn strikes(self) -> Vec<Strike> {
        let all = [
            (self.kills, Strike::Kill),
            (self.cuts, Strike::Cut),
            (self.lags, Strike::Lag),
            (self.resets, Strike::Reset),
        ];
        let on = all.into_iter().filter(|(is_on, _)| *is_on);
        on.map(|(_, strike)| strike).collect()
    }
}

impl Ensemble {
    /// Which ways a cut goes, and for how long.
    fn draw_cut(&mut self) -> ([bool; 2], u64) {
        let ways = self
            .dice
            .pick(&[[true, true], [true, true], [true, false], [false, true]]);
        let longest = self.tick as f64 / 1e6 * (super::SYNC_LIMIT + 4) as f64;
        (ways, self.dice.ms(100.0, longest))
    }
}

impl State {
    /// One fault of a server, and the next one later.
    pub(super) fn strike_servers(&mut self) {
        let zookeeper = self.zookeeper();
        let pause = zookeeper.dice.ms(300.0, 5_000.0);
        let (server, strikes) = (zookeeper.dice.below(SERVERS), zookeeper.menu.strikes());
        let at_the_leader = zookeeper.dice.falls(0.3);
        let is_silent = zookeeper.dice.falls(0.5);
        let span = zookeeper.dice.ms(100.0, 4_000.0);
        let lag = zookeeper.dice.ms(0.0, 1_200.0);
        let (ways, cut) = zookeeper.draw_cut();
        let which = zookeeper.dice.below(strikes.len());
        let server = zookeeper.leader.filter(|_| at_the_leader).unwrap_or(server);
        if self.is_calm {
            return;
        }
        match strikes.get(which) {
            Some(Strike::Kill) => self.kill(server, is_silent, span),
            Some(Strike::Cut) => self.cut_server(server, ways, cut),
            Some(Strike::Lag) => self.zookeeper().servers[server].lag = lag,
            Some(Strike::Reset) => self.disconnect(|known| known.server == server, is_silent),
            None => {}
        }
        self.later(pause, Self::strike_servers);
    }

    fn kill(&mut self, server: usize, is_silent: bool, span: u64) {
        let now = self.now;
        if !self.zookeeper().servers[server].is_up {
            return;
        }
        self.log.note(now, "kill", [server as u64, span, 0]);
        if is_silent {
            self.disconnect(|known| known.server == server, true);
        }
        if self.zookeeper().leader == Some(server) {
            self.coverage.sometimes("the leader was killed");
            self.depose();
        }
        self.unlink(server, is_silent);
        self.zookeeper().servers[server].is_up = false;
        self.later(span, move |state| {
            state.zookeeper().servers[server].is_up = true
        });
    }

    fn cut_server(&mut self, server: usize, ways: [bool; 2], span: u64) {
        let now = self.now;
        self.log
            .note(now, "cut", [server as u64, span, u64::from(ways[0])]);
        self.zookeeper().servers[server].is_cut = ways;
        self.later(span, move |state| state.repair(server));
    }

    /// What was cut is connected anew: nothing of the time between arrives late.
    fn repair(&mut self, server: usize) {
        let zookeeper = self.zookeeper();
        zookeeper.servers[server].is_cut = [false; 2];
        if zookeeper.leader == Some(server) {
            (0..SERVERS).for_each(|server| self.unlink(server, false));
        } else {
            self.unlink(server, false);
        }
    }

    /// A write was acknowledged: the worst moment for its server.
    pub(super) fn aim_at(&mut self, server: usize) {
        let zookeeper = self.zookeeper();
        let hit = zookeeper.dice.falls(0.01);
        let (ways, span) = zookeeper.draw_cut();
        if hit && zookeeper.menu.aims && zookeeper.leader != Some(server) && !self.is_calm {
            self.coverage
                .sometimes("a follower was cut off right after its acknowledgement");
            self.cut_server(server, ways, span);
        }
    }

    /// Nothing fails any more.
    pub(crate) fn calm_zookeeper(&mut self) {
        for server in 0..SERVERS {
            let this = &mut self.zookeeper().servers[server];
            this.is_up = true;
            this.lag = 0;
            if this.is_cut != [false; 2] {
                self.repair(server);
            }
        }
    }
}
