"""Batches: the time in which a file of 10 million tokens becomes a shuffled batch of int64, 12 samples of 1024 tokens.

One rank. `first` is the time from opening the file to the first batch, with the order of all samples; the other
comparisons are the mean time of a batch after it. The peers: nanoGPT's get_batch, which draws each sample anew, and
DataLoader with DistributedSampler.
"""
import json
import os
import sys
import tempfile

import protocol

SAMPLES, TOKENS, BATCHES = 12, 1024, 1000
TOKENS_OF_FILE = 10_000_000
GOAL = 4.0


def measure(command, key):
    """A run with a number that the program has printed as value."""
    run = protocol.run(command)
    run.facts = next(json.loads(text) for _, text in run.lines if text.startswith("{"))
    run.value = run.facts[key]
    return run


def ours(path, workers, key):
    words = [str(protocol.BIN / "data_times"), path, str(SAMPLES), str(TOKENS), workers, str(BATCHES)]
    return measure(words, key)


def peer(path, workers, key):
    words = [sys.executable, str(protocol.ROOT / "bench" / "peers" / "data_times.py"), path, str(SAMPLES), str(TOKENS),
             workers, str(BATCHES)]
    return measure(words, key)


def tokens_per_second(result, side):
    """In millions."""
    return SAMPLES * TOKENS / sorted(run.value for run in result.side(side))[len(result.side(side)) // 2] / 1e3


def check_tokens(result):
    if len({run.facts["tokens"] for side in (0, 1) for run in result.side(side)}) > 1:
        raise SystemExit("  void: the sides have made different numbers of tokens")


bench = protocol.Bench(__doc__, fewest=10)
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "tokens.bin")
    with open(path, "wb") as file:
        file.write(b"".join((i * 7919 % 50257).to_bytes(2, "little") for i in range(TOKENS_OF_FILE)))
    bench.check_noise(lambda: ours(path, "0", "batch"))
    for name, workers, their_workers, key, goal in (("get_batch", "0", "get_batch", "batch", GOAL),
                                                    ("DataLoader", "0", "0", "batch", GOAL),
                                                    ("DataLoader, 2 workers", "2", "2", "batch", GOAL),
                                                    ("first, DataLoader", "0", "0", "first", 1.0)):
        print(f"  {name}")
        result = bench.compare(name, lambda: ours(path, workers, key), lambda: peer(path, their_workers, key), "ms", goal,
                               check=check_tokens)
        if key == "batch":
            print("  million tokens a second: {:.0f} and {:.0f}".format(*(tokens_per_second(result, i) for i in (0, 1))))
bench.end()
