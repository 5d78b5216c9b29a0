"""ZooKeeper's rule of I3: a lease counts from an earlier proven write than the newest.

A server of an ensemble answers a write once the quorum has it. The leader does not learn from it
that the session lives. It learns that from the server's next answer to a ping. So the leader may
still count from an *older* contact, and end the session sooner than the client expects.

The rule: write *m* was acknowledged a tick or more before write *n* was sent, and *n* was
acknowledged. Then the leader counts from the sending of *m*, or from later.

One clock here: what clocks may differ by is in the formula of I1, which `leases.py` has. All
that is used of an ensemble: a server that forwards a write has answered a ping within the last
tick, and the leader reads what a server sends in its order.
"""

from z3 import And, Function, If, Implies, Not, Or

from engine import NO, YES, System, name_of, number_of
from report import Broken, Proved, Seen

RULES = """
counts_from_an_earlier_write: A proven write renews from one that is a tick older.
    src/zookeeper/store/proof.rs: pub(crate) fn base(&self) -> Stamp { self.base }
    mutant: zookeeper-deadline-from-the-newest-write
acknowledged_a_tick_before: Its acknowledgement is a tick old, not its sending.
    src/zookeeper/store/proof.rs: if sent_at.since(&oldest.acked_at) < self.tick {
    mutant: zookeeper-slow-acknowledgement-counts-as-sent
counts_from_what_was_seen: A lease counts from no write of after its node was seen.
    src/zookeeper/store/acquire.rs: session.proof(asked_at),
    mutant: zookeeper-grant-counts-from-a-later-proof
"""

TICK, TIMEOUT = 2, 6


