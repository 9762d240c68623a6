#!/usr/bin/env python3
"""Trains nanoGPT's small GPT for characters with mingpt and in Python, and compares the losses of all steps.

    nanogpt_curve.py FOLDER_OF_PROGRAMS TEXT [STEPS [BATCH_SIZE]]

The settings are those of nanoGPT's config/train_shakespeare_char.py, in a file that mingpt reads as it stands: with the
defaults of nanoGPT's train.py the network has no biases, and exact GELU. Only the number of steps (300) and the batch
size (4, nanoGPT has 64) are smaller, because the run is one on a CPU. TEXT is a file, or a folder whose files are read
one after the other. Python takes the same samples in the same order, and draws the same initial weights and the same
dropout. The losses of all 300 steps are equal, bit for bit.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
BYTES = 1115394  # of tiny Shakespeare, nanoGPT's text
CONFIG = """\
out_dir = 'out'
eval_interval = 250
eval_iters = 200
log_interval = 10
always_save_checkpoint = False
dataset = 'shakespeare_char'
gradient_accumulation_steps = 1
batch_size = 64
block_size = 256
n_layer = 6
n_head = 6
n_embd = 384
dropout = 0.2
learning_rate = 1e-3
max_iters = 5000
lr_decay_iters = 5000
min_lr = 1e-4
beta2 = 0.99
warmup_iters = 100
"""
OF_PYTHON = ["strategy=single", "model.model_type=baby", "model.dropout=0.2", "model.bias=false", "model.gelu=exact",
             "model.tied_head=true", "data.block_size=256", "optimizer.learning_rate=1e-3", "optimizer.beta2=0.99",
             "optimizer.warmup_steps=100", "optimizer.decay_steps=5000", "optimizer.final_learning_rate=1e-4"]


def losses(path):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [row["loss"] for row in rows if "loss" in row]


def main():
    programs, text = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    steps, batch_size = [*map(int, sys.argv[3:]), *(300, 4)[len(sys.argv) - 3:]]
    common = [f"data.path={text}", f"data.max_bytes={BYTES}", f"data.batch_size={batch_size}", f"training.max_steps={steps}"]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "config.py").write_text(CONFIG)
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        ours = [programs / "mingpt", "config.py", *common, "strategy=single", "data.split=random",
                "training.eval_every=0", "training.save_dir=", "training.metrics=ours.jsonl"]
        theirs = [sys.executable, HERE / "reference.py", *common, *OF_PYTHON, "training.metrics=theirs.jsonl"]
        with subprocess.Popen(ours, cwd=folder, env=environment) as first:
            subprocess.run(theirs, cwd=folder, env=environment, check=True)
            assert first.wait() == 0, first.returncode
        pairs = list(zip(losses(folder / "ours.jsonl"), losses(folder / "theirs.jsonl"), strict=True))
    assert len(pairs) == steps, len(pairs)
    worst = max(range(steps), key=lambda i: abs(pairs[i][0] / pairs[i][1] - 1))
    for step in sorted({0, *range(49, steps, 50), worst}):
        print("step {}: {:.6f}, Python {:.6f}".format(step + 1, *pairs[step]))
    apart = abs(pairs[worst][0] / pairs[worst][1] - 1)
    print(f"losses differ by at most {apart:.1e} of the loss, at step {worst + 1}")
    assert apart == 0 and pairs[-1][0] < 0.75 * pairs[0][0]


main()
