#!/usr/bin/env bash
# Runs the example until the account is empty, on a PostgreSQL server of its own.
set -euo pipefail
program=$1
bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
folder=$(mktemp -d)
as=()
if [ "$(id -u)" -eq 0 ]; then
    chown postgres: "$folder"
    as=(setpriv --reuid=postgres --regid=postgres --clear-groups)
fi
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
(cd / && "${as[@]}" "$bin/initdb" -D "$folder/data" -U postgres --auth=trust --no-sync >/dev/null)
(cd / && exec "${as[@]}" "$bin/postgres" -D "$folder/data" -p "$port" -c listen_addresses=127.0.0.1 \
    -c unix_socket_directories="$folder" 2>"$folder/log") &
server=$!
trap 'kill -INT $server; wait $server || true; rm -rf "$folder"' EXIT
sql() { psql -X -q -A -t -h 127.0.0.1 -U postgres -d postgres -p "$port" -c "$1"; }
for _ in $(seq 200); do
    sql 'SELECT 1' >/dev/null 2>&1 && break
    sleep 0.05
done
sql 'CREATE TABLE account (id int PRIMARY KEY, cents bigint NOT NULL); INSERT INTO account VALUES (7, 20), (8, 0)'
export DATABASE_URL=postgres://postgres@127.0.0.1:$port/postgres
"$program" | grep -F '10 cents are left (Fenced)'
"$program" | grep -F '0 cents are left (Fenced)'
! "$program" 2>"$folder/refused"
grep -F 'not enough money' "$folder/refused"
[ "$(sql 'SELECT string_agg(id || chr(58) || cents, chr(32) ORDER BY id) FROM account')" = "7:0 8:20" ]
