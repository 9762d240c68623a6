"""Memory, W=2: the resident memory of a rank of gpt-nano that has joined its group and built its model, and the peak of a
rank that takes 30 steps of gpt-micro with batches of 8, under DDP and under FSDP.
"""
import contextlib
import dataclasses
import json
import os
import signal
import sys
import tempfile
import threading
import time

import protocol

IDLE_GOAL, PEAK_GOAL = 6.0, 2.0
DATA = ["data.path=/usr/include/c++", "data.max_bytes=1000000"]
IDLE = [*DATA, "training.max_steps=1"]
PEAK = [*DATA, "model.model_type=gpt-micro", "data.batch_size=8", "data.block_size=128", "model.dropout=0",
        "training.max_steps=30"]
PEERS = {"ddp": ["ddp.static_graph=true", "ddp.gradient_as_bucket_view=true"], "fsdp": []}


def resident_megabytes(pid):
    with open(f"/proc/{pid}/status") as file:
        kibibytes = next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))
    return kibibytes * 1024 / 1e6


def wait_for_rank_zero(launcher):
    while launcher.poll() is None:
        if pid := protocol.process_of_rank(launcher.pid, 0):
            return pid
        time.sleep(0.01)
    sys.exit(launcher.stdout.read())


def release_reader_at_end(launcher, fifo):
    """Opens the FIFO when the launcher has ended, because its reader would wait forever if rank 0 never opened it."""
    launcher.wait()
    with contextlib.suppress(OSError):
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))


def idle_memory(side):
    """Measures when rank 0 has built everything: then it opens its metrics file, a FIFO, and the reader stops it."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = os.path.join(folder, "metrics")
        os.mkfifo(metrics)
        with protocol.start(side([*IDLE, f"training.metrics={metrics}"])) as process:
            rank_zero = wait_for_rank_zero(process)
            threading.Thread(target=release_reader_at_end, args=(process, metrics), daemon=True).start()
            with open(metrics) as file:
                if process.poll() is not None:
                    sys.exit(process.stdout.read())
                os.kill(rank_zero, signal.SIGSTOP)
                value = resident_megabytes(rank_zero)
                os.kill(rank_zero, signal.SIGCONT)
                rows = [json.loads(line) for line in file]
            process.communicate()
    return protocol.Run(0.0, 0.0, 0.0, [], value, {"state_bytes": rows[0]["state_bytes"]})


def peak_memory(side, settings):
    run = protocol.step_time(side, [*PEAK, *settings], 0)
    return dataclasses.replace(run, value=run.peak)


bench = protocol.Bench(__doc__, fewest=6)
result = bench.compare("idle", lambda: idle_memory(protocol.ours), lambda: idle_memory(protocol.peer), "MB", IDLE_GOAL,
                       quiet=False)
print("  parameters, gradients and optimizer state: ddpxx {}, python {} bytes".format(
    *(result.side(i)[0].facts["state_bytes"] for i in (0, 1))))
for strategy, settings in PEERS.items():
    chosen = f"strategy={strategy}"
    bench.compare(f"peak of gpt-micro, {strategy}", lambda: peak_memory(protocol.ours, [*protocol.FASTEST, chosen]),
                  lambda: peak_memory(protocol.peer, [*settings, chosen]), "MB", PEAK_GOAL, quiet=False,
                  check=protocol.check_same_work)
bench.end()
