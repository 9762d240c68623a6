#!/usr/bin/env python3
"""Runs an agent on each of two hosts, and cuts the cable of the second one.

    lost_network.py FOLDER_OF_PROGRAMS

No process ends, so the agents notice it by keep-alive only: that of node 0 goes on alone, the other one ends with 5.
"""
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "services"))
from hosts import Hosts, send_signal, skip_unless_possible  # noqa: E402

BIN = pathlib.Path(sys.argv[1])
PATIENCE = 120  # seconds


def start(hosts, name, folder):
    script = f"echo $RANK of $WORLD_SIZE >> {folder}/started; trap 'exit 75' TERM; while :; do sleep 0.05; done"
    return hosts.start(name, [BIN / "ddpxx-run", "--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=node1:29400",
                              "--rdzv-conf=last_call_timeout=600,keep_alive_interval=1,keep_alive_max_attempt=2",
                              "--grace=5", "/bin/bash", "-c", script],
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for_starts(folder, wanted):
    started = folder / "started"
    end = time.monotonic() + PATIENCE
    while sorted(started.read_text().splitlines() if started.exists() else []) != wanted:
        assert time.monotonic() < end, f"started are {started.read_text().splitlines()}, not {wanted}"
        time.sleep(0.02)


def main():
    skip_unless_possible()
    with tempfile.TemporaryDirectory() as folder, Hosts(["node1", "node2"]) as hosts:
        folder = pathlib.Path(folder)
        first, second = (start(hosts, name, folder) for name in hosts.names)
        wait_for_starts(folder, ["0 of 2", "1 of 2"])
        hosts.cut("node2")
        wait_for_starts(folder, ["0 of 1", "0 of 2", "1 of 2"])
        text = second.communicate(timeout=PATIENCE)[0]
        assert second.returncode == 5 and "has ended or cannot be reached" in text, text
        send_signal(first)
        text = first.communicate(timeout=PATIENCE)[0]
        assert first.returncode == 75 and "is lost" in text, text
    print("agents go on without a host whose network is lost")


main()
