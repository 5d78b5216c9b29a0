#!/usr/bin/env bash
# Starts a Redis server on a free loopback port, runs a program with its URL as the last argument, and stops the server.
set -euo pipefail
folder=$(mktemp -d)
server=
stop() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$folder"
}
trap stop EXIT
for _ in 1 2 3 4 5; do
    port=$((20000 + RANDOM % 20000))
    redis-server --port "$port" --bind 127.0.0.1 --dir "$folder" --save '' --appendonly no >"$folder/log" 2>&1 &
    server=$!
    for _ in $(seq 100); do
        kill -0 "$server" 2>/dev/null || break
        [ "$(redis-cli -p "$port" ping 2>/dev/null)" != PONG ] || break 2
        sleep 0.05
    done
done
"$@" "redis://127.0.0.1:$port/0?restart_quarantine=off"
