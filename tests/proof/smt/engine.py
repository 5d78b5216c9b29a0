"""Induction and the search for runs, for transition systems over sorts of any size.

`System` is what each model extends. `prove` asks the solver one question for each part of an
induction. `find` searches for a run of a few steps in a small world.
"""

import itertools

from z3 import (And, BoolSort, BoolVal, Const, DeclareSort, EnumSort, ForAll, Function, If, Implies,
                Int, IntSort, Not, Or, RealSort, Solver, sat, unsat)

FRESH = itertools.count()
YES, NO = BoolVal(True), BoolVal(False)


class System:
    """A model: its sorts, its variables, and its steps.

    A subclass has `sorts`; `variables`, each with the sorts of its arguments and its own sort;
    `rules`, the names of what may be switched off; and the methods `steps`, `first`, `invariant`
    and `claims`. With `sizes` each sort has so many elements, for a run. Without it each has any
    number, for a proof.
    """

    sorts = ()
    variables = {}
    rules = ()
    # For runs: variables that become true for one element after the other, so that a run is found
    # once and not under every renaming; and steps that only make it longer.
    used_in_order = ()
    left_out = ()

    def __init__(self, sizes=None, without=()):
        self.off = {without} if isinstance(without, str) else set(without)
        assert self.off <= set(self.rules), self.off
        self.sizes = sizes
        self.sort = {"Bool": BoolSort(), "Int": IntSort(), "Real": RealSort()}
        self.members = {}
        stamp = next(FRESH)
        for name in self.sorts:
            if not sizes:
                self.sort[name] = DeclareSort(name)
                continue
            names = self.names(name, sizes[name])
            labels = [f"{each}_{stamp}" for each in names]
            self.sort[name], members = EnumSort(f"{name}_{stamp}", labels)
            self.members[name] = dict(zip(names, members))

    def has(self, rule):
        """Whether the rule is on."""
        assert rule in self.rules, rule
        return rule not in self.off

    def names(self, sort, size):
        if sort in ("Claim", "Grant", "Thread", "Run", "Hold", "Client"):
            return list("ABCDEF"[:size])
        return [f"{sort[0].lower()}{number + 1}" for number in range(size)]

    def all(self, sorts, body):
        """That `body` is true of all values of these sorts."""
        sorts = sorts.split()
        if self.sizes:
            values = itertools.product(*(self.members[sort].values() for sort in sorts))
            return And([body(*each) for each in values])
        xs = [Const(f"x{i}_{sort}", self.sort[sort]) for i, sort in enumerate(sorts)]
        return ForAll(xs, body(*xs))

    def state(self, tag):
        values = {}
        for name, (args, out) in self.variables.items():
            label, sorts = f"{name}@{tag}", [self.sort[sort] for sort in (*args, out)]
            values[name] = Function(label, *sorts) if args else Const(label, *sorts)
        return State(self, values)

    def in_order(self, state):
        parts = []
        for name in self.used_in_order:
            members = list(self.members[self.variables[name][0][0]].values())
            used = state.values[name]
            parts += [Implies(used(b), used(a)) for a, b in zip(members, members[1:])]
        return And(parts)

    def steps(self):
        """Each kind of step: its name, and a function of a state and of a `Choice` to when it is
        possible and which variables it changes."""
        raise NotImplementedError

    def first(self, s):
        """What is true in every first state."""
        raise NotImplementedError

    def invariant(self, s):
        """The parts of the invariant, by name."""
        raise NotImplementedError

    def claims(self, s):
        """What is to be shown, by name."""
        raise NotImplementedError

    # What a model may leave out: what never changes, what is true of each step; and, for runs,
    # the first state, what a step may choose, and a last line.

    def rigid(self):
        return YES

    def moves(self, before, after):
        return {}

    def scene(self, s):
        return YES

    def realistic(self, s, p):
        return YES

    def describe(self, m, s, name, p):
        return name.replace("_", " ")

    def ending(self, m, s):
        return ""


