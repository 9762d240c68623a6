"""Step time: gpt-nano, B=8, T=64, W=2 over Gloo, AdamW fused; each rank on a core of its own."""
import json
import os
import statistics
import sys
import tempfile

import protocol

GOAL = 1.0
WARM_UP, STEPS = 20, 200
SETTINGS = ["data.path=/usr/include/c++", "data.max_bytes=1000000", "data.batch_size=8", "data.block_size=64",
            "model.dropout=0", f"training.max_steps={WARM_UP + STEPS}"]
BEST = ["ddp.static_graph=true", "ddp.gradient_as_bucket_view=true"]


def step_time(side, settings=()):
    """The median time of the steps after the warm-up."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = os.path.join(folder, "metrics.jsonl")
        run = protocol.run(side([*SETTINGS, *settings, f"training.metrics={metrics}"], protocol.pinned))
        with open(metrics) as file:
            rows = [row for row in map(json.loads, file) if "loss" in row]
    run.value = statistics.median(row["step_ms"] for row in rows[WARM_UP:])
    run.facts = {"loss_10": rows[9]["loss"], "loss_last": rows[-1]["loss"]}
    return run


def check_same_work(result):
    """Both sides begin with the same weights and see the same batches: their losses must agree."""
    for key, tolerance in {"loss_10": 1e-5, "loss_last": 1e-3}.items():
        ours, theirs = (run.facts[key] for run in result.pairs[0])
        if abs(ours / theirs - 1) > tolerance:
            sys.exit(f"  void: {key} is {ours} and {theirs}: the sides do not do the same work")


bench = protocol.Bench(__doc__, fewest=15)
bench.check_noise(lambda: step_time(protocol.ours))
for name, settings in {"python": [], "best": BEST}.items():
    check_same_work(bench.compare(name, lambda: step_time(protocol.ours),
                                  lambda: step_time(protocol.peer, settings), "ms", GOAL))
