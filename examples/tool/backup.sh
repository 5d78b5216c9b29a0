#!/bin/sh
# A script that checks its lease before it begins and before it replaces the old result.
#
#   leasehold run --store redis://127.0.0.1:6379 --lock backup -- examples/tool/backup.sh result.txt
set -eu

leasehold check --remaining 2s
date > "$1.new"
leasehold check --remaining 1s
mv "$1.new" "$1"
