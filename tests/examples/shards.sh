#!/usr/bin/env bash
# The members of one process; then three processes on a Redis server, of which one is stopped.
set -euo pipefail
if [ $# = 1 ]; then
    "$1"
    exec tests/examples/on_redis.sh "$0" "$1"
fi
folder=$(mktemp -d)
members=()
stop() {
    for member in "${members[@]}"; do kill "$member" 2>/dev/null || true; done
    wait
    rm -rf "$folder"
}
trap stop EXIT

# The last line of a member names this many shards.
owns() { [ "$(tail -n 1 "$folder/$1" 2>/dev/null | grep -o '[0-9]\+' | wc -l)" = "$2" ]; }
# Until each of the members from $2 on owns $1 shards.
share() {
    for _ in $(seq 400); do
        is_shared=yes
        for member in "${@:2}"; do owns "$member" "$1" || is_shared=no; done
        [ $is_shared = no ] || return 0
        sleep 0.05
    done
    tail "$folder"/*
    return 1
}

for member in 1 2 3; do
    "$1" "$2" >"$folder/$member" &
    members+=($!)
done
share 4 1 2 3
kill "${members[0]}"
wait "${members[0]}"
share 6 2 3
grep -q 'it owns nothing' "$folder/1"
tail -n 3 "$folder"/*