class ZooKeeper(System):
    sorts = ("Write", "Server")
    variables = {
        "now": ((), "Real"),
        # The leader counts the session from then.
        "counts": ((), "Real"),
        # Each server: when it last heard of the session, what its last answer to a ping said of
        # that, and when that was. The client is connected to one, since some time.
        "heard": (("Server",), "Real"), "said": (("Server",), "Real"),
        "pinged": (("Server",), "Real"), "server": ((), "Server"), "moved": ((), "Real"),
        # Each write: what has happened to it, and when. The leader reads `carried` before it.
        "sent": (("Write",), "Bool"), "sent_at": (("Write",), "Real"),
        "by": (("Write",), "Server"), "came": (("Write",), "Bool"), "came_at": (("Write",), "Real"),
        "forwarded": (("Write",), "Bool"), "carried": (("Write",), "Real"),
        "done": (("Write",), "Bool"), "acked": (("Write",), "Bool"),
        "acked_at": (("Write",), "Real"),
        # The client: the leader counts from then or later. Its node was seen, and may be deleted
        # by an operator: then others are kept out for a time-out from then on.
        "base": ((), "Real"), "looked": ((), "Bool"), "looked_at": ((), "Real"),
        "seen": ((), "Bool"), "deleted": ((), "Bool"), "deleted_at": ((), "Real"),
        "leased": ((), "Bool"), "since": ((), "Real"),
    }
    used_in_order = ("sent",)
    rules = ("counts_from_an_earlier_write", "acknowledged_a_tick_before",
             "counts_from_what_was_seen")

    def __init__(self, sizes=None, without=()):
        super().__init__(sizes, without)
        self.tick = Function("tick", self.sort["Real"])()

    @property
    def left_out(self):
        if self.has("counts_from_what_was_seen"):
            return ("client_moves", "leader_changes", "client_looks", "server_sees_the_node",
                    "operator_deletes_the_node")
        return ("client_moves", "leader_changes", "client_looks", "server_sees_the_node")

    def rigid(self):
        return self.tick > 0

    def steps(self):
        def time_passes(s, p):
            return p.dt_Real > 0, {"now": s.now + p.dt_Real}

        def client_sends(s, p):
            w = p.w_Write
            return (Not(s.sent(w)),
                    {"sent": {w: YES}, "sent_at": {w: s.now}, "by": {w: s.server}})

        def server_hears(s, p):
            w = p.w_Write
            f = s.by(w)
            return (And(s.sent(w), Not(s.came(w))),
                    {"came": {w: YES}, "came_at": {w: s.now}, "heard": {f: s.now}})

        def server_answers_a_ping(s, p):
            f = p.f_Server
            return YES, {"said": {f: s.heard(f)}, "pinged": {f: s.now}}

        def server_forwards(s, p):
            # Its connection to the leader lives: it has answered a ping in the last tick.
            w = p.w_Write
            f = s.by(w)
            return (And(s.came(w), Not(s.forwarded(w)), s.now - s.pinged(f) < self.tick),
                    {"forwarded": {w: YES}, "carried": {w: s.said(f)}})

        def leader_executes(s, p):
            # After the answers to pings that were sent before it on the same connection.
            w = p.w_Write
            more = If(s.carried(w) > s.counts, s.carried(w), s.counts)
            return s.forwarded(w), {"done": {w: YES}, "counts": more}

        def leader_changes(s, p):
            # A new one counts every session anew.
            return YES, {"counts": s.now}

        def client_moves(s, p):
            # To another server, which asks the leader for the session first.
            f = p.f_Server
            return YES, {"server": f, "moved": s.now, "heard": {f: s.now}, "said": {f: s.now},
                         "counts": s.now}

        def client_is_answered(s, p):
            # `m` is a write of before, or none.
            n, m = p.n_Write, p.m_Write
            since = s.acked_at(m) if self.has("acknowledged_a_tick_before") else s.sent_at(m)
            earlier = And(s.acked(m), s.sent_at(n) - since >= self.tick)
            base = If(And(earlier, s.sent_at(m) > s.base), s.sent_at(m), s.base)
            if not self.has("counts_from_an_earlier_write"):
                base = If(s.sent_at(n) > s.base, s.sent_at(n), s.base)
            return (And(s.done(n), Not(s.acked(n))),
                    {"acked": {n: YES}, "acked_at": {n: s.now}, "base": base})

        def client_looks(s, p):
            return Not(s.looked), {"looked": YES, "looked_at": s.now}

        def server_sees_the_node(s, p):
            return And(s.looked, Not(s.deleted)), {"seen": YES}

        def operator_deletes_the_node(s, p):
            return Not(s.deleted), {"deleted": YES, "deleted_at": s.now}

        def client_has_a_lease(s, p):
            # Or renews it. A heartbeat sees the node like a look, so it is the same.
            since = s.base
            if self.has("counts_from_what_was_seen"):
                since = If(s.looked_at < since, s.looked_at, since)
            return s.seen, {"leased": YES, "since": since}

        return {step.__name__: step for step in (
            time_passes, client_sends, server_hears, server_answers_a_ping, server_forwards,
            leader_executes, leader_changes, client_moves, client_is_answered, client_looks,
            server_sees_the_node, operator_deletes_the_node, client_has_a_lease)}

    def first(self, s):
        return And(
            s.base == s.now, s.counts == s.now, s.moved == s.now, Not(s.deleted),
            Not(s.leased), s.looked_at == s.now, Implies(s.seen, s.looked),
            self.all("Server", lambda f: And(
                s.heard(f) <= s.now, s.said(f) <= s.heard(f), s.pinged(f) <= s.now)),
            s.said(s.server) == s.now,
            self.all("Write", lambda w: And(Not(s.sent(w)), Not(s.came(w)), Not(s.forwarded(w)),
                                            Not(s.done(w)), Not(s.acked(w)))))

    def invariant(self, s):
        return {
            "a write goes its way": self.all("Write", lambda w: And(
                Implies(s.came(w), And(s.sent(w), s.sent_at(w) <= s.came_at(w))),
                Implies(s.forwarded(w), s.came(w)), Implies(s.done(w), s.forwarded(w)),
                Implies(s.acked(w), And(s.done(w), s.came_at(w) <= s.acked_at(w))))),
            "nothing is of the future": And(
                s.moved <= s.now, s.base <= s.now, s.counts <= s.now,
                Implies(s.looked, s.looked_at <= s.now),
                Implies(s.deleted, s.deleted_at <= s.now),
                self.all("Server", lambda f: And(
                    s.pinged(f) <= s.now, s.heard(f) <= s.now, s.said(f) <= s.heard(f))),
                self.all("Write", lambda w: And(
                    Implies(s.sent(w), s.sent_at(w) <= s.now),
                    Implies(s.came(w), s.came_at(w) <= s.now),
                    Implies(s.forwarded(w), s.carried(w) <= s.now),
                    Implies(s.acked(w), s.acked_at(w) <= s.now)))),
            "a server knows what came": self.all("Write", lambda w: Implies(
                s.came(w), s.heard(s.by(w)) >= s.came_at(w))),
            "a ping says what came before it": self.all("Write", lambda w: Implies(
                And(s.came(w), s.pinged(s.by(w)) > s.came_at(w)),
                s.said(s.by(w)) >= s.came_at(w))),
            "the present server knows of the move": s.said(s.server) >= s.moved,
            "a write of now is at the present server": self.all("Write", lambda w: Implies(
                s.sent(w), Or(s.by(w) == s.server, s.sent_at(w) <= s.moved))),
            # What a forwarded write carries is as new as every write that was acknowledged a tick
            # before it was sent.
            "a later write waits for its ping": self.all("Write Write", lambda m, n: Implies(
                And(s.acked(m), s.sent(n), s.sent_at(n) - s.acked_at(m) >= self.tick),
                Or(s.by(m) == s.by(n), s.said(s.by(n)) >= s.sent_at(m)))),
            "a forwarded write carries it": self.all("Write Write", lambda m, n: Implies(
                And(s.acked(m), s.forwarded(n), s.sent_at(n) - s.acked_at(m) >= self.tick),
                s.carried(n) >= s.sent_at(m))),
            "the leader has read what is done": self.all("Write", lambda w: Implies(
                s.done(w), s.counts >= s.carried(w))),
            "the leader counts from the base": s.base <= s.counts,
            "what was seen was not deleted": Implies(And(s.seen, s.deleted),
                                                     s.looked_at <= s.deleted_at),
            "a lease saw its node": Implies(s.leased, And(
                s.seen, s.looked, s.since <= s.base, s.since <= s.looked_at)),
            "what was seen was asked for": Implies(s.seen, s.looked),
        }

    def claims(self, s):
        return {
            "earlier": s.base <= s.counts,
            "kept": Implies(s.leased, And(
                s.since <= s.counts, Implies(s.deleted, s.since <= s.deleted_at))),
        }

    def scene(self, s):
        return And(s.now == 0, self.tick == TICK, self.all("Server", lambda f: And(
            s.heard(f) == 0, s.said(f) == 0, s.pinged(f) == 0)))

    def realistic(self, s, p):
        return Or(p.dt_Real == 1, p.dt_Real == 2)

    def ending(self, m, s):
        until = number_of(m, s.counts) + TIMEOUT
        ends = f"the leader ends the session at {until:g}"
        if is_set(m, s.deleted):
            ends = f"others are kept out until {number_of(m, s.deleted_at) + TIMEOUT:g}"
        return f"the client counts until {number_of(m, s.base) + TIMEOUT:g}, {ends}"

    def describe(self, m, s, name, p):
        w = name_of(m, p.n_Write if name == "client_is_answered" else p.w_Write)
        now = f"{number_of(m, s.now):g}"
        text = {
            "time_passes": f"it is {now}",
            "client_sends": f"the client sends {w} at {now}",
            "server_hears": f"the server hears {w}",
            "server_forwards": f"the server forwards {w} to the leader",
            "leader_executes": f"the leader executes {w}, and counts the session from "
                               f"{number_of(m, s.counts):g}",
            "client_is_answered": f"the client receives the answer to {w}: it counts from "
                                  f"{number_of(m, s.base):g}",
        }
        return text.get(name, "the " + name.replace("_", " "))


def is_set(m, value):
    return str(m.eval(value, model_completion=True)) == "True"


def base_moved(system, s):
    return And(s.base > 0, s.leased)


SMALL = {"Write": 2, "Server": 1}
CHECKS = [
    Proved("a lease ends before its session, and before others may hold", ZooKeeper),
    Seen("a base moves", ZooKeeper, SMALL, lambda system, s: s.base > 0, 15),
    Broken("counts_from_an_earlier_write", ZooKeeper, SMALL, "earlier", 8),
    Broken("acknowledged_a_tick_before", ZooKeeper, SMALL, "earlier", 14),
    Broken("counts_from_what_was_seen", ZooKeeper, SMALL, "kept", 15),
]
