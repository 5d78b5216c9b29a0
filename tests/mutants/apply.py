#!/usr/bin/env python3
"""Applies one mutant to a copy of the tree, and prints the files that it changed.

usage: apply.py TREE MUTANT

A mutant holds one or more blocks:

    <<<<<<<
    the text to find, which occurs exactly once under src/
    =======
    the text to put there
    >>>>>>>

The text is found wherever it is: white space does not count, so that a file can be moved, and a line wrapped, without
an edit here.
"""

import pathlib
import re
import sys

BLOCK = re.compile(r"^<<<<<<<\n(.*?)^=======\n(.*?)^>>>>>>>\n", re.DOTALL | re.MULTILINE)


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


def main():
    tree, mutant = map(pathlib.Path, sys.argv[1:])
    blocks = BLOCK.findall(mutant.read_text())
    if not blocks:
        sys.exit("no block <<<<<<< ======= >>>>>>> was found")
    paths = sorted(path for path in (tree / "src").rglob("*") if path.suffix in (".rs", ".lua"))
    sources = {path: path.read_text() for path in paths}
    changed = set()
    for old, new in blocks:
        found = list(occurrences(sources, without_space(old)))
        if len(found) != 1:
            places = "".join(f"\n  {path.relative_to(tree)}" for path, _, _ in found)
            sys.exit(f"this text occurs {len(found)} times, and must occur once:\n{old}{places}")
        [(path, start, end)] = found
        sources[path] = sources[path][:start] + new.strip("\n").lstrip() + sources[path][end:]
        changed.add(path)
    for path in sorted(changed):
        path.write_text(sources[path])
        print(path.relative_to(tree))


if __name__ == "__main__":
    main()
