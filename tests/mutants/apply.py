#!/usr/bin/env python3
"""Applies one mutant to a copy of the tree, and prints the files that it changed.

usage: apply.py TREE MUTANT
       apply.py --check TREE MUTANT...    only checks that each one applies, and changes nothing

A mutant holds one or more blocks:

    <<<<<<<
    the text to find, which occurs exactly once under src/, cli/src/ and sqlx/src/
    =======
    the text to put there
    >>>>>>>

The text is found wherever it is: white space does not count, so that a file can be moved, and a line wrapped, without
an edit here.
"""

import functools
import pathlib
import re
import sys

BLOCK = re.compile(r"^<<<<<<<\n(.*?)^=======\n(.*?)^>>>>>>>\n", re.DOTALL | re.MULTILINE)


@functools.cache
def without_space(text):
    return "".join(text.split())


def occurrences(sources, wanted):
    """Every place of `wanted`: the file, and where it begins and ends there."""
    for path, text in sources.items():
        dense = without_space(text)
        at = dense.find(wanted)
        if at < 0:
            continue
        places = [place for place, char in enumerate(text) if not char.isspace()]
        while at >= 0:
            yield path, places[at], places[at + len(wanted) - 1] + 1
            at = dense.find(wanted, at + 1)


class Stale(Exception):
    """A mutant that does not apply."""


def read(tree):
    found = (path for folder in ("src", "cli/src", "sqlx/src") for path in (tree / folder).rglob("*"))
    paths = sorted(path for path in found if path.suffix in (".rs", ".lua", ".sql"))
    return {path: path.read_text() for path in paths}


def changes(tree, sources, mutant):
    """The files that the mutant changes, with their new texts."""
    blocks = BLOCK.findall(mutant.read_text())
    if not blocks:
        raise Stale("no block <<<<<<< ======= >>>>>>> was found")
    changed = {}
    for old, new in blocks:
        found = list(occurrences(sources | changed, without_space(old)))
        if len(found) != 1:
            places = "".join(f"\n  {path.relative_to(tree)}" for path, _, _ in found)
            raise Stale(f"this text occurs {len(found)} times, and must occur once:\n{old}{places}")
        [(path, start, end)] = found
        text = changed.get(path, sources[path])
        changed[path] = text[:start] + new.strip("\n").lstrip() + text[end:]
    return changed


def check(tree, mutants):
    sources = read(tree)
    stale = 0
    for mutant in mutants:
        try:
            changes(tree, sources, mutant)
        except Stale as why:
            stale += 1
            print(f"STALE     {mutant.stem}\n    | " + str(why).replace("\n", "\n    | "))
    print(f"mutants: {len(mutants)}, stale: {stale}")
    return stale == 0


def apply(tree, mutant):
    for path, text in sorted(changes(tree, read(tree), mutant).items()):
        path.write_text(text)
        print(path.relative_to(tree))


def main():
    if sys.argv[1] == "--check":
        tree, *mutants = map(pathlib.Path, sys.argv[2:])
        sys.exit(not check(tree, mutants))
    try:
        apply(*map(pathlib.Path, sys.argv[1:]))
    except Stale as why:
        sys.exit(str(why))


if __name__ == "__main__":
    main()
