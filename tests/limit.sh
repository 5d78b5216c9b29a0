#!/usr/bin/env bash
# Runs a test program, and ends it with all that it has started when it does not end: cargo starts each program of tests/run.sh
# through this.
#
# usage: tests/limit.sh PROGRAM [ARGUMENT]...
#
#   PROGRAM_SECONDS=1500   how long a program may take
limit=${PROGRAM_SECONDS:-1500}
options=(--kill-after=10)
# At a terminal Ctrl-C reaches the program, too.
[ ! -t 0 ] || options+=(--foreground)
timeout "${options[@]}" "$limit" "$@"
code=$?
if [ $code -eq 124 ] || [ $code -eq 137 ]; then
    echo "HANGS: $(basename "$1") did not end within $limit s; of its tests, those without a result above did not end" >&2
fi
exit $code
