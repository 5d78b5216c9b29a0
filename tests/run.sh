#!/usr/bin/env bash
# Runs everything that shows that leasehold keeps its promises: unit tests, models, properties, conformance on real
# servers, doctests, examples, mutants. Prints what ran and what it came to; fails if anything failed or did not run.
#
# usage: tests/run.sh
#
# On Debian and Ubuntu it installs what is missing, with sudo if it must; elsewhere it says what to install. The tests
# start servers of their own on free ports of 127.0.0.1 and end them; servers that run already are left alone.
#
#   LEASEHOLD_INSTALL=no   install nothing, only say what is missing
#   MUTANTS=all            all mutants, not only those of the lease (more than half an hour)
#   MUTANT_SECONDS=300     how long one test of a mutant may take
#   EXAMPLE_SECONDS=300    how long one example may take
#   WORLDS=10000           how many simulated worlds
#   WORLDS_SECONDS=1800    how long they may take
#   JUDGED_WORLDS=100      how many of them other judges get
#   PROGRAM_SECONDS=900    how long one test program may take
#   SECOND_TRIES=3         how many tests of one program may get a second try (tests/program.sh)
#   APISERVER_SECONDS=1500 how long the API server of Kubernetes may take to build
#   BUCKET_SECONDS=600     how long moto and Azurite may take to install
#   RUST_TEST_THREADS=4    how many tests run side by side: most of them wait for servers
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# --- what the tests need -----------------------------------------------------------------------------------------

# The packages that are missing, each by a file or a command that it brings.
missing_packages() {
    command -v cc >/dev/null || echo build-essential
    command -v git >/dev/null || echo git
    command -v strace >/dev/null || echo strace
    command -v openssl >/dev/null || echo openssl
    command -v redis-server >/dev/null || echo redis-server
    command -v redis-cli >/dev/null || echo redis-tools
    command -v redis-sentinel >/dev/null || echo redis-sentinel
    # Brings a Java runtime along.
    { [ -e /usr/share/java/zookeeper.jar ] && command -v java >/dev/null; } || echo zookeeper
    [ -e /usr/share/java/curator-recipes.jar ] || echo libcurator-recipes-java
    command -v javac >/dev/null || echo default-jdk-headless
    # For the readers of lease files.
    command -v node >/dev/null || echo nodejs
    command -v go >/dev/null || echo golang-go
    ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || echo postgresql
    command -v pgbouncer >/dev/null || echo pgbouncer
    [ -x /usr/sbin/mariadbd ] || echo mariadb-server
    python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
    # For the proofs; a Python of one's own may have z3-solver instead.
    python3 -c 'import z3' 2>/dev/null || /usr/bin/python3 -c 'import z3' 2>/dev/null ||
        .venv/bin/python -c 'import z3' 2>/dev/null || echo python3-z3
}

if ! command -v cargo >/dev/null; then
    echo "cargo is missing: install Rust $(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml) or newer with https://rustup.rs" >&2
    exit 1
fi

