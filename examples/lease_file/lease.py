#!/usr/bin/env python3
"""Is the lease of this command live? Lease().remaining(): what is left in ns, 0 once it is over."""
import mmap, os, re, stat, sys, time

class Lease:
    def __init__(self, path=None):
        """Raises OSError or ValueError for what is no record of a lease of this boot."""
        self.path = path or os.environ["LEASEHOLD_LEASE"]
        try:
            timens = re.sub(r"\D", "", os.readlink("/proc/self/ns/time"))
        except OSError:
            timens = "0"  # Linux before 5.6 has one time
        with open("/proc/sys/kernel/random/boot_id") as boot:
            self.machine = [b"boot=" + boot.read().strip().encode(), b"timens=" + timens.encode()]
        self.over = False
        self.open()

    def open(self):
        file = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode) or found.st_uid not in (0, os.geteuid()):
                raise ValueError("no file of ours or of root")
            self.map = mmap.mmap(file, found.st_size, prot=mmap.PROT_READ)
        finally:
            os.close(file)
        self.parse()

    def parse(self):
        self.deadline = 0
        for _ in range(100):  # a reader may see a part of a write
            self.line = self.map[:]
            text, _, end = self.line.rpartition(b" sum=")
            sum = 0xCBF29CE484222325
            for byte in text:
                sum = (sum ^ byte) * 0x100000001B3 % 2**64
            fields = text.split()
            if end == b"%016x\n" % sum and fields[:2] == [b"leasehold-lease", b"1"]:
                break
        else:
            raise ValueError("no record of a lease, or of a later version")
        if fields[5:7] != self.machine:
            raise ValueError("of another boot or time namespace")
        self.deadline = int(fields[3][9:]) if fields[2] == b"state=live" else 0

    def remaining(self, again=False):
        left = 0
        try:
            if again:
                self.open()
            if self.map[:] != self.line:  # what has not changed was judged before
                self.parse()
            left = self.deadline - time.clock_gettime_ns(time.CLOCK_BOOTTIME)  # the clock is last
        except (OSError, ValueError):
            pass
        if left > 0 and not self.over:
            return left
        if not again and not self.over:  # a file that was deleted is made again
            return self.remaining(again=True)
        self.over = True  # final
        return 0
