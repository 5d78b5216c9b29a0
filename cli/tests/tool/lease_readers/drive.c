/* Reads the lease as many times as each line of the input says, and prints what the last has found
 * and the nanoseconds of each. */
#include "lease.h"

static int64_t now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

int main(void) {
    struct lease lease = {0};
    if (!lease_open(&lease, getenv("LEASEHOLD_LEASE"))) return fputs("refused\n", stderr), 65;
    for (int64_t times, left = 0; scanf("%" SCNd64, &times) == 1; fflush(stdout)) {
        int64_t began = now();
        for (int64_t i = 0; i < times; i++) left = lease_remaining(&lease);
        printf("%" PRId64 " %" PRId64 "\n", left, (now() - began) / times);
    }
}
