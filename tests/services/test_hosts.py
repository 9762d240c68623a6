#!/usr/bin/env python3
"""Tests hosts.py: names, addresses, a cut link, and that nothing is left however the test ends."""

import pathlib
import signal
import subprocess
import sys
import time

from hosts import Hosts, send_signal, skip_unless_possible

# Prints what a client of each address hears from a server on node1; python3 stands for ping, which is not everywhere.
SERVER = """
import socket
server = socket.create_server(("::", 7000), family=socket.AF_INET6, dualstack_ipv6=True)
print("serves", flush=True)
while True:
    client, _ = server.accept()
    client.sendall(socket.gethostname().encode())
    client.close()
"""
CLIENT = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], 7000), timeout=float(sys.argv[2])) as server:
        print(server.recv(100).decode())
except TimeoutError:
    print("no answer")
"""


def ask(hosts, name, seconds=30):
    return hosts.run("node2", [sys.executable, "-c", CLIENT, name, seconds]).strip()


def check_network():
    with Hosts(["node1", "node2"]) as hosts:
        assert hosts.run("node1", ["hostname"]) == "node1\n"
        assert pathlib.Path("/etc/hosts").read_text() != hosts.run("node1", ["cat", "/etc/hosts"])
        server = hosts.start("node1", [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
        assert server.stdout.readline() == "serves\n"
        for name in ("node1", "node1-v4", "node1-v6", *hosts.addresses["node1"]):
            assert ask(hosts, name) == "node1", name
        hosts.cut("node1")
        assert ask(hosts, "node1-v4", 0.5) == "no answer"
        hosts.heal("node1")
        assert ask(hosts, "node1-v4") == "node1"
        send_signal(server, signal.SIGTERM)
        assert server.wait(timeout=30) == -signal.SIGTERM, server.returncode
    with Hosts(["node1", "node2"], ipv4=False) as hosts:
        assert "10.213" not in hosts.run("node1", ["ip", "addr"])


def check_end(how):
    """A process that makes hosts and ends by a signal leaves no process on them."""
    program = ("import time, hosts\n"
               "with hosts.Hosts(['node1']) as made:\n"
               "    process = made.start('node1', ['sleep', '1000'])\n"
               "    print(hosts.child_of(process), made._inits['node1'], flush=True)\n"
               "    time.sleep(1000)\n")
    owner = subprocess.Popen([sys.executable, "-c", program], cwd=pathlib.Path(__file__).parent,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    pids = list(map(int, owner.stdout.readline().split()))
    assert len(pids) == 2, pids
    owner.send_signal(how)
    owner.wait(timeout=30)
    end = time.monotonic() + 30
    while any(running(pid) for pid in pids):
        assert time.monotonic() < end, f"processes {pids} still run after {how}"
        time.sleep(0.02)


def running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def main():
    skip_unless_possible()
    check_network()
    for how in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        check_end(how)
    print("hosts reach each other by IPv4 and IPv6, a link can be cut, and nothing is left")


main()