class State:
    """A value for each variable."""

    def __init__(self, system, values):
        self.__dict__.update(values)
        self.system, self.values = system, values

    def after(self, updates):
        """The state in which some variables differ: a value, or `{element: value}`, or a function
        for one with arguments. Nothing has to be said about what stays the same."""
        values = dict(self.values)
        for name, new in updates.items():
            values[name] = changed(values[name], new) if isinstance(new, dict) else new
        return State(self.system, values)

    def equals(self, other):
        parts = []
        for name, (args, _) in self.system.variables.items():
            mine, theirs = self.values[name], other.values[name]
            if args:
                same = lambda *xs, m=mine, t=theirs: m(*xs) == t(*xs)
                parts.append(self.system.all(" ".join(args), same))
            else:
                parts.append(mine == theirs)
        return And(parts)


def changed(old, new):
    def value_at(*xs):
        value = old(*xs)
        for key, to in new.items():
            keys = key if isinstance(key, tuple) else (key,)
            value = If(And([x == k for x, k in zip(xs, keys)]), to, value)
        return value
    return value_at


class Choice:
    """What a step may choose: `x_Sort` is an element, `f_From_To` a function."""

    def __init__(self, system, tag):
        self.system, self.tag = system, tag

    def __getattr__(self, name):
        sorts = [self.system.sort[sort] for sort in name.split("_")[1:]]
        label = f"{name}!{self.tag}"
        value = Const(label, *sorts) if len(sorts) == 1 else Function(label, *sorts)
        self.__dict__[name] = value
        return value


def ask(*assertions, seconds=60):
    """Asks the solver. Only `unsat` says that there is no model; a time-out says nothing."""
    solver = Solver()
    solver.set("timeout", seconds * 1000)
    solver.add(*assertions)
    return solver.check(), solver


def obligations(system):
    """Each part of an inductive proof: a name, what is given, and what follows from it."""
    first = system.state("0")
    yield "first", [system.rigid(), system.first(first)], system.invariant(first)
    for name, step in system.steps().items():
        before, choice = system.state("0"), Choice(system, "0")
        guard, updates = step(before, choice)
        after = before.after(updates)
        given = [system.rigid(), guard, *system.invariant(before).values()]
        yield name, given, {**system.invariant(after), **system.moves(before, after)}
    state = system.state("0")
    yield "claims", [system.rigid(), *system.invariant(state).values()], system.claims(state)


def prove(system):
    """Returns what could not be proved, and how many parts there were."""
    failed, count = [], 0
    for name, given, claims in obligations(system):
        if ask(*given)[0] == unsat:
            # What is given contradicts itself, and proves everything.
            failed.append(f"{name} can never happen")
        for what, claim in claims.items():
            count += 1
            result, _ = ask(*given, Not(claim))
            if result != unsat:
                failed.append(f"{name} / {what}" + ("" if result == sat else " (unknown)"))
    return failed, count


def find(system, goal, depth):
    """Searches for a run of at most `depth` steps to a state of which `goal` is true: a model, its
    states and its steps. It is one question: a shorter run does nothing at its end."""
    solver = Solver()
    states, chosen = [system.state("0")], []
    solver.add(system.rigid(), system.first(states[0]), system.scene(states[0]))
    steps = {n: step for n, step in system.steps().items() if n not in system.left_out}
    names = list(steps)
    for at in range(1, depth + 1):
        before, after = states[-1], system.state(at)
        choice, which = Choice(system, at), Int(f"which!{at}")
        cases = [And(which == len(names), after.equals(before))]
        for number, step in enumerate(steps.values()):
            guard, updates = step(before, choice)
            same = after.equals(before.after(updates))
            cases.append(And(which == number, guard, system.realistic(before, choice), same,
                             Not(after.equals(before))))
        solver.add(Or(cases), system.in_order(after))
        if chosen:
            solver.add(Implies(chosen[-1][0] == len(names), which == len(names)))
        states.append(after)
        chosen.append((which, choice))
    solver.add(goal(states[-1]))
    if solver.check() != sat:
        return None
    model = solver.model()
    numbers = [model.eval(which).as_long() for which, _ in chosen]
    run = [(names[n], choice) for n, (_, choice) in zip(numbers, chosen) if n < len(names)]
    return model, states[:len(run) + 1], run


def name_of(model, value):
    """An element as a run shows it."""
    return str(model.eval(value, model_completion=True)).split("_")[0]


def number_of(model, value):
    value = model.eval(value, model_completion=True)
    if hasattr(value, "numerator_as_long"):
        return value.numerator_as_long() / value.denominator_as_long()
    return value.as_long()


def is_true_of(model, value):
    return str(model.eval(value, model_completion=True)) == "True"
