"""A candidate of the Python client's election, which counts its terms in a file: it reads a number, waits, and writes the
next one. Two leaders at once would lose a count.

The elector itself has no release: a term ends here as client-go ends it, by an empty holder.

usage: elector.py KUBECONFIG NAMESPACE LEASE IDENTITY TERMS FILE
"""

import sys
import time

from kubernetes import config
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

kubeconfig, namespace, name, identity, terms, path = sys.argv[1:]
config.load_kube_config(kubeconfig)


def count():
    with open(path) as file:
        number = int(file.read())
    time.sleep(0.002)
    with open(path, "w") as file:
        file.write(str(number + 1))


for term in range(int(terms)):
    lock = LeaseLock(name, namespace, identity)
    candidate = leaderelection.LeaderElection(electionconfig.Config(
        lock, lease_duration=15, renew_deadline=10, retry_period=2, onstarted_leading=count,
        onstopped_leading=lambda: None))
    # Its own loop asks every two seconds.
    while not candidate.try_acquire_or_renew():
        time.sleep(0.02)
    count()
    while True:
        held = lock.api_instance.read_namespaced_lease(name, namespace)
        held.spec.holder_identity = ""
        held.spec.lease_duration_seconds = 1
        try:
            lock.api_instance.replace_namespaced_lease(name, namespace, held)
            break
        except Exception:
            continue
    # Who has just released leaves the next term to others.
    time.sleep(0.01)
