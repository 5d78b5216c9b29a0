#!/usr/bin/env bash
# Runs a test program; cargo starts each program of tests/run.sh through this. What does not end is ended, with all that it
# has started. A few tests that did not pass get a second try, alone: on a strange machine they meet ports that are taken, slow
# disks and stalls. A test that needs it is named, and the first failure stays in the log: read it, for it may be a fault of
# ours that is rare.
#
# usage: tests/program.sh PROGRAM [ARGUMENT]...
#
#   PROGRAM_SECONDS=900   how long a program may take
#   SECOND_TRIES=3        how many tests of a program may get a second try
set -uo pipefail
limit=${PROGRAM_SECONDS:-900}
program=$1
name=$(basename "$program" | sed 's/-[0-9a-f]\{16\}$//')

options=(--kill-after=10)
# At a terminal Ctrl-C reaches the program, too.
[ ! -t 0 ] || options+=(--foreground)
log=$(mktemp)
trap 'rm -f "$log"' EXIT

timeout "${options[@]}" "$limit" "$@" | tee "$log"
code=${PIPESTATUS[0]}
[ "$code" -ne 0 ] || exit 0
hangs=
if [ "$code" -eq 124 ] || [ "$code" -eq 137 ]; then
    hangs=yes
fi

# All that did not pass: failed, or had no result when the program was ended. Only in a run of all tests.
not_passed=()
if [ $# -eq 1 ]; then
    mapfile -t not_passed < <(
        "$program" --list --format terse 2>/dev/null | sed -n 's/: test$//p' |
            grep -vxFf <(sed -n 's/^test \(.*\) \.\.\. ok$/\1/p; s/^test \(.*\) \.\.\. ignored.*$/\1/p' "$log")
    )
fi
if [ ${#not_passed[@]} -eq 0 ] || [ ${#not_passed[@]} -gt "${SECOND_TRIES:-3}" ]; then
    [ -z "$hangs" ] || echo "HANGS: $name did not end within $limit s; of its tests, those without a result above did not end"
    [ -n "$hangs" ] || echo "FAILS: $name ended with $code"
    exit "$code"
fi

failed=0
for test in "${not_passed[@]}"; do
    printf '\n-- second try of %s %s\n' "$name" "$test"
    code=0
    timeout "${options[@]}" 300 "$program" --exact "$test" || code=$?
    case $code in
    0) echo "SECOND TRY: $name $test" ;;
    124 | 137) echo "HANGS: $name $test did not end within 300 s, alone" ;;
    *) echo "FAILS: $name $test, alone too" ;;
    esac
    [ $code -eq 0 ] || failed=1
done
exit $failed
