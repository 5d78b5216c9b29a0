"""What is run of each model, and how it is printed.

A model's module has `RULES`, a table in words, and `CHECKS`. A rule is switched off in one of the
`CHECKS`, and tests/tidy checks that its lines and its mutants exist:

    name: The rule in words.
        path/of/a/file: a part of a line there
        mutant: name-of-a-file-in-tests-mutants
"""

import re
import time
from dataclasses import dataclass, field
from typing import Callable

from z3 import Not, sat, unsat

from engine import ask, find, prove

RULE = re.compile(r"^(\w+): (.+)$", re.MULTILINE)


def rules_of(table):
    return dict(RULE.findall(table))


@dataclass
class Proved:
    """A property that holds for any number of everything."""
    words: str
    kind: type
    # Rules that it does not need.
    without: tuple = ()


@dataclass
class Seen:
    """A run that the model allows: it is not empty. `world`: how many there are of each sort."""
    words: str
    kind: type
    world: object
    goal: Callable
    depth: int


@dataclass
class Broken:
    """A rule that is switched off, and a run that the model allows then: to a state in which this
    claim is false. So it cannot be proved without the rule."""
    rule: str
    kind: type
    world: object
    claim: str
    depth: int


@dataclass
class Facts:
    """Statements without steps: each a name, what is given, and what follows from it."""
    words: str
    parts: Callable
    # The rule that is switched off, if this is a check that one is needed.
    rule: str = ""


@dataclass
class Tally:
    properties: int = 0
    rules: int = 0
    counterexamples: int = 0
    failures: list = field(default_factory=list)


class Report:
    """Runs checks and prints a line for each, with the processor's time of it."""

    def __init__(self, shows_runs):
        self.tally, self.shows_runs = Tally(), shows_runs

    def line(self, mark, model, words, text, began):
        took = time.process_time() - began
        print(f"{mark:6} {model:10} {words:80} {text:16} {took:6.2f} s", flush=True)
        if mark == "FAILED":
            self.tally.failures.append(f"{model}: {words}")

    def run(self, model, check, rules):
        began = time.process_time()
        mark, text, story = getattr(self, type(check).__name__.lower())(check)
        words = check.words if getattr(check, "words", "") else rules[check.rule]
        self.line(mark, model, words, text, began)
        if self.shows_runs:
            for number, step in enumerate(story, 1):
                print(f"    {number:2} {step}" if step[:2] != "=>" else f"       {step}")

    def proved(self, check):
        failed, count = prove(check.kind(without=check.without))
        self.tally.properties += not failed
        return ("FAILED", "; ".join(failed), []) if failed else ("proved", f"{count} parts", [])

    def seen(self, check):
        system = check.kind(check.world)
        found = find(system, lambda s: check.goal(system, s), check.depth)
        if not found:
            return "FAILED", f"not in {check.depth} steps", []
        return "seen", f"in {len(found[2])} steps", []

    def broken(self, check):
        self.tally.rules += 1
        system = check.kind(check.world, without=check.rule)
        found = find(system, lambda s: Not(system.claims(s)[check.claim]), check.depth)
        if not found:
            return "FAILED", f"no run of {check.depth} steps", []
        self.tally.counterexamples += 1
        return "broken", f"a run of {len(found[2])} steps", story(system, *found)

    def facts(self, check):
        failed, story, count = [], [], 0
        for what, given, claim in check.parts(check.rule):
            count += 1
            result, solver = ask(*given, Not(claim), seconds=30)
            if result == sat:
                values = sorted(f"{name} = {solver.model()[name]}" for name in solver.model())
                story = [f"{what}: {', '.join(values)}"]
            if result != unsat:
                failed.append(what)
        if not check.rule:
            self.tally.properties += not failed
            return ("FAILED", "; ".join(failed), []) if failed else ("proved", f"{count} parts", [])
        self.tally.rules += 1
        self.tally.counterexamples += bool(story)
        return ("broken", "an example", story) if story else ("FAILED", "no example", [])


def story(system, model, states, steps):
    lines = [system.describe(model, states[at], *step) for at, step in enumerate(steps, 1)]
    ending = system.ending(model, states[-1])
    return lines + ([f"=> {ending}"] if ending else [])
