"""Drives the examples of examples/web on a Redis server: python3 web.py FOLDER_OF_THE_PROGRAMS STORE_URL"""

import http.client
import signal
import socket
import subprocess
import sys
import time

folder, url = sys.argv[1:]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def get(port, path, timeout=10.0):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def until(what, check, seconds=30.0):
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        try:
            found = check()
            if found:
                return found
        except OSError:
            pass
        time.sleep(0.05)
    raise SystemExit(f"never: {what}")


def start(program, *arguments):
    return subprocess.Popen([f"{folder}/{program}", url, *arguments])


def stop(process):
    # As Kubernetes and systemd do.
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0, process.returncode


# Two instances: one leads; it dies; the other one leads.
ports = [free_port(), free_port()]
instances = [start("leader_http", f"host-{i}", f"127.0.0.1:{port}") for i, port in enumerate(ports)]
try:
    leads = lambda i: "leads=true" in get(ports[i], "/health")[1]
    for port in ports:
        until("a healthy instance", lambda: get(port, "/health")[0] == 200)
    first = until("a leader", lambda: [i for i in (0, 1) if leads(i)])
    assert len(first) == 1, first
    first = first[0]
    instances[first].kill()
    began = time.monotonic()
    until("the next leader", lambda: leads(1 - first))
    print(f"the next leader after {time.monotonic() - began:.1f} s")
    stop(instances[1 - first])
finally:
    for instance in instances:
        instance.kill()

# A client that goes away leaves its lock to the next one.
port = free_port()
server = start("web_request", f"127.0.0.1:{port}")
try:
    until("a server", lambda: get(port, "/orders/1")[0] == 200)
    try:
        get(port, "/orders/7", timeout=0.2)
        raise SystemExit("the client did not go away")
    except TimeoutError:
        pass
    status, text = get(port, "/orders/7")
    assert status == 200 and "token=" in text, (status, text)
    print("the next client got the lock of the one that went away")
    stop(server)
finally:
    server.kill()
