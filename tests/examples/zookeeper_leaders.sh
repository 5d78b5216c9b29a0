#!/usr/bin/env bash
# Runs the example against a ZooKeeper of its own.
#
# usage: tests/examples/zookeeper_leaders.sh PROGRAM
set -euo pipefail
dir=$(mktemp -d)
# Below the ports that the system gives to who connects: a port of those that nobody listens at may connect to itself.
port=$((20000 + RANDOM % 10000))
cat >"$dir/zoo.cfg" <<TEXT
tickTime=2000
dataDir=$dir/data
clientPort=$port
clientPortAddress=127.0.0.1
admin.enableServer=false
4lw.commands.whitelist=*
maxClientCnxns=0
TEXT
java -Xmx256m -XX:+UseSerialGC -cp /usr/share/java/zookeeper.jar \
    org.apache.zookeeper.server.quorum.QuorumPeerMain "$dir/zoo.cfg" >"$dir/log" 2>&1 &
server=$!
trap 'kill -9 "$server" 2>/dev/null; rm -rf "$dir"' EXIT
serves() { timeout 2 bash -c 'exec 3<>/dev/tcp/127.0.0.1/$0 && printf srvr >&3 && grep -q Mode: <&3' "$port" 2>/dev/null; }
for _ in $(seq 300); do
    if serves; then
        "$1" "zookeeper://127.0.0.1:$port/leaders" 0.05
        exit
    fi
    sleep 0.1
done
cat "$dir/log" >&2
exit 1
