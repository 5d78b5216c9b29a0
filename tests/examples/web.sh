#!/usr/bin/env bash
# Runs the web examples on a Redis server of their own.
#
# usage: tests/examples/web.sh FOLDER_OF_THE_PROGRAMS
exec "$(dirname "$0")/on_redis.sh" python3 "$(dirname "$0")/web.py" "$1"
