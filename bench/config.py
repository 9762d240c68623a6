"""Configuration: 200 values from a YAML file and 20 overrides, against Hydra and OmegaConf on the same file.

Parsing is timed inside the processes: the first parse, and the median of later ones. Also measured: the compile time
(-O0) of the config compared with a config of one value, and with its headers alone; and the time and memory that the
sample needs to refuse files that are made to exhaust it. `--only PART` runs one part: parsing, compile or limits.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

import protocol

MOST_MS = 5.0
MOST_COMPILE_SECONDS = 6.0
HYDRA_GOAL = 20.0
MOST_REFUSAL_SECONDS = 1.0
MOST_REFUSAL_MB = 300.0  # includes LibTorch's libraries
REFUSAL_RUNS = 5
PINNED = ["hydra-core==1.3.2"]
PEERS = protocol.RESULTS / "hydra"
PROGRAMS = protocol.ROOT / "bench" / "programs"
OVERRIDES = ["part0.seed=5", *(f"part{i}.learning_rate={i + 1}e-4" for i in range(12)), "part1.weights=[0.5,0.5]",
             "part2.name=second", "part3.is_on=false", "steps=50", "clip=0.5", "device=cpu", "verbose=true"]
PART = {"learning_rate": 0.0006, "weight_decay": 0.01, "beta1": 0.8, "beta2": 0.99, "epsilon": 1.0e-06,
        "warmup_steps": 10, "decay_steps": 5000, "batch_size": 8, "block_size": 64, "bucket_bytes": 4096,
        "is_on": True, "is_shared": True, "name": "a part", "folder": "some/where", "seed": 1, "weights": [0.1, 0.9]}
ROOT = {"seed": 2, "steps": 100, "epochs": 3, "clip": 2.0, "time": 1.0, "device": "cpu", "precision": "bf16",
        "verbose": False}


def write_config(path):
    lines = []
    for i in range(12):
        lines += [f"part{i}:", *(f"  {key}: {json.dumps(value)}" for key, value in PART.items())]
    lines += [f"{key}: {json.dumps(value)}" for key, value in ROOT.items()]
    path.write_text("\n".join(lines) + "\n")


def measured(command, key):
    run = protocol.run(command)
    run.facts = json.loads(run.lines[-1][1])
    return dataclasses.replace(run, value=run.facts[key])


def compile_seconds(name):
    """Compiles at -O0 with the include folders of the build, without its compiler cache."""
    includes = protocol.compiler_flags("config_times.cpp", ("-I",))
    begin = time.perf_counter()
    run = protocol.run([shutil.which("c++"), "-std=c++20", "-O0", *includes, "-c", str(PROGRAMS / name), "-o", os.devnull])
    return dataclasses.replace(run, value=time.perf_counter() - begin)


def report(what, value, unit, most):
    print(f"  {what}: {value:.3g} {unit}, goal at most {most:g}: {'reached' if value <= most else 'NOT reached'}", flush=True)


def parsing(bench):
    protocol.install(PINNED, PEERS)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "config.yaml"
        write_config(path)
        ours = [str(protocol.BIN / "config_times"), f"--config-path={folder}", "-cn", "config.yaml", *OVERRIDES]
        script = str(protocol.ROOT / "bench" / "peers" / "config_times.py")
        peer = [sys.executable, script, str(PEERS), str(path), *OVERRIDES]
        bench.check_noise(lambda: measured(ours, "first_ms"))
        for key in ("first_ms", "later_ms"):
            result = bench.compare(f"hydra {key[:-3]}", lambda: measured(ours, key), lambda: measured(peer, key), "ms",
                                   HYDRA_GOAL)
            report(f"parsing, {key[:-3]} time", statistics.median(run.value for run in result.side(0)), "ms", MOST_MS)


def compiling(bench):
    for what, base in (("a config of one value", lambda: compile_seconds("config_one.cpp")),
                       ("headers alone", lambda: compile_seconds("config_headers.cpp"))):
        compiled = bench.compare(what, lambda: compile_seconds("config_times.cpp"), base, "s", 0.0)
        cost = statistics.median(a.value - b.value for a, b in compiled.used)
        report(f"compile time over {what}", cost, "s", MOST_COMPILE_SECONDS)


def hostile_files():
    """The name, the lines and a part of the refusal of each file.

    The lines are made one by one, because the memory that this process has used counts for the peak of the programs
    that it starts.
    """
    bomb = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    bomb += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    return [("alias_bomb.yaml", bomb, "more than 100000 values"),
            ("self_alias.yaml", ["model: &x [*x]"], "an alias inside of what it stands for"),
            ("nesting.yaml", ["model: " + "[" * 100_000 + "]" * 100_000], "nested more than 64 levels deep"),
            ("nesting.json", ['{"model": ' + "[" * 100_000], "nested more than 64 levels deep"),
            ("million_keys.yaml", (f"k{i}: 1" for i in range(1_000_000)), "more than 100000 values"),
            ("list.py", ("a = [" + "1," * 8_000_000 + "1]" for _ in range(1)), "more than 100000 values"),
            ("100_MB.yaml", ("a: " + "x" * 996 for _ in range(100_000)), "more than 16 MiB")]


def refusal(command, word):
    """Seconds and megabytes (peak, resident) until the program has refused a file."""
    begin = time.perf_counter()
    with protocol.start(command) as process:
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - begin
    if process.returncode != 2 or word not in output:
        sys.exit(f"ended with {process.returncode}, and was to refuse by `{word}`: {' '.join(command)}\n{output[:2000]}")
    return seconds, usage.ru_maxrss * 1024 / 1e6


def limits(bench):
    results = bench.result["limits"] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, lines, word in hostile_files():
            with open(pathlib.Path(folder) / name, "w") as file:
                file.writelines(line + "\n" for line in lines)
            command = [str(protocol.BIN / "mingpt"), f"--config-path={folder}", "-cn", name, "--cfg", "job"]
            refusal(command, word)  # the first run reads files that later runs find in memory
            runs = [refusal(command, word) for _ in range(REFUSAL_RUNS)]
            results[name] = [{"seconds": seconds, "megabytes": megabytes} for seconds, megabytes in runs]
            report(f"refusing {name}", statistics.median(run[0] for run in runs), "s", MOST_REFUSAL_SECONDS)
            report(f"refusing {name}, peak memory", max(run[1] for run in runs), "MB", MOST_REFUSAL_MB)
    bench.write()


PARTS = {"parsing": parsing, "compile": compiling, "limits": limits}
switch = argparse.ArgumentParser(add_help=False)
switch.add_argument("--only", choices=PARTS)
chosen, sys.argv[1:] = switch.parse_known_args()
only = chosen.only
bench = protocol.Bench(__doc__, fewest=15)
if only:
    bench.name += f"_{only}"  # keeps the file with all results
for part in [PARTS[only]] if only else PARTS.values():
    part(bench)
bench.end()
