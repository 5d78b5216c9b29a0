#!/usr/bin/env bash
# Runs all proofs, and switches each rule off. About two minutes of the processor's time.
#
# usage: tests/proof/smt/run.sh [-q] [part of a model's name]...      (-q: no runs are printed)
#
# Needs Python 3.9 and z3 for it: python3-z3 of Debian, or z3-solver from PyPI.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

for python in python3 /usr/bin/python3 "$here/../../../.venv/bin/python"; do
    if "$python" -c 'import z3' 2>/dev/null; then
        export PYTHONDONTWRITEBYTECODE=1
        exec "$python" "$here" "$@"
    fi
done
echo "z3 is missing: apt-get install python3-z3, or pip install z3-solver" >&2
exit 1
