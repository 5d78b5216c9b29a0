#!/usr/bin/env bash
# Breaks one safety rule at a time in a copy of this tree and demands that a test notices.
#
# usage: tests/mutants/run.sh [--list | --check | --by sim] [part of a mutant's name]...
#
#   --list    print each mutant and the rule that it breaks
#   --check   only check that each mutant still applies (seconds)
#   --by sim  not by their tests but by simulated worlds, for those that sim.txt lists (SEEDS=1600 worlds each; an hour)
#
# Each file beside this one, NAME.mutant, is one mutant: two lines of header, then blocks of text to find and to replace
# (apply.py describes them).
#
#   # cargo test --test fence a_permit_that_is_kept     the test that must fail (with --all-features)
#   # breaks: a permit ends with its run (I4)           the rule that is broken
#
# A mutant counts as caught when the test passes without it, compiles with it, and then fails. This script fails if a
# mutant does not apply, does not compile or survives, and if a test runs nothing or does not end.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
limit=${MUTANT_SECONDS:-300}
target=$(cd "$root" && cargo metadata --format-version 1 --no-deps --offline 2>/dev/null |
    sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
target=${target:-$root/target}
# Always the same folders, so that what is compiled there is compiled once. The target folder is not the repository's own: cargo
# recognizes a workspace by its relative paths, and would take what a mutant left for what the repository was compiled to.
tree=$target/mutants/tree
export CARGO_TARGET_DIR=$target/mutants/target CARGO_TERM_COLOR=never RUST_BACKTRACE=0
# Each mutant is a small change of what was compiled just before.
export CARGO_INCREMENTAL=1
log=$(mktemp)
trap 'rm -f "$log"' EXIT

mode=run
case ${1:-} in
--list | --check)
    mode=${1#--}
    shift
    ;;
--by)
    [ "${2:-}" = sim ] || { echo "--by knows only 'sim'" >&2; exit 2; }
    mode=sim
    shift 2
    ;;
esac

worlds="--release --manifest-path tests/proof/sim/Cargo.toml --test sim -- stop seeds=${SEEDS:-1600}"
command_of() {
    if [ $mode = sim ]; then
        echo "$worlds"
    else
        sed -n '1s/^# cargo test //p' "$1"
    fi
}
# Whether simulated worlds are to find a mutant: it is listed, and no reason says that they do not.
is_for_worlds() { grep -qx "$1" "$here/sim.txt"; }
rule_of() { sed -n '2s/^# breaks: //p' "$1"; }

mutants=()
for mutant in "$here"/*.mutant; do
    if [ $# -gt 0 ]; then
        wanted=no
        for part in "$@"; do [[ $(basename "$mutant") == *"$part"* ]] && wanted=yes; done
        [ $wanted = yes ] || continue
    fi
    [ $mode != sim ] || is_for_worlds "$(basename "$mutant" .mutant)" || continue
    if [ -z "$(command_of "$mutant")" ] || [ -z "$(rule_of "$mutant")" ]; then
        echo "$mutant: the first two lines must be '# cargo test ...' and '# breaks: ...'" >&2
        exit 2
    fi
    mutants+=("$mutant")
done
if [ ${#mutants[@]} -eq 0 ]; then
    echo "no mutant is named like that" >&2
    exit 2
fi
if [ $mode = list ]; then
    for mutant in "${mutants[@]}"; do
        printf '%-44s %s\n' "$(basename "$mutant" .mutant)" "$(rule_of "$mutant")"
    done
    exit 0
fi

if [ $mode = check ]; then
    python3 "$here/apply.py" --check "$root" "${mutants[@]}"
    exit
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

# All of them before the first mutant: a mistake is reported at once, and the compiler is not sent back and forth.
for mutant in "${mutants[@]}"; do
    baseline "$(command_of "$mutant")"
done

caught=0
failed=0
verdict() { printf '%-9s %-40s %s\n' "$1" "$2" "$3"; }
verdict mutant "" "caught by"
for mutant in "${mutants[@]}"; do
    name=$(basename "$mutant" .mutant)
    command=$(command_of "$mutant")
    if ! python3 "$here/apply.py" "$tree" "$mutant" >"$log" 2>&1; then
        verdict STALE "$name" "it does not apply"
        show_log
        failed=$((failed + 1))
        continue
    fi
    mapfile -t touched <"$log"
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
            verdict SURVIVED "$name" "cargo test $command; breaks: $(rule_of "$mutant")"
            failed=$((failed + 1))
        elif [ $status -eq 124 ] || [ $status -eq 137 ]; then
            verdict HUNG "$name" "cargo test $command did not end within $limit s"
            failed=$((failed + 1))
        elif ! grep -q 'test result: FAILED' "$log"; then
            verdict UNCLEAR "$name" "cargo test $command ended with $status, but no test failed"
            show_log
            failed=$((failed + 1))
        else
            by=$(sed -n 's/^seed \([0-9]* *: .*\)/seed \1/p' "$log" | head -n 1 | cut -c 1-100)
            [ -n "$by" ] || by=$(sed -n 's/^    \([A-Za-z0-9_:]*\)$/\1/p' "$log" | sort -u |
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

if [ $mode = sim ] && [ $# -eq 0 ]; then
    echo "listed for simulated worlds: $(grep -c '^[a-z]' "$here/sim.txt"), and not to be found there:"
    sed -n 's/^\([a-z-]*\) \(.*\)/    \1: \2/p' "$here/sim.txt"
fi
echo "mutants: ${#mutants[@]}, caught: $caught, not caught: $failed"
[ $failed -eq 0 ]
