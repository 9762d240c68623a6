"""Collectives of two ranks on one host: through shared memory, and over Gloo, by which ddpxx's reduce-scatter is
an exchange of pieces.

The same ranks do both in turn, in the order AB BA AB ..., so that other work on the machine disturbs both sides alike.
The ranks are not bound to cores: Gloo's threads would share the core of their rank. Beside each collective stands the time in
which each rank copies as many bytes as it receives.
"""
import argparse
import json
import math
import statistics
import sys

import protocol

GOALS = {4: 10, 4 << 10: 10, 64 << 10: 10, 1 << 20: 3, 25 << 20: 3}
GOAL_OF_BOTH = 8

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--pairs", type=int, default=60, help="pairs of each size (default: %(default)s)")
parser.add_argument("--ranks", type=int, default=2, help="ranks (default: %(default)s)")
arguments = parser.parse_args()
program = [str(protocol.BIN / "collective_times"), str(arguments.pairs)]
ranks = ["--standalone", "--nproc-per-node", str(arguments.ranks)]
print(__doc__)
run = protocol.run([str(protocol.BIN / "ddpxx-run"), *ranks, *program])
samples = {}
for _, line in run.lines:
    if "{" in line:  # the launcher writes the rank in front
        row = json.loads(line[line.index("{"):])
        samples.setdefault((row["name"], row["bytes"]), []).append((row["shm_ms"], row["gloo_ms"], row["copy_ms"]))
result = {"title": __doc__, "versions": protocol.versions(), "arguments": sys.argv[1:],
          "settings": protocol.changed_settings(parser, arguments), "complete": True, "ranks": arguments.ranks,
          "foreign_cores": run.foreign, "comparisons": {}}
for (name, size), pairs in samples.items():
    ratio, low, high = protocol.interval([math.log(theirs / ours) for ours, theirs, _ in pairs])
    ours, theirs, copy = (statistics.median(pair[side] for pair in pairs) for side in (0, 1, 2))
    goal = GOALS[size] if name == "all_reduce" else GOAL_OF_BOTH
    verdict = protocol.verdict(low, goal)
    print(f"  {name} {size} bytes: shm {ours:.3g} ms, gloo {theirs:.3g} ms, {ratio:.1f}x [{low:.1f}, {high:.1f}]; "
          f"goal >= {goal}x: {verdict}; a copy {copy:.3g} ms, {copy / ours:.0%} of ours")
    result["comparisons"][f"{name} {size}"] = {"ratio": ratio, "low": low, "high": high, "goal": goal,
                                               "verdict": verdict, "pairs": pairs}
print(f"  other programs used {run.foreign:.2f} cores")
protocol.RESULTS.mkdir(parents=True, exist_ok=True)
(protocol.RESULTS / "collectives.json").write_text(json.dumps(result, indent=1) + "\n")
