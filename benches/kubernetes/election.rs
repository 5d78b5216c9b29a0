//! [`Election`]: the leader and the standby of one elector, what they send, and how often a leader
//! is killed.

use std::process::Child;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use leasehold::clock::Clock;

use crate::candidate::Peer;
use crate::kubernetes::api_server::{ApiServer, NAMESPACE};
use crate::kubernetes::audit::Answered;
use crate::kubernetes::raw;

/// Leaders are killed at these times after the standby has begun to wait, so in all parts of the
/// time between two renewals.
const STEP: Duration = Duration::from_millis(700);
/// How often the Lease is read, which is how exact a recovery is measured.
const LOOK: Duration = Duration::from_millis(20);
/// Two minutes at least.
const LOOKS: u32 = 6_000;

pub(crate) struct Election {
    peer: Peer,
    leader: Candidate,
    standby: Candidate,
    recoveries: Vec<SignedDuration>,
}

struct Candidate {
    process: Child,
    user: String,
    name: String,
}

impl Candidate {
    fn start(server: &ApiServer, peer: Peer, user: &str, number: usize) -> Self {
        let name = format!("c{number}");
        Self {
            process: peer.start(server, user, &name),
            user: user.to_owned(),
            name,
        }
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Election {
    pub(crate) async fn begin(server: &ApiServer, peer: Peer) -> Self {
        let [first, second] = peer.users();
        let leader = Candidate::start(server, peer, &first, 1);
        led_by(server, peer, &leader.name).await;
        let standby = Candidate::start(server, peer, &second, 2);
        Self {
            peer,
            leader,
            standby,
            recoveries: Vec::new(),
        }
    }

    /// One row: requests of each candidate, scaled to an hour.
    pub(crate) fn print_requests(&self, all: &[Answered], begun: Timestamp, ended: Timestamp) {
        let hours = ended.duration_since(begun).as_secs_f64() / 3_600.0;
        let sent = |candidate: &Candidate| {
            let of_user = all.iter().filter(|one| one.user == candidate.user);
            let counted: Vec<_> = of_user
                .filter(|one| begun <= one.at && one.at < ended)
                .collect();
            let mut verbs: Vec<_> = counted.iter().map(|one| one.verb.as_str()).collect();
            verbs.sort_unstable();
            let each = verbs.chunk_by(|a, b| a == b);
            let each: Vec<_> = each
                .map(|same| format!("{} {:.0}", same[0], same.len() as f64 / hours))
                .collect();
            format!("{:.0} ({})", counted.len() as f64 / hours, each.join(", "))
        };
        let (name, leader, standby) = (self.peer.name(), &self.leader, &self.standby);
        println!("| {name} | {} | {} |", sent(leader), sent(standby));
    }

    pub(crate) async fn kill(&mut self, server: &ApiServer, times: usize) {
        let clock = Clock::system().unwrap();
        for time in 0..times {
            // It waits, and has seen a renewal.
            clock
                .sleep(Duration::from_secs(8) + STEP * u32::try_from(time).unwrap())
                .await;
            let killed = Timestamp::now();
            self.leader.kill();
            led_by(server, self.peer, &self.standby.name).await;
            self.recoveries
                .push(Timestamp::now().duration_since(killed));
            let user = self.leader.user.clone();
            let next = Candidate::start(server, self.peer, &user, time + 3);
            self.leader = std::mem::replace(&mut self.standby, next);
        }
    }

    pub(crate) fn print_recoveries(&mut self) {
        self.recoveries.sort_unstable();
        let all: Vec<_> = self
            .recoveries
            .iter()
            .map(SignedDuration::as_secs_f64)
            .collect();
        let (first, middle, last) = (all[0], all[all.len() / 2], all[all.len() - 1]);
        println!(
            "| {} | {first:.1} s | {middle:.1} s | {last:.1} s |",
            self.peer.name()
        );
    }
}

/// Waits until the Lease names this candidate. The administrator asks, whose requests do not count.
async fn led_by(server: &ApiServer, peer: Peer, name: &str) {
    let lease = peer.name();
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{lease}");
    let client = raw::client(&server.folder().join("kubeconfig")).await;
    let clock = Clock::system().unwrap();
    for _ in 0..LOOKS {
        let answer = raw::send(&client, "GET", &path, None).await;
        let holder = answer.and_then(|(_, lease)| {
            let holder = lease["spec"]["holderIdentity"].as_str();
            holder.map(str::to_owned)
        });
        if holder.is_some_and(|holder| holder.split('_').next() == Some(name)) {
            return;
        }
        clock.sleep(LOOK).await;
    }
    panic!("{lease}: {name} does not lead");
}
