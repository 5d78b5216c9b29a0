#!/usr/bin/env bash
# Judges histories of worlds and of real servers by checkers of other people.
#
# usage: tests/proof/judge/run.sh [worlds] [servers] [mutants]      worlds alone if nothing is said
#
#   worlds    simulated worlds on each store must be right, and worlds in which clocks stop must be refused
#   servers   the nemesis on real servers (FAULTS=10 with a fence and as many pauses without one, on each store)
#   mutants   each mutant of mutants.txt must be refused
#
#   JUDGED_WORLDS=100   so many worlds on the memory store and quorums, and a quarter on each other store
#   HISTORIES=FOLDER    where the histories stay, instead of a temporary folder
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../../.."
target=$(cargo metadata --format-version 1 --no-deps --offline --locked |
    sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
export CARGO_TERM_COLOR=never
if [ -n "${HISTORIES:-}" ]; then
    folder=$HISTORIES
    mkdir -p "$folder"
else
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
fi

cargo build --quiet --locked --release --target-dir "$target/judge" --manifest-path "$here/Cargo.toml"
judge() { printf '%s: ' "$1" && shift && "$target/judge/release/leasehold-judge" "$@"; }

worlds() {
    sim() {
        cargo test --quiet --locked --release --target-dir "$target/sim" --manifest-path tests/proof/sim/Cargo.toml --test sim -- "$@"
    }
    local most=${JUDGED_WORLDS:-100}
    sim history="$folder/memory" seeds="$most"
    judge "worlds on memory" "$folder/memory"
    for store in register redis zookeeper; do
        sim "$store" history="$folder/$store" seeds=$((most / 4))
        judge "worlds on $store" "$folder/$store"
    done
    # A judge that never refuses shows nothing.
    sim unsound history="$folder/unsound" seeds=20
    judge "worlds whose clocks stop" --refused "$folder/unsound"
}

servers() {
    cargo build --quiet --locked --release --target-dir "$target/nemesis" --manifest-path tests/proof/nemesis/Cargo.toml
    for store in redis postgres zookeeper redlock files; do
        "$target/nemesis/release/leasehold-nemesis" "$store" --faults "${FAULTS:-10}" --pauses "${FAULTS:-10}" \
            --history "$folder/servers-$store"
        judge "the nemesis on $store" "$folder/servers-$store"
    done
}

for part in "${@:-worlds}"; do
    case $part in
    worlds | servers) $part ;;
    mutants) "$here/mutants.sh" ;;
    *) echo "usage: tests/proof/judge/run.sh [worlds] [servers] [mutants]" >&2; exit 2 ;;
    esac
done
