"""The gate of a hold (I5): no run is in progress once its end has found every slot at rest.

A run raises its slot before it looks at the gate. The end closes the gate before it looks at the
slots. Runs and slots are any number of each.
"""

from z3 import And, Function, If, Implies, IntVal, Not, Or

from engine import NO, YES, System, name_of
from report import Broken, Proved, Seen

RULES = """
raised_before_the_look: A run raises its slot before it looks at the gate.
    src/lease/runs.rs: self.running.fetch_add(1, Ordering::SeqCst);
    mutant: run-is-raised-after-its-look-at-the-gate
closed_before_the_count: The gate is closed before the slots are counted.
    src/manager/end.rs: self.hold.lease.close();
    mutant: hold-is-released-with-its-gate-open
counts_every_slot: The slots of all clones of the executor are counted.
    src/lease/signal.rs: slots.values().all(|slot| slot.is_at_rest())
    mutant: drain-looks-at-one-clone
waits_for_the_drain: The hold ends only when every slot was found at rest.
    src/manager/end.rs: self.context.clock.timeout(self.limit, at_rest).await == Some(true);
    mutant: hold-is-released-before-its-drain
"""

OUT, RAISED, INSIDE, ADMITTED, REFUSED, LEFT = range(6)


class Gate(System):
    sorts = ("Run", "Slot")
    variables = {"closed": ((), "Bool"), "ended": ((), "Bool"), "at": (("Run",), "Int"),
                 "was_at_rest": (("Slot",), "Bool")}
    rules = ("raised_before_the_look", "closed_before_the_count", "counts_every_slot",
             "waits_for_the_drain")

    def __init__(self, sizes=None, without=()):
        super().__init__(sizes, without)
        self.of = Function("slot", self.sort["Run"], self.sort["Slot"])

    def steps(self):
        raises_first = self.has("raised_before_the_look")

        def run_raises_its_slot(s, p):
            r = p.r_Run
            before, after = (OUT, RAISED) if raises_first else (ADMITTED, INSIDE)
            return s.at(r) == before, {"at": {r: IntVal(after)}}

        def run_looks_at_the_gate(s, p):
            r = p.r_Run
            if raises_first:
                return s.at(r) == RAISED, {"at": {r: If(s.closed, REFUSED, INSIDE)}}
            return And(s.at(r) == OUT, Not(s.closed)), {"at": {r: IntVal(ADMITTED)}}

        def run_leaves(s, p):
            r = p.r_Run
            return Or(s.at(r) == INSIDE, s.at(r) == REFUSED), {"at": {r: IntVal(LEFT)}}

        def end_closes_the_gate(s, p):
            return YES, {"closed": YES}

        def end_finds_a_slot_at_rest(s, p):
            idle = self.all("Run", lambda r: Implies(
                self.of(r) == p.s_Slot,
                And([s.at(r) != x for x in (RAISED, INSIDE, REFUSED)])))
            closed = s.closed if self.has("closed_before_the_count") else YES
            return And(closed, idle), {"was_at_rest": {p.s_Slot: YES}}

        def end_is_over(s, p):
            counted = self.all("Slot", s.was_at_rest)
            if not self.has("counts_every_slot"):
                counted = s.was_at_rest(p.s_Slot)
            if not self.has("waits_for_the_drain"):
                counted = YES
            return And(s.closed, counted), {"ended": YES}

        return {step.__name__: step for step in (
            run_raises_its_slot, run_looks_at_the_gate, run_leaves, end_closes_the_gate,
            end_finds_a_slot_at_rest, end_is_over)}

    def first(self, s):
        return And(Not(s.closed), Not(s.ended), self.all("Run", lambda r: s.at(r) == OUT),
                   self.all("Slot", lambda x: Not(s.was_at_rest(x))))

    def invariant(self, s):
        return {
            "what was at rest stays so": self.all("Run", lambda r: Implies(
                s.was_at_rest(self.of(r)), And(s.at(r) != INSIDE, s.at(r) != ADMITTED))),
            "nothing is admitted unraised": self.all("Run", lambda r: s.at(r) != ADMITTED),
            "a count follows the close": self.all("Slot", lambda x: Implies(
                s.was_at_rest(x), s.closed)),
            "the end has counted all": Implies(s.ended, self.all("Slot", s.was_at_rest)),
        }

    def claims(self, s):
        return {"at rest": Implies(s.ended, self.all("Run", lambda r: s.at(r) != INSIDE))}

    def describe(self, m, s, name, p):
        who = {"run": lambda: f"{name_of(m, p.r_Run)}: ", "end": lambda: ""}[name[:3]]()
        slot = f" ({name_of(m, p.s_Slot)})" if "slot_at" in name else ""
        return who + name.replace("_", " ") + slot

    def ending(self, m, s):
        return "the hold has ended, and a run is in progress"


def ended_after_a_run(system, s):
    (run,) = system.members["Run"].values()
    return And(s.ended, s.at(run) == LEFT)


ONE, TWO = {"Run": 1, "Slot": 1}, {"Run": 1, "Slot": 2}
CHECKS = [
    Proved("no run is in progress when a hold has ended", Gate),
    Seen("a hold ends after its run", Gate, ONE, ended_after_a_run, 6),
    Broken("raised_before_the_look", Gate, ONE, "at rest", 5),
    Broken("closed_before_the_count", Gate, ONE, "at rest", 5),
    Broken("counts_every_slot", Gate, TWO, "at rest", 5),
    Broken("waits_for_the_drain", Gate, ONE, "at rest", 4),
]
