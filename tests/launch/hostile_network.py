#!/usr/bin/env python3
"""Runs two ranks on two hosts whose networks are unlike those of a cluster.

    hostile_network.py FOLDER_OF_PROGRAMS

Hosts have IPv6 only; or a host's own name is 127.0.1.1 for itself, as on Debian, and each has a bridge with one and the
same address, as Docker makes it. The link between two hosts is cut while they train: both end with code 5 within the
limit, and the same command goes on when the link is whole again. A slow link that loses frames only delays them.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[1] / "services"))
from hosts import Hosts, skip_unless_possible  # noqa: E402

BIN = pathlib.Path(sys.argv[1])
NET = [BIN / "ddpxx", "net", "max_bytes=64KiB", "repeats=3"]
MINGPT = [BIN / "mingpt", f"data.path={HERE}", "data.block_size=32", "model.n_layer=1", "model.n_head=2",
          "model.n_embd=16", "generate.tokens=0"]
STEPS = 400
PATIENCE = 240  # seconds


def by_agents(words, endpoint="node1:29400"):
    """The command lines of one agent on each host."""
    return [[BIN / "ddpxx-run", "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d",
             f"--rdzv-endpoint={endpoint}", "--rdzv-id=7", *words]] * 2


def by_variables(words, master="node1"):
    """The command lines of ranks that no launcher has started: rank 0 serves the meeting."""
    return [["env", f"RANK={rank}", "LOCAL_RANK=0", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=1", f"MASTER_ADDR={master}",
             "MASTER_PORT=29600", *words] for rank in range(2)]


def start(hosts, lines):
    return [hosts.start(name, line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for name, line in zip(hosts.names, lines)]


def finish(processes, code=0):
    text = "".join(process.communicate(timeout=PATIENCE)[0] for process in processes)
    codes = [process.returncode for process in processes]
    assert codes == [code, code], f"{codes}: {text}"
    return text


def check_ipv6_only():
    with Hosts(["node1", "node2"], ipv4=False) as hosts:
        for lines in (by_agents(NET), by_agents(NET, "[fdd5::1]:29400"), by_variables(NET),
                      by_variables(NET, "fdd5::1")):
            text = finish(start(hosts, lines))
            assert "the ranks connect by IPv6: rank 0 at fdd5::1 (eth0)" in text and "2 ranks on 2 hosts" in text, text


def check_misleading_addresses():
    with Hosts(["node1", "node2"], ipv6=False) as hosts:
        for name in hosts.names:
            others = "".join(f"{hosts.addresses[other][0]} {other}\\n" for other in hosts.names if other != name)
            hosts.run(name, ["sh", "-euc", f"printf '127.0.0.1 localhost\\n127.0.1.1 {name}\\n{others}' > /etc/hosts\n"
                             "ip link add docker0 type bridge; ip link set docker0 up\n"
                             "ip addr add 172.17.0.1/16 dev docker0"])
        for lines in (by_agents(NET), by_variables(NET)):
            text = finish(start(hosts, lines))
            assert "the ranks connect by IPv4: rank 0 at 10.213.0.1 (eth0)" in text, text
            assert "2 ranks on 2 hosts" in text, text


def training(folder, name, steps, collective_timeout=60, save_every=STEPS):
    return by_agents([*MINGPT, f"training.max_steps={steps}", f"training.save_dir={folder}/{name}",
                      f"training.save_every={save_every}", f"training.metrics={folder}/{name}.jsonl",
                      f"comm.collective_timeout={collective_timeout}"])


def of_steps(folder, name, key):
    """A number of each step, from the metrics of a training."""
    rows = map(json.loads, (folder / f"{name}.jsonl").read_text().splitlines())
    return {row["step"]: row[key] for row in rows if "loss" in row}


def losses(folder, name):
    return of_steps(folder, name, "loss")


def check_cut_link(folder):
    with Hosts(["node1", "node2"]) as hosts:
        finish(start(hosts, training(folder, "whole", STEPS)))
        processes = start(hosts, training(folder, "cut", STEPS, collective_timeout=5, save_every=20))
        end = time.monotonic() + PATIENCE
        while not any((folder / "cut").glob("step-*/manifest.json")):
            assert time.monotonic() < end and processes[0].poll() is None, finish(processes)
            time.sleep(0.02)
        hosts.cut("node2")
        cut = time.monotonic()
        text = finish(processes, 5)
        # The ranks give up after 5 s, and a connection of the agents counts as lost after 15 s of silence.
        assert time.monotonic() - cut < 60, f"both must end within the limits: {text}"
        assert text.count("a rank is gone or did not answer in time") >= 2, text
        hosts.heal("node2")
        text = finish(start(hosts, training(folder, "cut", STEPS)))
        assert "resumed" in text, text
        assert losses(folder, "cut") == losses(folder, "whole") and len(losses(folder, "whole")) == STEPS


def check_bad_link(folder):
    """A frame takes 50 ms, and one of ten is lost."""
    steps = 6
    with Hosts(["node1", "node2"]) as hosts:
        finish(start(hosts, training(folder, "good", steps)))
        hosts.worsen("node2", delay=0.05, lost=0.1)
        finish(start(hosts, training(folder, "bad", steps)))
        assert min(of_steps(folder, "bad", "step_ms").values()) > 50, "no step can be faster than a frame"
        assert losses(folder, "bad") == losses(folder, "good") and len(losses(folder, "good")) == steps


def main():
    skip_unless_possible()
    os.environ.pop("MASTER_ADDR", None)
    check_ipv6_only()
    check_misleading_addresses()
    with tempfile.TemporaryDirectory() as folder:
        check_cut_link(pathlib.Path(folder))
        check_bad_link(pathlib.Path(folder))
    print("ranks of two hosts meet by the right interface, and survive a cut link and a bad one")


main()