mapfile -t missing < <(missing_packages)
if [ ${#missing[@]} -gt 0 ] && command -v apt-get >/dev/null && [ "${LEASEHOLD_INSTALL:-yes}" != no ]; then
    echo "installing ${missing[*]}"
    as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo)
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -qq -y --no-install-recommends "${missing[@]}"
    mapfile -t missing < <(missing_packages)
fi
if [ ${#missing[@]} -gt 0 ]; then
    cat >&2 <<TEXT
missing, by their Debian names: ${missing[*]}
Install what your system calls them, so that these are found:
  cc, git, openssl, strace, script and unshare (util-linux), redis-server, redis-cli, redis-sentinel (Redis 7.0 or newer), java (17 or newer), python3 with venv,
  /usr/lib/postgresql/*/bin (initdb and postgres, 15 or newer), pgbouncer, /usr/sbin/mariadbd (10.5 or newer),
  /usr/share/java/zookeeper.jar (ZooKeeper 3.8 or newer, with its libraries in the same folder), the same for
  curator-recipes.jar (Curator 5.4), javac, node (16 or newer), go (1.19 or newer), z3 for python3 (4.8 or newer)
TEXT
    exit 1
fi

# Clients in other languages, for the tests that take turns with them.
if [ -f tests/requirements.txt ]; then
    [ -x .venv/bin/python ] || python3 -m venv .venv
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -r tests/requirements.txt
fi

# --- tests and doctests ------------------------------------------------------------------------------------------

problems=()
status=0
target=$(cargo metadata --format-version 1 --no-deps --offline --locked |
    sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
# What every store came to, clause by clause.
conformance=$target/tmp/conformance.txt
rm -f "$conformance"
# A program that hangs is ended, reported by its name, and does not keep the others from running.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-4}
host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
export "CARGO_TARGET_${host}_RUNNER=$PWD/tests/program.sh"
# Examples are built here and run below.
cargo test --workspace --locked --all-features --no-fail-fast 2>&1 | tee "$log" || status=$?
[ $status -eq 0 ] || problems+=("cargo test ended with $status")

# Kubernetes: no package has its API server. It is built once, in some ten minutes, and kept in the target folder. Where it
# cannot be built, the store is tested on the fake server of the tests above alone, and the end says so.
not_run=()
apiserver=${LEASEHOLD_TEST_KUBE_APISERVER:-$PWD/target/servers/kube-apiserver}
has_apiserver() { [ -x "$apiserver" ] && [ -x target/servers/elector ] && command -v etcd >/dev/null; }
if ! has_apiserver && [ "${LEASEHOLD_INSTALL:-yes}" != no ]; then
    timeout --kill-after=10 "${APISERVER_SECONDS:-1500}" tests/kubernetes_server/build-apiserver.sh || true
fi
if has_apiserver; then
    # Its processes are the pods of a test. A package of its own, for its web framework.
    CARGO_TARGET_DIR=$target cargo build --locked --quiet --manifest-path examples/kubernetes/Cargo.toml ||
        problems+=("the example of Kubernetes was not built")
    cargo test -p leasehold --locked --all-features --test kubernetes_server 2>&1 | tee -a "$log" || problems+=("the tests on an API server failed")
else
    not_run+=("tests/kubernetes_server/main.rs: there is no kube-apiserver, and it was not built")
fi

# Buckets: two services in languages of their own, installed once and kept in the target folder.
bucket_servers=target/servers
has_bucket_servers() { [ -e "$bucket_servers/moto/.installed" ] && [ -e "$bucket_servers/azurite/.installed" ]; }
if ! has_bucket_servers && [ "${LEASEHOLD_INSTALL:-yes}" != no ]; then
    timeout --kill-after=10 "${BUCKET_SECONDS:-600}" tests/bucket_server/install.sh || true
fi
if has_bucket_servers; then
    cargo test -p leasehold --locked --all-features --test bucket_server 2>&1 | tee -a "$log" || problems+=("the tests on services with buckets failed")
else
    not_run+=("tests/bucket_server/main.rs: moto and Azurite are not installed (python3 with pip, npm)")
fi

# The sum of one column of all "test result:" lines.
sum_of() { sed -n "s/^test result: .* \([0-9]*\) $1[;,].*/\1/p" "$log" | awk '{ n += $1 } END { print n + 0 }'; }
passed=$(sum_of passed)
mapfile -t second < <(sed -n 's/^SECOND TRY: //p' "$log")
# A failure that a second try made good is not counted; one that hung has no first result.
failed=$(($(sum_of failed) > ${#second[@]} ? $(sum_of failed) - ${#second[@]} : 0))
ignored=$(sum_of ignored)
[ "$passed" -gt 0 ] || problems+=("no test ran")
mapfile -t named < <(sed -n 's/^\(HANGS\|FAILS\): //p' "$log")
problems+=("${named[@]}")
[ "$failed" -eq 0 ] || problems+=("$failed tests failed")
[ "$ignored" -eq 0 ] || problems+=("$ignored tests are ignored: what does not run shows nothing")

# Every password of a test holds this word, and no log may: programs that talk to servers read their own logs at every
# level (tests/support/canary.rs); here is what they printed.
canary=$(sed -n 's/^pub(crate) const CANARY: &str = "\(.*\)";$/\1/p' tests/support/canary.rs)
[ -n "$canary" ] || problems+=("the canary was not found in tests/support/canary.rs")
! grep -qF "$canary" "$log" || problems+=("a password was printed")

programs=0
for file in tests/*.rs tests/*/main.rs cli/tests/*/main.rs sqlx/tests/*.rs sqlx/tests/*/main.rs; do
    [ -f "$file" ] || continue
    [[ "${not_run[*]}" != *"$file"* ]] || continue
    programs=$((programs + 1))
    # By its name in its package.
    grep -qE "Running (${file}|${file#cli/}|${file#sqlx/}) " "$log" || problems+=("$file did not run")
done
[ -s "$conformance" ] || problems+=("the conformance of the stores was not reported")
grep -q "Doc-tests leasehold" "$log" || problems+=("the doctests did not run")

# --- orders of memory ---------------------------------------------------------------------------------------------

# A package of its own, so that loom is compiled for it alone. Tries every interleaving of the lease word and of the gate.
CARGO_TARGET_DIR=$target/loom cargo test --locked --manifest-path tests/loom/Cargo.toml 2>&1 | tee "$log" || problems+=("a model of the lease word or of the gate failed")
grep -q "test result: ok. [1-9]" "$log" || problems+=("the models of the lease word and of the gate did not run")

# --- proofs without bounds -------------------------------------------------------------------------------------------

# Each property is proved, and each rule is switched off and must be missed.
tests/proof/smt/run.sh 2>&1 | tee "$log" || problems+=("a proof failed, or a rule of one is not needed")
proofs=$(sed -n 's/^proofs: //p' "$log")
[ -n "$proofs" ] || problems+=("nothing was proved")

# --- the model ---------------------------------------------------------------------------------------------------

# A package of its own, so that its dependencies are not the library's. Checks every order of the protocol's messages.
CARGO_TARGET_DIR=$target/model cargo test --locked --manifest-path tests/proof/model/Cargo.toml 2>&1 | tee "$log" || problems+=("the model failed")
grep -q "test result: ok. [1-9]" "$log" || problems+=("the model did not run")

# --- simulated worlds ----------------------------------------------------------------------------------------------

# A package of its own, compiled with the optimizer; the plain tests above ran a few worlds without it.
worlds=${WORLDS:-10000}
# It waits for nothing but the processor, so on a busy machine it only takes longer.
PROGRAM_SECONDS=${WORLDS_SECONDS:-1800} cargo test --locked --release --target-dir "$target/sim" --manifest-path tests/proof/sim/Cargo.toml --test sim -- \
    seeds="$worlds" threads=2 coverage 2>&1 | tee "$log" || problems+=("a simulated world failed")
simulated=$(sed -n 's/^simulation: //p' "$log")
of_shards=$(sed -n 's/^of shards: //p' "$log")
on_register=$(sed -n 's/^on a register: //p' "$log")
on_redis=$(sed -n 's/^on redis: //p' "$log")
[ -n "$simulated" ] || problems+=("no world was simulated")
[ -n "$of_shards" ] || problems+=("no world of shards was simulated")
[ -n "$on_register" ] || problems+=("no world on a register was simulated")
[ -n "$on_redis" ] || problems+=("no world on Redis was simulated")
# The package's other test: the simulated Redis server answers as a real one.
cargo test --locked --release --target-dir "$target/sim" --manifest-path tests/proof/sim/Cargo.toml --test fidelity 2>&1 | tee "$log" || problems+=("the simulated Redis server differs from a real one")
grep -q "test result: ok. 1 passed" "$log" || problems+=("the simulated Redis server was not compared")

# --- judges of other people ----------------------------------------------------------------------------------------

# A package of its own: linearizability checkers from the registry, a specification, and histories of the worlds above.
CARGO_TARGET_DIR=$target/judge cargo test --locked --release --manifest-path tests/proof/judge/Cargo.toml 2>&1 | tee "$log" || problems+=("the specification of the histories failed")
grep -q "test result: ok. [1-9]" "$log" || problems+=("the specification of the histories was not tested")
tests/proof/judge/run.sh worlds 2>&1 | tee "$log" || problems+=("a history was refused, or was not although it is wrong")
judged=$(sed -n 's/^worlds on memory: judged: //p' "$log")
[ -n "$judged" ] || problems+=("no history was judged")

# --- a paused tokio clock --------------------------------------------------------------------------------------

# A package of its own, so that tokio's feature `testing` does not reach the other tests.
CARGO_TARGET_DIR=$target/paused cargo test --locked --manifest-path tests/paused/Cargo.toml 2>&1 | tee "$log" || problems+=("a test under a paused clock failed")
grep -q "test result: ok. [1-9]" "$log" || problems+=("the tests under a paused clock did not run")

# --- examples ----------------------------------------------------------------------------------------------------

# An example that needs arguments or a server has a script beside the tests, tests/examples/NAME.sh, which gets the
# program as its argument. One that says "Runs until it is stopped." in its docs is built only.
examples=0
ran=0
endless=0
run_example() {
    local name=$1
    shift
    printf '\n-- example %s\n' "$name"
    local code=0
    timeout --kill-after=10 "${EXAMPLE_SECONDS:-300}" "$@" </dev/null || code=$?
    # Those with a script talk to servers, and get a second try as such tests do.
    if [ $code -ne 0 ] && [ $# -gt 1 ]; then
        code=0
        timeout --kill-after=10 "${EXAMPLE_SECONDS:-300}" "$@" </dev/null && second+=("example $name") || code=$?
    fi
    if [ $code -eq 0 ]; then
        ran=$((ran + 1))
    else
        problems+=("example $name ended with $code")
    fi
}
for file in examples/*.rs examples/*/main.rs sqlx/examples/*.rs; do
    [ -f "$file" ] || continue
    case $file in
    */main.rs) name=$(basename "$(dirname "$file")") ;;
    *) name=$(basename "$file" .rs) ;;
    esac
    examples=$((examples + 1))
    program=$target/debug/examples/$name
    if grep -q '^//! Runs until it is stopped\.' "$file"; then
        endless=$((endless + 1))
        [ -x "$program" ] || problems+=("example $name was not built")
    elif [ -x "tests/examples/$name.sh" ]; then
        run_example "$name" "tests/examples/$name.sh" "$program"
    elif [ "$name" = quickstart ]; then
        # As the README says it; compiled outside of an example's time limit.
        cargo build --locked --quiet --release --example quickstart
        run_example "$name" cargo run --locked --quiet --release --example quickstart
    else
        run_example "$name" "$program"
    fi
done

# A package of its own, for its web framework.
examples=$((examples + 1))
if CARGO_TARGET_DIR=$target cargo build --locked --quiet --manifest-path examples/web/Cargo.toml; then
    run_example web tests/examples/web.sh "$target/debug"
else
    problems+=("the web examples were not built")
fi
# The same for OpenTelemetry.
examples=$((examples + 1))
if CARGO_TARGET_DIR=$target cargo build --locked --quiet --manifest-path examples/telemetry/Cargo.toml; then
    run_example opentelemetry "$target/debug/opentelemetry"
else
    problems+=("the example of OpenTelemetry was not built")
fi

# The same for two schedulers.
examples=$((examples + 2))
if CARGO_TARGET_DIR=$target cargo build --locked --quiet --manifest-path examples/schedulers/Cargo.toml; then
    for name in tokio_cron apalis_cron; do run_example $name "$target/debug/$name"; done
else
    problems+=("the examples of schedulers were not built")
fi

# --- mutants -----------------------------------------------------------------------------------------------------

printf '\n-- mutants\n'
mutants="none ran"
# Those of the lease word and the gate, which all else rests on. All of them take more than half an hour.
case ${MUTANTS:-core} in
all) chosen=() ;;
*) chosen=(lease-revocation lease-renewal lease-lapse lease-look run-is-raised gate-is) ;;
esac
tests/mutants/run.sh --check || problems+=("a mutant does not apply")
if tests/mutants/run.sh "${chosen[@]}" 2>&1 | tee "$log"; then
    mutants=$(tail -n 1 "$log")
else
    mutants=$(tail -n 1 "$log")
    problems+=("a mutant was not caught")
fi

# --- what it came to ---------------------------------------------------------------------------------------------

if [ -s "$conformance" ]; then
    printf '\n-- conformance\n'
    cat "$conformance"
fi
for test in "${second[@]}"; do
    echo "passed at its second try only, see its first failure above: $test"
done
cat <<TEXT

proofs:   $proofs
worlds:   $simulated
shards:   $of_shards
register: $on_register
on Redis: $on_redis
judged:   $judged
tests:    $passed passed, $failed failed, $ignored ignored, in $programs test programs, the library and its docs, the tool, the fence over sqlx
examples: $ran of $examples ran to their end, $endless are built only
$mutants
TEXT
[ ${#not_run[@]} -eq 0 ] || printf 'not run: %s\n' "${not_run[@]}"
if [ ${#problems[@]} -gt 0 ]; then
    printf 'FAILED: %s\n' "${problems[@]}"
    exit 1
fi
echo "everything that ran passed"
