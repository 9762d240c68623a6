"""Launcher: from SIGKILL of a rank to the next completed step, W=2, gpt-nano; memory; the start of many ranks.

After the first step rank 1 gets SIGKILL. Both launchers start the ranks again, without snapshots, and the time ends with
the first step of the new ranks. The memory is the peak of the launcher's resident memory while two ranks write as much
as they can and the reader pauses. Many ranks are 64 on this machine: of a shell, until the first line of each has come,
and of mingpt, until the first step.
"""
import contextlib
import os
import re
import signal
import statistics
import subprocess
import sys
import time

import protocol

GOAL = 5.0
MOST_MB = 30.0
MANY = 64
MOST_SECONDS = 10.0
RUNS = 3
SETTINGS = ["data.path=/usr/include/c++", "data.max_bytes=1000000", "training.max_steps=1000000"]
FIRST_STEP = re.compile(r"step 1(/|$)")
WRITES = ["sh", "-c", 'yes "a line of the output of rank $RANK" | head -c 100000000']
PAUSE = 1.0  # second
TELLS = ["sh", "-c", 'echo "rank $RANK has started"']


def with_restart(command):
    program = command.index("--standalone")
    return [*command[:program], "--max-restarts", "1", *command[program:]]


def restarted(command):
    """Kills rank 1 after the first step; the value is the time until the first step of the restarted ranks."""
    times = []

    def watch(process, lines):
        if not FIRST_STEP.search(lines[-1][1]):
            return
        times.append(lines[-1][0])
        if len(times) == 1:
            os.kill(protocol.process_of_rank(process.pid, 1), signal.SIGKILL)
        else:  # the launchers end by themselves; killed with their ranks, they would not count the time of the ranks
            for rank in (0, 1):
                if pid := protocol.process_of_rank(process.pid, rank):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    run = protocol.run(command, watch=watch)
    if len(times) < 2:
        sys.exit("\n".join(["the ranks were not restarted:", *(text for _, text in run.lines)]))
    run.value = times[1] - times[0]
    return run


def peak_megabytes(command):
    """The largest resident memory of a launcher, as the kernel tells it while the launcher runs."""
    peak = 0.0
    with subprocess.Popen(command, env=protocol.environment(), stdout=subprocess.PIPE) as process:
        time.sleep(PAUSE)
        while process.stdout.read1(1 << 20):
            try:
                with open(f"/proc/{process.pid}/status") as file:
                    peak = max(peak, *(int(line.split()[1]) * 1024 / 1e6 for line in file if line.startswith("VmHWM:")))
            except (FileNotFoundError, TypeError):  # it ends
                pass
    return peak


def all_started(command):
    """The time until each rank has written its line."""
    started = {}
    for seconds, text in protocol.run(command).lines:
        if found := re.search(r"rank (\d+) has started", text):
            started.setdefault(int(found[1]), seconds)
    if sorted(started) != list(range(MANY)):
        sys.exit(f"only {len(started)} of {MANY} ranks have started")
    return max(started.values())


def launchers(ranks):
    flags = ["--standalone", "--nproc-per-node", str(ranks)]
    return {"ddpxx": [str(protocol.BIN / "ddpxx-run"), *flags],
            "torchrun": [sys.executable, "-m", "torch.distributed.run", *flags, "--no-python"]}


bench = protocol.Bench(__doc__, fewest=7)
ours, peer = (with_restart(side) for side in (protocol.ours(SETTINGS), protocol.peer(SETTINGS, program="restart.py")))
bench.check_noise(lambda: restarted(ours))
bench.compare("torchrun", lambda: restarted(ours), lambda: restarted(peer), "s", GOAL)

found = {}
for name, launcher in launchers(2).items():
    found[f"{name} peak MB"] = statistics.median(peak_megabytes([*launcher, *WRITES]) for _ in range(RUNS))
for name, launcher in launchers(MANY).items():
    found[f"{name} {MANY} ranks s"] = statistics.median(all_started([*launcher, *TELLS]) for _ in range(RUNS))
training = protocol.run([*launchers(MANY)["ddpxx"], str(protocol.BIN / "mingpt"), *SETTINGS[:-1],
                         "training.max_steps=1"])
found[f"mingpt {MANY} ranks s"] = next(seconds for seconds, text in training.lines if FIRST_STEP.search(text))
for name, (limit, unit) in {"ddpxx peak MB": (MOST_MB, "MB"), f"ddpxx {MANY} ranks s": (MOST_SECONDS, "s")}.items():
    theirs = found[name.replace("ddpxx", "torchrun")]
    print(f"  {name}: {found[name]:.3g}, torchrun {theirs:.3g}; goal <= {limit:g} {unit}: "
          f"{'reached' if found[name] <= limit else 'NOT reached'}")
print(f"  {MANY} ranks of mingpt have done their first step after {found[f'mingpt {MANY} ranks s']:.3g} s; load "
      f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
bench.result["launcher"] = found
bench.end()
