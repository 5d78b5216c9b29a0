"""As drive.c."""
import sys, time

from lease import Lease

try:
    lease = Lease()
except (OSError, ValueError) as why:
    print(f"refused: {why}", file=sys.stderr)
    sys.exit(65)
for times in map(int, sys.stdin):
    began = time.perf_counter_ns()
    for _ in range(times):
        left = lease.remaining()
    print(left, (time.perf_counter_ns() - began) // times, flush=True)
