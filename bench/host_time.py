"""Host time that DDP adds to a step of a plain loop: gpt-nano, B=2, T=16, AdamW fused; W=1 and W=2.

The compared value is a difference: the median step with DDP minus that of a single process without DDP. With one rank
it is the time of DDP itself; with two ranks it also contains the exchange of the gradients, by ours through shared memory
and by Python over Gloo, and the wait for the other rank. A difference below the noise counts as a microsecond; a ratio to it
has no upper bound. The A/A compares plain steps, because two differences vary by more than 2 %.
"""
import dataclasses
import json
import os
import statistics
import tempfile

import protocol

GOALS = {1: 4.0, 2: 1.0}  # by world size
LEAST = 1e-3  # ms
WARM_UP, STEPS = 50, 500
SETTINGS = ["data.path=/usr/include/c++", "data.max_bytes=100000", "data.batch_size=2", "data.block_size=16",
            "model.dropout=0"]


def step(side, strategy, ranks):
    """The median step, in ms."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = os.path.join(folder, "metrics.jsonl")
        words = side([*SETTINGS, f"strategy={strategy}", f"training.max_steps={WARM_UP + STEPS}",
                      f"training.metrics={metrics}"], protocol.pinned)
        words[words.index("--nproc-per-node") + 1] = str(ranks)
        run = protocol.run(words)
        with open(metrics) as file:
            rows = [row for row in map(json.loads, file) if "loss" in row]
    run.value = statistics.median(row["step_ms"] for row in rows[WARM_UP:])
    run.facts = {"loss_10": rows[9]["loss"], "loss_last": rows[-1]["loss"]}
    return run


def over_plain(side, ranks):
    """The time that DDP adds to a plain step."""
    plain, ddp = step(side, "single", 1), step(side, "ddp", ranks)
    added = ddp.value - plain.value
    return dataclasses.replace(ddp, value=max(LEAST, added), is_bound=added <= LEAST,
                               foreign=max(plain.foreign, ddp.foreign), facts={**ddp.facts, "plain": plain.value, "ddp": ddp.value})


bench = protocol.Bench(__doc__, fewest=10)
bench.check_noise(lambda: step(protocol.ours, "single", 1))
for ranks, goal in GOALS.items():
    result = bench.compare(f"W={ranks}", lambda: over_plain(protocol.ours, ranks),
                           lambda: over_plain(protocol.peer, ranks), "ms", goal, check=protocol.check_same_work)
    for side, word in enumerate(("ddpxx", "python")):
        plain, ddp = (statistics.median(run.facts[key] for run in result.side(side)) for key in ("plain", "ddp"))
        print(f"  {word:8} {plain:.3f} ms without DDP, {ddp:.3f} ms with it")
bench.end()
