#!/usr/bin/env bash
# As the example over tokio-postgres: the same transfer of the same account.
exec "$(dirname "${BASH_SOURCE[0]}")/transfer_postgres.sh" "$@"
