"""Memory: what a rank that has joined its group and built its model keeps resident. W=2, gpt-nano, Gloo."""
import json
import os
import statistics
import sys
import tempfile
import time

import protocol

MOST_MB = 170
SETTINGS = ["data.path=/usr/include/c++", "data.max_bytes=1000000", "training.max_steps=1"]
STILL_SECONDS = 2.0
STILL_TICKS = 5  # a rank that waits for another polls its sockets now and then


def processes_below(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        children = [int(child) for child in file.read().split()]
    return children + [pid for child in children for pid in processes_below(child)]


def cpu_ticks(pid):
    with open(f"/proc/{pid}/stat") as file:
        user, system = file.read().rpartition(")")[2].split()[11:13]
    return int(user) + int(system)


def is_rank_zero(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        return b"RANK=0" in file.read().split(b"\0")


def resident_megabytes(pid):
    with open(f"/proc/{pid}/status") as file:
        kibibytes = next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))
    return kibibytes * 1024 / 1e6


def wait_until_still(launcher):
    """All processes of the launcher, once none of them has done anything for a while."""
    before = None
    while launcher.poll() is None:
        now = {pid: cpu_ticks(pid) for pid in processes_below(launcher.pid)}
        if now and before and now.keys() == before.keys() and all(now[pid] - before[pid] <= STILL_TICKS for pid in now):
            return now
        before = now
        time.sleep(STILL_SECONDS)
    sys.exit(launcher.stdout.read())


def idle_memory(side):
    """The metrics file is a pipe that nobody reads: rank 0 stops where it opens it, with everything built."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = os.path.join(folder, "metrics")
        os.mkfifo(metrics)
        with protocol.start(side([*SETTINGS, f"training.metrics={metrics}"])) as process:
            rank_zero = next(filter(is_rank_zero, wait_until_still(process)))
            value = resident_megabytes(rank_zero)
            with open(metrics) as file:
                rows = [json.loads(line) for line in file]
            process.communicate()
    return protocol.Run(0.0, 0.0, 0.0, [], value, {"state_bytes": rows[0]["state_bytes"]})


bench = protocol.Bench(__doc__, fewest=5)
result = bench.compare("python", lambda: idle_memory(protocol.ours), lambda: idle_memory(protocol.peer), "MB", 1.0,
                       quiet=False)
ours, theirs = (statistics.median(run.value for run in result.side(i)) for i in (0, 1))
print(f"  goal <= {MOST_MB} MB: {'reached' if ours <= MOST_MB else 'NOT reached'}")
print("  parameters, gradients and optimizer state: ddpxx {}, python {} bytes".format(
    *(result.side(i)[0].facts["state_bytes"] for i in (0, 1))))
