"""Proves every model, then switches off each rule and demands a counterexample.

usage: python3 tests/proof/smt [-q] [part of a model's name]...      (-q: no runs are printed)

`run.sh` finds a Python that has z3.
"""

import importlib
import sys
import time

from report import Report, rules_of

MODELS = ("arithmetic", "leases", "messages", "words", "gate", "commit", "fence", "quorum",
          "zookeeper", "readers", "handoff", "shards", "observed")


def main():
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    report = Report(shows_runs="-q" not in sys.argv[1:])
    for name in MODELS:
        if words and not any(word in name for word in words):
            continue
        model = importlib.import_module(name)
        rules = rules_of(model.RULES)
        off = [check.rule for check in model.CHECKS if getattr(check, "rule", "")]
        if sorted(off) != sorted(rules):
            sys.exit(f"{name}: each rule is switched off once: {sorted(set(off) ^ set(rules))}")
        for check in model.CHECKS:
            report.run(name, check, rules)
    tally = report.tally
    for failure in tally.failures:
        print(f"FAILED: {failure}")
    print(f"proofs: {tally.properties} properties proved, {tally.rules} rules switched off, "
          f"{tally.counterexamples} counterexamples, {time.process_time():.0f} s of the processor")
    sys.exit(1 if tally.failures else 0)


if __name__ == "__main__":
    main()
