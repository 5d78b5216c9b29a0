#!/bin/sh
# Runs the SQL files of a folder that the database does not have yet, in order: a small migration
# tool, which several hosts may start at once.
#
#   export DATABASE_URL=postgres://app@127.0.0.1/shop
#   export LEASEHOLD_STORE="$DATABASE_URL?create=auto"    # &create=auto behind other options
#   leasehold run --lock migrate --wait 15m -- examples/tool/migrate.sh migrations
set -eu

sql() { psql -X -q -A -t -v ON_ERROR_STOP=1 "$DATABASE_URL" "$@"; }

sql -c 'CREATE TABLE IF NOT EXISTS migrations_done (name text PRIMARY KEY)'
known=$(sql -c 'SELECT name FROM migrations_done')
for file in "$1"/*.sql; do
    name=$(basename "$file" .sql)
    if echo "$known" | grep -qxF "$name"; then continue; fi
    leasehold check --remaining 1s
    # One transaction, so that nothing is left of a migration that was ended in the middle.
    sql -1 -f "$file" -c "INSERT INTO migrations_done VALUES ('$name')"
    echo "applied $name"
done
