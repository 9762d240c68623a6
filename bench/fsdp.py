"""FSDP: a step of gpt-nano and gpt-micro, W=2 over Gloo, against Python's FSDP2 and against our own DDP."""
import json
import os
import statistics
import sys
import tempfile

import protocol

WARM_UP, STEPS = 10, 60
SETTINGS = ["data.path=/usr/include/c++", "data.max_bytes=1000000", "data.batch_size=8", "model.dropout=0",
            f"training.max_steps={WARM_UP + STEPS}"]
MODELS = {"gpt-nano": (64, 3.0), "gpt-micro": (128, 1.3)}  # tokens, goal against Python
DDP_GOAL = 1 / 1.35  # of gpt-micro; gpt-nano is bound by latency and only reported


def step_time(side, settings):
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
bench.check_noise(lambda: step_time(protocol.ours, ["strategy=fsdp", "data.block_size=64"]))
for model, (tokens, goal) in MODELS.items():
    print(f"{model}, batch 8, {tokens} tokens")
    settings = [f"model.model_type={model}", f"data.block_size={tokens}"]
    fsdp = [*settings, "strategy=fsdp"]
    check_same_work(bench.compare(f"fsdp2 {model}", lambda: step_time(protocol.ours, fsdp),
                                  lambda: step_time(protocol.peer, fsdp), "ms", goal))
    bench.compare(f"own ddp {model}", lambda: step_time(protocol.ours, fsdp),
                  lambda: step_time(protocol.ours, settings), "ms", DDP_GOAL if model == "gpt-micro" else 0.0)
