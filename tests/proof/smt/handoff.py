"""The hand-over of a grant in one process: one holder after the other, under one token.

A hold closes its gate, waits for its runs, takes its deadlines out of its lease word by a swap,
and gives them to the next local caller. The server is not asked. Runs, holds and handoffs are any
number of each.
"""

from z3 import And, Function, Implies, IntVal, Not, Or

from engine import NO, YES, System, name_of
from report import Broken, Proved, Seen

RULES = """
closed: The gate of the former hold is closed before the drain.
    src/manager/end.rs: self.hold.lease.close();
    mutant: hold-is-released-with-its-gate-open
drained: A hold is handed off when its runs have ended.
    src/manager/end.rs: self.context.clock.timeout(self.limit, at_rest).await == Some(true);
    mutant: hold-is-released-before-its-drain
taken: Whoever hands a lease off has none.
    src/lease/words.rs: self.0[lane].swap(LOST, Ordering::AcqRel)
    mutant: lease-is-handed-off-and-kept
not_after_its_end: A lease that has ended is not handed off.
    src/lease/words.rs: (ended, (!taken.contains(&LOST)).then_some(taken))
    mutant: lease-is-handed-off-after-its-end
released_once: A hold that was handed off is not released as well.
    src/manager/end.rs: if let Some(released) = finished.get() {
    mutant: hold-is-finished-twice
"""

OUT, INSIDE, LEFT = range(3)


