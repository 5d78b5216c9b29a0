#!/usr/bin/env bash
# Breaks one safety rule at a time in a copy of this tree and demands that a test notices.
#
# usage: tests/mutants/run.sh [--list] [part of a mutant's name]...
#
# Each file beside this one, NAME.patch, is one mutant. Above the diff stand two lines:
#
#   # cargo test --test loom lease_word       the test that must fail (with --all-features)
#   # breaks: revocation is a swap (I2)       the rule that is broken
#
# A mutant counts as caught when the test passes without the patch, compiles with it, and then fails. A patch that does
# not apply, a mutant that does not compile, a test that runs nothing or does not end: each fails this script, as does
# a mutant that survives.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
limit=${MUTANT_SECONDS:-300}
target=$(cd "$root" && cargo metadata --format-version 1 --no-deps --offline 2>/dev/null |
    sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
target=${target:-$root/target}
# Always the same folders, so that what is compiled there is compiled once. The target folder is not the repository's own: cargo
# tells a workspace by its relative paths, and would take what a mutant left for what the repository was compiled to.
tree=$target/mutants/tree
export CARGO_TARGET_DIR=$target/mutants/target CARGO_TERM_COLOR=never RUST_BACKTRACE=0
# The copy may lie inside the repository; its patches are not the repository's business.
export GIT_CEILING_DIRECTORIES=$target
log=$(mktemp)
trap 'rm -f "$log"' EXIT

command_of() { sed -n '1s/^# cargo test //p' "$1"; }
rule_of() { sed -n '2s/^# breaks: //p' "$1"; }

mutants=()
for patch in "$here"/*.patch; do
    if [ $# -gt 0 ] && [ "$1" != --list ]; then
        wanted=no
        for part in "$@"; do [[ $(basename "$patch") == *"$part"* ]] && wanted=yes; done
        [ $wanted = yes ] || continue
    fi
    if [ -z "$(command_of "$patch")" ] || [ -z "$(rule_of "$patch")" ]; then
        echo "$patch: the first two lines must be '# cargo test ...' and '# breaks: ...'" >&2
        exit 2
    fi
    mutants+=("$patch")
done
if [ ${#mutants[@]} -eq 0 ]; then
    echo "no mutant is named like that" >&2
    exit 2
fi
if [ "${1:-}" = --list ]; then
    for patch in "${mutants[@]}"; do
        printf '%-44s %s\n' "$(basename "$patch" .patch)" "$(rule_of "$patch")"
    done
    exit 0
fi

# Copied without their times: what an earlier mutant left in the target folder is older than every file here.
rm -rf "$tree"
mkdir -p "$tree"
(cd "$root" && git ls-files -z --cached --others --exclude-standard |
    while IFS= read -r -d '' file; do
        [ ! -f "$file" ] || printf '%s\0' "$file"
    done | xargs -0 cp --parents -t "$tree")
cd "$tree"

# The words of a test command, as an array: headers are plain words without quotes.
split() { read -r -a words <<<"$1"; }

run_test() {
    split "$1"
    timeout --kill-after=10 "$limit" cargo test --quiet --all-features "${words[@]}" >"$log" 2>&1
}

compiles() {
    split "$1"
    local arguments=()
    for word in "${words[@]}"; do
        [ "$word" != -- ] || break
        arguments+=("$word")
    done
    cargo test --quiet --all-features --no-run "${arguments[@]}" >"$log" 2>&1
}

show_log() { sed 's/^/    | /' "$log" | tail -n 40; }

declare -A sound=()
baseline() {
    [ -z "${sound[$1]:-}" ] || return 0
    # Compiled without the time limit of a test: the first of them compiles every dependency.
    if ! compiles "$1" || ! run_test "$1"; then
        echo "without a mutant 'cargo test $1' fails:" >&2
        show_log >&2
        exit 1
    fi
    if ! grep -qE 'test result: ok\. [1-9]' "$log"; then
        echo "'cargo test $1' runs no test: is the name in the mutant's header still right?" >&2
        exit 1
    fi
    sound[$1]=yes
}

# All of them before the first mutant: a mistake is told at once, and the compiler is not sent back and forth.
for patch in "${mutants[@]}"; do
    baseline "$(command_of "$patch")"
done

caught=0
failed=0
verdict() { printf '%-9s %-40s %s\n' "$1" "$2" "$3"; }
verdict mutant "" "caught by"
for patch in "${mutants[@]}"; do
    name=$(basename "$patch" .patch)
    command=$(command_of "$patch")
    if ! git apply --check "$patch" 2>"$log"; then
        verdict STALE "$name" "the patch does not apply"
        show_log
        failed=$((failed + 1))
        continue
    fi
    mapfile -t touched < <(git apply --numstat "$patch" | cut -f3)
    git apply "$patch"
    # A file is newer than what was compiled from it only if the clock has moved on.
    touch "${touched[@]}"
    if ! compiles "$command"; then
        verdict BROKEN "$name" "does not compile, which proves nothing"
        show_log
        failed=$((failed + 1))
    else
        status=0
        run_test "$command" || status=$?
        if [ $status -eq 0 ]; then
            verdict SURVIVED "$name" "cargo test $command; breaks: $(rule_of "$patch")"
            failed=$((failed + 1))
        elif [ $status -eq 124 ] || [ $status -eq 137 ]; then
            verdict HUNG "$name" "cargo test $command did not end within $limit s"
            failed=$((failed + 1))
        elif ! grep -q 'test result: FAILED' "$log"; then
            verdict UNCLEAR "$name" "cargo test $command ended with $status, but no test failed"
            show_log
            failed=$((failed + 1))
        else
            by=$(sed -n 's/^    \([A-Za-z0-9_:]*\)$/\1/p' "$log" | sort -u |
                awk 'NR == 1 { first = $0 } END { print first (NR > 1 ? " and " NR - 1 " more" : "") }')
            verdict caught "$name" "$by"
            caught=$((caught + 1))
        fi
    fi
    for file in "${touched[@]}"; do
        rm -f "$file"
        [ ! -f "$root/$file" ] || cp "$root/$file" "$file"
    done
done

echo "mutants: ${#mutants[@]}, caught: $caught, not caught: $failed"
[ $failed -eq 0 ]
