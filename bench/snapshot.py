"""Snapshots: how long a run waits for them, 99.8 MB in 50 tensors of float32. Both sides call fsync for their files.

In the background: the time until the state is copied, also compared with a memcpy of the same bytes in that program.
In the foreground: the time until the snapshot is published. Loading: two ranks load what four ranks with other pieces
have saved. Times are taken inside the processes, each a median of five after a warm-up. Files that are read are in
memory, and removing older snapshots is not timed.
"""
import dataclasses
import json
import os
import statistics
import sys
import tempfile

import protocol

MEMCPY_GOAL = 0.714  # at most 1.4 times as long
ASYNC_GOAL = 2.0
SAVE_GOAL = 2.0
TORCH_SAVE_GOAL = 1.0
LOAD_GOAL = 1.0


def ours(operation, folder):
    return [str(protocol.BIN / "snapshot_times"), operation, folder]


def peer(operation, folder):
    return [sys.executable, str(protocol.ROOT / "bench" / "peers" / "snapshot_times.py"), operation, folder]


def by_ranks(words, ranks, wrap=list):
    launcher = [str(protocol.BIN / "ddpxx-run")]
    more = []
    if words[0] == sys.executable:
        launcher, more = [sys.executable, "-m", "torch.distributed.run"], ["--no-python"]
    return [*launcher, "--standalone", "--nproc-per-node", str(ranks), *more, *wrap(words)]


def temporary_folder():
    """A folder on the disk that holds the results, because fsync costs nothing in memory, where /tmp may be."""
    protocol.RESULTS.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(dir=protocol.RESULTS)


def measure(command, key):
    """A run of a program that prints rows, with the median of a column as value and those of all columns as facts."""
    run = protocol.run(command)
    rows = [json.loads(text[text.index("{"):]) for _, text in run.lines if '"bytes"' in text]
    run.facts = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
    run.value = run.facts[key]
    return run


def alone(side, operation, key):
    with temporary_folder() as folder:
        return measure(side(operation, folder), key)


class TwoInOne:
    """A run of a program that measures both sides of a pair: the first call starts it, the second call reuses it."""

    def __init__(self, start):
        self.start, self.kept = start, None

    def ask(self, key):
        if self.kept:
            run, self.kept = self.kept, None
        else:
            run = self.kept = self.start()
        return dataclasses.replace(run, value=run.facts[key])


def check_same_work(result):
    for key in ("tensors", "bytes"):
        ours, theirs = (run.facts[key] for run in result.pairs[0])
        if ours != theirs:
            sys.exit(f"  void: {ours} and {theirs} {key}: the sides do not do the same work")


def part(title, measure_ours):
    print(title, flush=True)
    bench.check_noise(measure_ours)
    bench.result["comparisons"][f"A/A {title}"] = bench.result["comparisons"].pop("A/A")


bench = protocol.Bench(__doc__, fewest=15)

part("in the background", lambda: alone(ours, "background", "blocked_ms"))
both = TwoInOne(lambda: alone(ours, "background", "blocked_ms"))
bench.compare("memcpy", lambda: both.ask("blocked_ms"), lambda: both.ask("memcpy_ms"), "ms", MEMCPY_GOAL)
bench.compare("dcp.async_save", lambda: alone(ours, "background", "blocked_ms"),
              lambda: alone(peer, "background", "blocked_ms"), "ms", ASYNC_GOAL, check=check_same_work)

part("in the foreground", lambda: alone(ours, "foreground", "saved_ms"))
for name, operation, goal in (("dcp.save", "foreground", SAVE_GOAL), ("torch.save", "torch_save", TORCH_SAVE_GOAL)):
    bench.compare(name, lambda: alone(ours, "foreground", "saved_ms"), lambda: alone(peer, operation, "saved_ms"), "ms",
                  goal, check=check_same_work)

with temporary_folder() as folder:
    places = {side: os.path.join(folder, side.__name__) for side in (ours, peer)}
    for side, place in places.items():
        protocol.run(by_ranks(side("write", place), 4))

    def load(side):
        return measure(by_ranks(side("load", places[side]), 2, protocol.pinned), "loaded_ms")

    part("loading, four ranks' by two", lambda: load(ours))
    bench.compare("dcp.load", lambda: load(ours), lambda: load(peer), "ms", LOAD_GOAL, check=check_same_work)
bench.end()
