"""Instructions: how many a rank executes for a step of a small GPT, and how they grow with layers, tokens and ranks.

Valgrind counts them for one rank of a group whose other ranks are assumed and whose collectives end at once, so that the
work of a backend is left out. Valgrind knows no wider instructions than those of AVX2. The counts hardly depend on the
machine or its load. The benchmark fails if a count is more than 2 % above the one in bench/instructions.json, which must
be of a build by the same compiler with the same LibTorch; `--accept yes` writes the new counts there.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import protocol

ACCEPTED = protocol.ROOT / "bench" / "instructions.json"
MAX_RATIO = 1.02  # to an accepted count
LINEAR, FLAT = (0.97, 1.03), 1.02  # goals: see growth()
RANKS = [2 ** i for i in range(1, 11)]
CURVES = {  # runs, of which each has twice the layers, tokens or ranks of the one before: strategy, layers, tokens, ranks
    "layers": [("ddp", layers, 12, 2) for layers in (2, 4, 8, 16)],
    "tokens": [("ddp", 2, tokens, 2) for tokens in (12, 24, 48, 96)],
    "ranks under DDP": [("ddp", 2, 12, ranks) for ranks in RANKS],
    "ranks under FSDP": [("fsdp", 2, 12, ranks) for ranks in RANKS],
}
AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
STEPS = 4  # in each call that is counted


def counts(runs):
    """The instructions of a step of each run."""
    program = [str(protocol.BIN / "step_instructions"), str(STEPS), *(str(word) for run in runs for word in run)]
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", "--toggle-collect=measured_steps", "--dump-after=measured_steps",
                   f"--callgrind-out-file={folder}/out", *program]
        done = subprocess.run(command, env=protocol.environment() | AVX2, text=True, capture_output=True)
        if done.returncode != 0:
            sys.exit(f"failed with {done.returncode}: {' '.join(command)}\n{done.stderr}")
        texts = [pathlib.Path(f"{folder}/out.{number}").read_text() for number in range(1, len(runs) + 1)]
    return {run: int(re.search(r"^summary: (\d+)", text, re.MULTILINE)[1]) // STEPS for run, text in zip(runs, texts)}


def growth(name, found):
    """The growth by each doubling, and whether it is as it should be: for ranks the ratio of a count to the one before,
    otherwise half the ratio of a difference of two counts to the difference before, which is 1 if the growth is linear."""
    if name.startswith("ranks"):
        ratios = [b / a for a, b in zip(found, found[1:])]
        return ratios, max(ratios) <= FLAT
    steps = [b - a for a, b in zip(found, found[1:])]
    ratios = [b / a / 2 for a, b in zip(steps, steps[1:])]
    return ratios, LINEAR[0] <= min(ratios) and max(ratios) <= LINEAR[1]


def built_with():
    compiler = subprocess.run([bench.result["versions"]["compiler"], "--version"], text=True, capture_output=True)
    versions = bench.result["versions"]
    return {"compiler": compiler.stdout.splitlines()[0], "build": versions["build"], "torch": versions["torch"]}


if not shutil.which("valgrind"):
    sys.exit("bench instructions: valgrind is missing; install it and run this again")
bench = protocol.Bench(__doc__, fewest=1, options=[("accept", "", "'yes' writes the counts to bench/instructions.json")])
now = counts(list(dict.fromkeys(run for curve in CURVES.values() for run in curve)))
bench.result["curves"] = {}
for name, runs in CURVES.items():
    found = [now[run] for run in runs]
    ratios, is_reached = growth(name, found)
    bench.result["curves"][name] = {"counts": found, "growth": ratios, "reached": is_reached}
    print(f"  {name}, from {runs[0]} to {runs[-1]}: " + ", ".join(f"{count / 1e6:.2f}" for count in found) + " million; "
          + ", ".join(f"{ratio:.3f}" for ratio in ratios) + f": goal {'reached' if is_reached else 'NOT reached'}")
bench.end()

named = {" ".join(map(str, run)): count for run, count in now.items()}
if bench.options.accept == "yes":
    ACCEPTED.write_text(json.dumps({"built with": built_with(), "counts": named}, indent=1) + "\n")
    sys.exit()
accepted = json.loads(ACCEPTED.read_text())
if accepted["built with"] != built_with():
    sys.exit(f"the counts of bench/instructions.json are of {accepted['built with']}, and this build is of {built_with()}: "
             "build the same way, or accept the counts of this build")
ratios = {run: count / accepted["counts"].get(run, 1) for run, count in named.items()}
above = [f"{run}: {named[run]}, accepted {accepted['counts'].get(run)}" for run, ratio in ratios.items() if ratio > MAX_RATIO]
if above:
    sys.exit("\n".join(["a step executes more instructions than accepted; ./dev bench instructions --accept yes accepts them:",
                        *above]))
print(f"  the counts are {min(ratios.values()):.3f} to {max(ratios.values()):.3f} times the accepted ones")
