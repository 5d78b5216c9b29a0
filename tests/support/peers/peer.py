"""kazoo's locks, driven by the lines that Peer.java takes.

usage: peer.py HOST:PORT
"""
import sys
import time

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout

OURS = ["-lock-", "-__WRIT__"]


def recipe(kind, path):
    if kind == "kazoo_lock":
        return client.Lock(path, "kazoo", extra_lock_patterns=OURS + ["-__READ__"])
    if kind == "kazoo_read":
        return client.ReadLock(path, "kazoo", extra_lock_patterns=OURS)
    if kind == "kazoo_write":
        return client.WriteLock(path, "kazoo", extra_lock_patterns=OURS + ["-__READ__"])
    if kind == "kazoo_plain_lock":
        return client.Lock(path, "kazoo")
    if kind == "kazoo_plain_read":
        return client.ReadLock(path, "kazoo")
    if kind == "kazoo_plain_write":
        return client.WriteLock(path, "kazoo")
    if kind == "kazoo_semaphore":
        return client.Semaphore(path, "kazoo", max_leases=1)
    raise ValueError(kind)


def take(kind, path, millis):
    lock = recipe(kind, path)
    try:
        return lock if lock.acquire(timeout=millis / 1000) else None
    except LockTimeout:
        return None


def add_one(file):
    with open(file) as old:
        value = int(old.read())
    # Work that takes a while, in which another holder would read the same number.
    time.sleep(0.005)
    with open(file, "w") as new:
        new.write(str(value + 1))


client = KazooClient(hosts=sys.argv[1])
client.start()
print("up", flush=True)
held = None
for line in sys.stdin:
    words = line.split()
    if words[0] == "take":
        held = take(words[1], words[2], int(words[3]))
        print("busy" if held is None else "taken", flush=True)
    elif words[0] == "free":
        held.release()
        print("free", flush=True)
    elif words[0] == "turns":
        for _ in range(int(words[3])):
            lock = take(words[1], words[2], 60_000)
            add_one(words[4])
            lock.release()
        print("done", flush=True)
client.stop()
