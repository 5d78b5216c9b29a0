#!/usr/bin/env bash
# Runs the example on a Redis server of its own.
exec "$(dirname "$0")/on_redis.sh" "$1"
