"""The two checks around a commit (I4): what a run says about its lease is true.

A run checks its lease before the commit and looks at it again after the answer. Between the two a
thread may be stopped for any time. The lease is over for good once it is over: `words.py` shows
that, and here it is a rule. The same pair of looks is around a guarded read.
"""

from z3 import And, Implies, IntVal, Not, Or

from engine import NO, YES, System, name_of
from report import Broken, Proved, Seen

RULES = """
checks_before: A commit begins under a live lease only.
    src/executor/context.rs: self.lease().ensure(self.commit_budget)
    mutant: run-commits-without-a-look
checks_the_gate: No commit begins once the end of the hold has begun.
    src/executor/context.rs: if self.lease().is_closed() {
    mutant: run-commits-under-a-closed-gate
looks_after: A run is said to be within the lease only if that is live after it.
    src/executor/run/settle.rs: let is_live = context.lease().look_strict().is_ok();
    mutant: run-does-not-look-after-its-commit
a_lapse_is_final: A lease that is over stays over.
    src/lease/words.rs: return Err(self.revoke());
    mutant: lease-late-renewal-does-not-mark
"""

WORKS, CHECKED, APPLIED, SAID = range(4)


class Commit(System):
    sorts = ("Run",)
    variables = {
        "live": ((), "Bool"), "closed": ((), "Bool"), "at": (("Run",), "Int"),
        # Of each run: whether the lease was live and the gate open at its check, whether the
        # lease was live when the resource applied it, and whether the run says so.
        "was_live": (("Run",), "Bool"), "was_open": (("Run",), "Bool"),
        "in_time": (("Run",), "Bool"), "says_within": (("Run",), "Bool"),
    }
    rules = ("checks_before", "checks_the_gate", "looks_after", "a_lapse_is_final")

    def steps(self):
        def lease_ends(s, p):
            return s.live, {"live": NO}

        def lease_is_live_again(s, p):
            return Not(s.live), {"live": YES}

        def hold_begins_to_end(s, p):
            return YES, {"closed": YES}

        def run_checks(s, p):
            r = p.r_Run
            live = s.live if self.has("checks_before") else YES
            is_open = Not(s.closed) if self.has("checks_the_gate") else YES
            return (And(s.at(r) == WORKS, live, is_open),
                    {"at": {r: IntVal(CHECKED)}, "was_live": {r: s.live},
                     "was_open": {r: Not(s.closed)}})

        def resource_applies(s, p):
            r = p.r_Run
            return s.at(r) == CHECKED, {"at": {r: IntVal(APPLIED)}, "in_time": {r: s.live}}

        def run_looks_again(s, p):
            r = p.r_Run
            live = s.live if self.has("looks_after") else YES
            return (And(s.at(r) == APPLIED, live),
                    {"at": {r: IntVal(SAID)}, "says_within": {r: YES}})

        steps = [lease_ends, hold_begins_to_end, run_checks, resource_applies, run_looks_again]
        if not self.has("a_lapse_is_final"):
            steps.append(lease_is_live_again)
        return {step.__name__: step for step in steps}

    def first(self, s):
        return And(s.live, Not(s.closed), self.all("Run", lambda r: And(
            s.at(r) == WORKS, Not(s.says_within(r)), Not(s.in_time(r)))))

    def invariant(self, s):
        return {
            "a run was checked": self.all("Run", lambda r: Implies(
                s.at(r) >= CHECKED, And(s.was_live(r), s.was_open(r)))),
            "what says so was in time": self.all("Run", lambda r: Implies(
                s.says_within(r), And(s.in_time(r), s.at(r) == SAID))),
            "what is live was live": self.all("Run", lambda r: Implies(
                And(s.at(r) == APPLIED, s.live), s.in_time(r))),
        }

    def claims(self, s):
        return {
            "checked": self.all("Run", lambda r: Implies(s.at(r) >= APPLIED, s.was_live(r))),
            "open": self.all("Run", lambda r: Implies(s.at(r) >= APPLIED, s.was_open(r))),
            "true": self.all("Run", lambda r: Implies(s.says_within(r), s.in_time(r))),
        }

    def describe(self, m, s, name, p):
        who = "" if name[:4] in ("leas", "hold") else f" ({name_of(m, p.r_Run)})"
        return f"the {name.replace('_', ' ')}{who}"


def said(system, s):
    return And([s.says_within(r) for r in system.members["Run"].values()])


ONE = {"Run": 1}
CHECKS = [
    Proved("a run that says it was within the lease was", Commit),
    Seen("two runs say so", Commit, {"Run": 2}, said, 6),
    Broken("checks_before", Commit, ONE, "checked", 4),
    Broken("checks_the_gate", Commit, ONE, "open", 4),
    Broken("looks_after", Commit, ONE, "true", 4),
    Broken("a_lapse_is_final", Commit, ONE, "true", 5),
]
