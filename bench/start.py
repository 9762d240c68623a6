"""Start-up: from starting the launcher to the first all-reduce, and to the first completed optimizer step. W=2.

The first all-reduce sums one number in a program that does nothing else; the steps are those of gpt-nano. The A/A is that of
the first all-reduce.
"""
import sys

import protocol

ALL_REDUCE_GOAL = 8.0
STEP_GOAL = 3.5
SETTINGS = ["data.path=/usr/include/c++", "data.max_bytes=1000000", "training.max_steps=1"]


def until(text, command):
    """A run whose value is the time until the first line with this text."""
    run = protocol.run(command)
    run.value = next(seconds for seconds, line in run.lines if text in line)
    return run


def our_sum():
    return until("sum 2", [str(protocol.BIN / "ddpxx-run"), *protocol.RANKS, str(protocol.BIN / "first_all_reduce")])


def their_sum():
    peer = str(protocol.ROOT / "bench" / "peers" / "first_all_reduce.py")
    return until("sum 2", [sys.executable, "-m", "torch.distributed.run", *protocol.RANKS, peer])


bench = protocol.Bench(__doc__, fewest=15)
bench.check_noise(our_sum)
bench.compare("torchrun", our_sum, their_sum, "s", ALL_REDUCE_GOAL)
bench.compare("python", lambda: until("step 1", protocol.ours(SETTINGS)), lambda: until("step 1", protocol.peer(SETTINGS)),
              "s", STEP_GOAL)
bench.end()
