"""A kazoo client that takes a lock a number of times and notes each begin and end in a shared log.

usage: contender.py HOST:PORT PATH TURNS LOG
"""
import os
import sys
import time

from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock

address, path, turns, log = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
client = KazooClient(hosts=address)
client.start()
file = os.open(log, os.O_WRONLY | os.O_APPEND)
for _ in range(turns):
    lock = Lock(client, path, "kazoo", extra_lock_patterns=["-lock-"])
    with lock:
        os.write(file, b"begin kazoo\n")
        time.sleep(0.02)
        os.write(file, b"end kazoo\n")
client.stop()
