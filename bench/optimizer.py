#!/usr/bin/env python3
"""Validation losses of a small GPT on a text, by AdamW and by Muon: ./dev bench optimizer TEXT [STEPS]

Each optimizer trains with three learning rates from the same weights on the same batches; the table shows for each
the run with the lowest last loss. Except for rounding, the losses do not depend on the machine.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[1]
RATES = {"adamw": [1e-3, 3e-3, 1e-2], "muon": [5e-3, 1e-2, 2e-2]}


def curve(name, rate, text, steps, folder):
    metrics = pathlib.Path(folder) / f"{name}-{rate}.jsonl"
    settings = [f"data.path={text}", "batch_size=16", f"training.max_steps={steps}", "training.max_epochs=0",
                f"training.eval_every={steps // 10}", "training.eval_samples=1024", f"training.metrics={metrics}",
                f"optimizer.learning_rate={rate}", "optimizer.schedule=cosine", f"optimizer.warmup_steps={steps // 20}",
                f"optimizer.decay_steps={steps}"]
    if name == "muon":
        settings.append("optimizer.adamw.learning_rate=3e-3")
    subprocess.run([ROOT / "build/bin/optimizer_curve", name, *settings], check=True, stdout=subprocess.DEVNULL)
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    return {row["step"]: row["val_loss"] for row in rows if "val_loss" in row}


if len(sys.argv) < 2:
    sys.exit(__doc__)
text, steps = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1000
with tempfile.TemporaryDirectory() as folder:
    curves = {(name, rate): curve(name, rate, text, steps, folder) for name, rates in RATES.items() for rate in rates}
best = {name: min((curves[name, rate][steps], rate) for rate in rates)[1] for name, rates in RATES.items()}
for (name, rate), points in curves.items():
    print(f"{name} {rate:g}: {points[steps]:.4f} at step {steps}")
print("| step | " + " | ".join(f"{name}, learning rate {rate:g}" for name, rate in best.items()) + " |")
print("|---" * (1 + len(best)) + "|")
for step in curves["adamw", best["adamw"]]:
    print(f"| {step} | " + " | ".join(f"{curves[name, rate][step]:.3f}" for name, rate in best.items()) + " |")
