#!/usr/bin/env python3
"""A program that checks its lease before it begins and before it replaces the old result.

  leasehold run --store redis://127.0.0.1:6379 --lock backup -- examples/tool/backup.py result.txt
"""

import os
import subprocess
import sys


def check(remaining):
    """Ends the program unless so much is left of the lease. The tool prints the reason."""
    code = subprocess.run(["leasehold", "check", "--remaining", remaining]).returncode
    if code != 0:
        sys.exit(code)


def main():
    result = sys.argv[1]
    check("2s")
    with open(result + ".new", "w") as new:
        new.write(os.environ["LEASEHOLD_TOKEN"] + "\n")
    check("1s")
    os.replace(result + ".new", result)


main()
