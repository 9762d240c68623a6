#!/usr/bin/env python3
"""Runs samples/cnn in an empty folder.

    cnn_test.py FOLDER_OF_PROGRAMS CLAIM
"""
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

BIN = pathlib.Path(sys.argv[1])
PATIENCE = 300  # seconds; a run takes some seconds
SMALL = ["model.width=8", "data.num_images=1024"]


def cnn(*arguments, ranks=1, code=0):
    """The rows of metrics; the lines on stderr if the program is to fail."""
    launcher = [BIN / "ddpxx-run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
    command = [*launcher, BIN / "cnn", "training.metrics=rows.jsonl", *arguments]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == code, f"{command}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    if code:
        return done.stderr.splitlines()
    return [json.loads(line) for line in pathlib.Path("rows.jsonl").read_text().splitlines()]


def values(rows, key):
    return [row[key] for row in rows if key in row]


def near(one, other, tolerance):
    assert len(one) == len(other)
    return all(abs(a - b) <= tolerance * abs(b) for a, b in zip(one, other))


def test_learns_on_one_and_on_two_ranks():
    for ranks, norm in ((1, "false"), (2, "true")):
        rows = cnn(*SMALL, f"batch_size={32 // ranks}", "training.max_epochs=4", "training.eval_every=64",
                   f"sync_batch_norm={norm}", ranks=ranks)
        accuracy = values(rows, "val_accuracy")
        assert len(accuracy) == 2 and accuracy[-1] > 0.6, accuracy  # by chance 0.1
        assert values(rows, "samples")[-1] == 256, rows[-1]
        trained = values(rows, "accuracy")
        assert sum(trained[-10:]) / 10 > 0.7 > 0.3 > sum(trained[:5]) / 5, trained


def test_two_ranks_are_one_with_the_whole_batch_if_batch_norm_is_synchronised():
    run = [*SMALL, "training.max_steps=8", "optimizer.learning_rate=0.02"]
    one = values(cnn(*run, "batch_size=32"), "loss")
    two = values(cnn(*run, "batch_size=16", "sync_batch_norm=true", ranks=2), "loss")
    apart = values(cnn(*run, "batch_size=16", ranks=2), "loss")
    assert len(one) == 8 and near(two, one, 1e-4), (one, two)
    assert not near(apart, one, 1e-3), (one, apart)


def test_worker_threads_and_a_stop_change_no_number():
    run = [*SMALL, "batch_size=16", "sync_batch_norm=true"]
    whole = values(cnn(*run, "training.max_steps=40", ranks=2), "loss")
    cnn(*run, "training.max_steps=15", "training.save_dir=out", ranks=2)
    parts = values(cnn(*run, "training.max_steps=40", "training.save_dir=out", "num_workers=2", ranks=2), "loss")
    assert len(whole) == 40 and parts == whole, (parts, whole)
    error = cnn(*run, "training.save_dir=out", "data.seed=1", code=4, ranks=2)
    assert any("the images" in line for line in error), error
    assert values(cnn(*run, "training.max_steps=40", "data.augment=false", ranks=2), "loss") != whole


def test_reads_the_files_of_cifar10():
    random.seed(1)

    def records(number):
        return b"".join(bytes([label, *random.randbytes(1024), *[20 * label] * 2048])
                        for label in (i % 10 for i in range(number)))

    for i, number in enumerate((200, 10, 10, 10, 10), 1):
        pathlib.Path(f"data_batch_{i}.bin").write_bytes(records(number))
    pathlib.Path("test_batch.bin").write_bytes(records(50))
    rows = cnn("data.path=.", "model.width=8", "batch_size=24", "training.max_epochs=8", "training.eval_every=80")
    assert values(rows, "step")[-1] == 80 and values(rows, "samples")[-1] == 50, rows[-1]
    assert values(rows, "val_accuracy")[-1] > 0.4, rows[-1]


def test_a_wrong_file_ends_the_run_with_code_3_and_one_sentence():
    pathlib.Path("data_batch_1.bin").write_bytes(bytes(5000))
    for ranks in (1, 2):
        error = cnn("data.path=.", code=3, ranks=ranks)
        found = [line for line in error if re.search(r"data_batch_1\.bin: 5000 bytes are not a whole number of records "
                                                     r"of 3073 bytes: unpack cifar-10-binary\.tar\.gz again", line)]
        assert found, error
    pathlib.Path("data_batch_1.bin").write_bytes(bytes(3073))
    error = cnn("data.path=.", code=3)
    assert len(error) == 1 and "data_batch_2.bin: No such file or directory: unpack" in error[0], error


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    globals()["test_" + sys.argv[2]]()