class Handoff(System):
    sorts = ("Hold", "Run")
    variables = {
        # The store keeps the grant. It frees it when it is released, or when its time is over.
        "kept": ((), "Bool"),
        # Of each hold: whether it has begun; its gate; whether its runs were found at rest; whether
        # its lease word is not 0; whether its end is done.
        "begun": (("Hold",), "Bool"), "closed": (("Hold",), "Bool"),
        "at_rest": (("Hold",), "Bool"), "live": (("Hold",), "Bool"), "ended": (("Hold",), "Bool"),
        "over": (("Hold",), "Bool"),
        "at": (("Run",), "Int"),
    }
    used_in_order = ("begun",)
    rules = ("closed", "drained", "taken", "not_after_its_end", "released_once")

    def __init__(self, sizes=None, without=()):
        super().__init__(sizes, without)
        self.of = Function("of", self.sort["Run"], self.sort["Hold"])

    def steps(self):
        def runs_of(s, h, what):
            return self.all("Run", lambda r: Implies(self.of(r) == h, what(r)))

        def run_begins(s, p):
            r, h = p.r_Run, self.of(p.r_Run)
            return (And(s.at(r) == OUT, s.begun(h), s.live(h), Not(s.closed(h))),
                    {"at": {r: IntVal(INSIDE)}})

        def run_ends(s, p):
            return s.at(p.r_Run) == INSIDE, {"at": {p.r_Run: IntVal(LEFT)}}

        def hold_closes_its_gate(s, p):
            return s.begun(p.h_Hold), {"closed": {p.h_Hold: YES}}

        def hold_is_at_rest(s, p):
            h = p.h_Hold
            rest = runs_of(s, h, lambda r: s.at(r) != INSIDE) if self.has("drained") else YES
            closed = s.closed(h) if self.has("closed") else YES
            return And(s.begun(h), closed, rest), {"at_rest": {h: YES}}

        def lease_ends(s, p):
            # It lapsed, was revoked, or the server took it away: somebody may know it.
            h = p.h_Hold
            return s.live(h), {"live": {h: NO}, "over": {h: YES}}

        def hold_is_handed_off(s, p):
            h, g = p.h_Hold, p.g_Hold
            live = s.live(h) if self.has("not_after_its_end") else YES
            begins = {"begun": {g: YES}, "ended": {h: YES}}
            lives = {g: YES, h: NO} if self.has("taken") else {g: YES}
            return (And(s.begun(h), s.at_rest(h), live, Not(s.ended(h)), Not(s.begun(g)), h != g),
                    {**begins, "live": lives})

        def hold_is_released(s, p):
            h = p.h_Hold
            once = Not(s.ended(h)) if self.has("released_once") else YES
            return (And(s.begun(h), s.at_rest(h), once),
                    {"ended": {h: YES}, "live": {h: NO}, "kept": NO})

        def time_is_over(s, p):
            # `leases.py`: the store frees the grant only after every lease of it.
            return self.all("Hold", lambda h: Not(s.live(h))), {"kept": NO}

        return {step.__name__: step for step in (
            run_begins, run_ends, hold_closes_its_gate, hold_is_at_rest, lease_ends,
            hold_is_handed_off, hold_is_released, time_is_over)}

    def first(self, s):
        one = self.all("Hold Hold", lambda h, g: Implies(And(s.begun(h), s.begun(g)), h == g))
        return And(s.kept, one, self.all("Hold", lambda h: And(
            s.live(h) == s.begun(h), Not(s.closed(h)), Not(s.at_rest(h)), Not(s.ended(h)),
            Not(s.over(h)))), self.all("Run", lambda r: s.at(r) == OUT))

    def invariant(self, s):
        return {
            "what is at rest stays so": self.all("Run", lambda r: Implies(
                s.at_rest(self.of(r)), s.at(r) != INSIDE)),
            "a rest is behind a gate": self.all("Hold", lambda h: Implies(
                s.at_rest(h), s.closed(h))),
            "one has not ended": self.all("Hold Hold", lambda h, g: Implies(
                And(s.begun(h), s.begun(g), Not(s.ended(h)), Not(s.ended(g))), h == g)),
            "what ended was at rest": self.all("Hold", lambda h: And(
                Implies(s.ended(h), And(s.begun(h), s.at_rest(h), Not(s.live(h)))),
                Implies(Or(s.live(h), s.at_rest(h), s.closed(h), s.over(h)), s.begun(h)))),
            "runs are of holds": self.all("Run", lambda r: Implies(
                s.at(r) == INSIDE, s.begun(self.of(r)))),
            **self.claims(s),
        }

    def claims(self, s):
        return {
            "one lease": self.all("Hold Hold", lambda h, g: Implies(
                And(s.live(h), s.live(g)), h == g)),
            "one after the other": self.all("Run Run", lambda r, q: Implies(
                And(s.at(r) == INSIDE, s.at(q) == INSIDE), self.of(r) == self.of(q))),
            "a lapse is final": self.all("Hold Hold", lambda h, g: Implies(
                s.over(h), Not(s.live(g)))),
            "a lease is kept": self.all("Hold", lambda h: Implies(s.live(h), s.kept)),
        }

    def scene(self, s):
        return self.all("Run Run", lambda r, q: Implies(r != q, self.of(r) != self.of(q)))

    def describe(self, m, s, name, p):
        if name.startswith("run"):
            hold = name_of(m, self.of(p.r_Run))
            return f"{name.replace('_', ' ')} ({name_of(m, p.r_Run)} of {hold})"
        if name == "time_is_over":
            return "the store frees the grant"
        to = f", {name_of(m, p.g_Hold)} begins" if name == "hold_is_handed_off" else ""
        return f"{name.replace('_', ' ')} ({name_of(m, p.h_Hold)}){to}"


def third_holds(system, s):
    return And([s.begun(h) for h in system.members["Hold"].values()]
               + [s.live(system.members["Hold"]["C"])])


TWO = {"Hold": 2, "Run": 2}
CHECKS = [
    Proved("one local holder works after the other, and one has the lease", Handoff),
    Seen("a grant goes to a third holder", Handoff, {"Hold": 3, "Run": 1}, third_holds, 6),
    Broken("closed", Handoff, TWO, "one after the other", 4),
    Broken("drained", Handoff, TWO, "one after the other", 5),
    Broken("taken", Handoff, TWO, "one lease", 3),
    Broken("not_after_its_end", Handoff, TWO, "a lapse is final", 4),
    Broken("released_once", Handoff, TWO, "a lease is kept", 4),
]
