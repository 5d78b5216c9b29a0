#!/usr/bin/env bash
# Breaks one rule at a time in a copy of this tree, and demands that the judges refuse a history of worlds with that rule broken.
#
# usage: tests/proof/judge/mutants.sh [part of a mutant's name]...
#
#   SEEDS=200   how many worlds a mutant gets, in parts of 20
#
# mutants.txt lists the mutants of tests/mutants/ that a history can show. Without a mutant the same worlds must be right.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
target=$(cd "$root" && cargo metadata --format-version 1 --no-deps --offline --locked |
    sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
tree=$target/mutants/tree
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cargo build --quiet --locked --release --target-dir "$target/judge" --manifest-path "$here/Cargo.toml"
judge=$target/judge/release/leasehold-judge

# Copied without their times, as tests/mutants/run.sh does.
rm -rf "$tree"
mkdir -p "$tree"
(cd "$root" && git ls-files -z --cached --others --exclude-standard |
    while IFS= read -r -d '' file; do
        [ ! -f "$file" ] || printf '%s\0' "$file"
    done | xargs -0 cp --parents -t "$tree")
cd "$tree"

build() {
    cargo test --locked --release --target-dir "$target/mutants/target" --manifest-path tests/proof/sim/Cargo.toml \
        --test sim --no-run >"$work/log" 2>&1 || return 1
    sim=$(sed -n 's/.*Executable .*(\(.*\))$/\1/p' "$work/log")
}

# Writes 20 worlds of a store, from a seed on.
histories() {
    local only=()
    [ "$1" = memory ] || only=("$1")
    timeout --kill-after=10 600 "$sim" "${only[@]}" history="$work/histories" first="$2" seeds=20 >"$work/log" 2>&1
}

mapfile -t lines < <(grep '^[a-z]' "$here/mutants.txt")
chosen=()
for line in "${lines[@]}"; do
    [ $# -gt 0 ] || chosen+=("$line")
    for part in "$@"; do [[ ${line%% *} != *"$part"* ]] || chosen+=("$line"); done
done
if [ ${#chosen[@]} -eq 0 ]; then
    echo "no mutant is named like that" >&2
    exit 2
fi

build || { cat "$work/log" >&2; exit 1; }
for store in $(printf '%s\n' "${chosen[@]}" | cut -d' ' -f2 | sort -u); do
    histories "$store" 0
    "$judge" "$work/histories" >"$work/log" || { cat "$work/log"; echo "without a mutant a world on $store is refused"; exit 1; }
done

refused=0
for line in "${chosen[@]}"; do
    read -r name store <<<"$line"
    mutant=$root/tests/mutants/$name.mutant
    python3 "$root/tests/mutants/apply.py" "$tree" "$mutant" >"$work/touched" || { echo "STALE    $name"; continue; }
    mapfile -t touched <"$work/touched"
    touch "${touched[@]}"
    verdict="SURVIVED" by=""
    if build; then
        for ((first = 0; first < ${SEEDS:-200}; first += 20)); do
            histories "$store" "$first" || { verdict=BROKEN; by="no histories"; break; }
            if "$judge" --refused "$work/histories" >"$work/log"; then
                verdict=refused by=$(sed -n 's/^REFUSED //p' "$work/log" | head -n 1 | cut -c 1-150)
                break
            fi
        done
    else
        verdict=BROKEN by="does not compile"
    fi
    printf '%-9s %-44s %s\n' "$verdict" "$name" "$by"
    [ $verdict != refused ] || refused=$((refused + 1))
    for file in "${touched[@]}"; do
        rm -f "$file"
        [ ! -f "$root/$file" ] || cp "$root/$file" "$file"
    done
done
echo "mutants: ${#chosen[@]}, refused by the judges: $refused"
[ $refused -eq ${#chosen[@]} ]
