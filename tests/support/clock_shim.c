/* For LD_PRELOAD: shifts the wall clock of a process by the milliseconds (a signed 64-bit number) in the file that CLOCK_SHIM names.
   The file may be written at any time. Monotonic clocks stay as they are. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *shift;

__attribute__((constructor)) static void begin(void) {
  const char *file = getenv("CLOCK_SHIM");
  int opened = file ? open(file, O_RDONLY) : -1;
  if (opened < 0) abort();
  void *mapped = mmap(0, sizeof *shift, PROT_READ, MAP_SHARED, opened, 0);
  if (mapped == MAP_FAILED) abort();
  shift = mapped;
  close(opened);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int failed = syscall(SYS_clock_gettime, clock, now);
  if (!failed && shift && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    long long nanos = now->tv_sec * 1000000000LL + now->tv_nsec + *shift * 1000000LL;
    now->tv_sec = nanos / 1000000000LL;
    now->tv_nsec = nanos % 1000000000LL;
  }
  return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  (void)zone;
  struct timespec read;
  clock_gettime(CLOCK_REALTIME, &read);
  now->tv_sec = read.tv_sec;
  now->tv_usec = read.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *now) {
  struct timespec read;
  clock_gettime(CLOCK_REALTIME, &read);
  if (now) *now = read.tv_sec;
  return read.tv_sec;
}
