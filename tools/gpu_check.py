#!/usr/bin/env python3
"""Runs ddpxx's checks on a GPU, in the order of docs/gpu.md, and writes what each found to OUT/report.json.

    tools/gpu_check.py pack FOLDER BIN...   copies the programs of the folders BIN, the libraries that a bare machine
                                            lacks, a text to train on, PyTorch's training, and this file
    FOLDER/gpu_check.py [--rehearse] [--only NAME,...] [--budget SECONDS] [--tests FILTER] OUT
                                            runs the checks, or those named; needs Python's torch of the version that
                                            ddpxx was built against, and no network
At the end OUT holds two files: report.json, and logs.tar.xz with the output and the metrics of each program.
--rehearse trains on the CPU and leaves out the checks of which only a GPU is capable, to see that the others work.
--budget starts no program after this time; those that run are waited for. The report names the tests that were not run.
--tests runs of shared_gpu and precisions only the tests that this filter of GoogleTest fits, and no other check unless
--only names it.
Programs of a check that do not depend on each other run at the same time, except where memory or time is measured.
Without a GPU no check is run, and the exit code is 0; it is 1 if a check fails.
"""
import argparse
import concurrent.futures
import importlib.util
import itertools
import json
import math
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
AT_ONCE = max(1, min(8, (os.cpu_count() or 1) // 2))  # programs that run at the same time; a program may have four ranks
PROGRAMS = ("mingpt", "ddpxx", "ddpxx-run", "cuda_program", "gpu_test", "gpu_contract_test")
ONE_GPU = "-*.DataParallel"  # a filter of tests, without those that need several GPUs
LONGEST = "[FH]SDP|SameBits|ShardedStrategies|LossScale"  # tests that take longest where ranks share a GPU
LIBRARIES = ("libyaml-cpp", "libpcre2", "libcrypto")
SMALL_MODEL = ("model.n_layer=2", "model.n_head=2", "model.n_embd=64", "model.dropout=0", "data.block_size=64",
               "data.batch_size=8", "generate.tokens=0")
STRATEGIES = (("single",), ("ddp",), ("zero1",), ("zero2",), ("fsdp",), ("fsdp", "recompute=all"),
              ("fsdp", "recompute=segments:2"), ("ddp", "recompute=selective"), ("fsdp", "model.fused=true"),
              ("fsdp", "strategy.offload=cpu"))

FUSED = ("model.fused=true", "model.loss_chunk=16384", "training.fused_clip=true")
SPEEDS = (("single", "precision=bf16"), ("single", "precision=bf16", *FUSED), ("fsdp", "precision=bf16", *FUSED),
          ("single", "precision=bf16_params", *FUSED, "training.cuda_graph=true"))


def preset_of(name):
    """The settings of a preset in place of the small model."""
    return (f"model.model_type={name}", "model.n_layer=null", "model.n_head=null", "model.n_embd=null",
            "data.batch_size=8", "data.block_size=128")


class Failed(Exception):
    """A check found something wrong; the text says what."""


class NotRun(Failed):
    """The time for the checks was over before a program was started."""


def pack(folder, bins):
    """Copies everything that the checks need into `folder`."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "lib").mkdir(parents=True)
    for name in PROGRAMS:
        found = [path / name for path in bins if (path / name).exists()]
        if not found:
            sys.exit(f"gpu-check: {name} is not built")
        subprocess.run(["strip", "-o", str(folder / name), str(found[0])], check=True)
        for line in subprocess.run(["ldd", str(found[0])], capture_output=True, text=True, check=True).stdout.split("\n"):
            words = line.split()
            if words and words[0].startswith(LIBRARIES):
                shutil.copy(words[2], folder / "lib" / words[0])
    shutil.copy(HERE.parent / "tests" / "parity" / "reference.py", folder)
    docs = HERE.parent / "docs"
    (folder / "text").write_text("".join(page.read_text() for page in sorted(docs.glob("*.md"))))
    shutil.copy(__file__, folder / "gpu_check.py")


class Checks:
    """The checks, numbered by their order, and the runs of programs of which they are made."""

    def __init__(self, out, device, report, budget=math.inf, only_tests="*"):
        self.out, self.device, self.numbers_of_files = out, device, itertools.count(1)
        self.report, self.lock = report, threading.Lock()
        self.end, self.only_tests = time.monotonic() + budget, only_tests
        self.places = threading.BoundedSemaphore(AT_ONCE)
        torch = Path(importlib.util.find_spec("torch").submodule_search_locations[0])
        folders = [HERE / "lib", torch / "lib", *sorted((torch.parent / "nvidia").glob("*/lib"))]
        inherited = os.environ.get("LD_LIBRARY_PATH")  # may be how the driver is found
        path = ":".join([*map(str, folders), *([inherited] if inherited else [])])
        self.environment = {**os.environ, "LD_LIBRARY_PATH": path, "DDPXX_TEST_DEVICE": device}
        if device == "cpu":
            self.environment["CUDA_VISIBLE_DEVICES"] = ""

    def file(self, ending):
        """A new file in the folder of the report."""
        return self.out / f"{next(self.numbers_of_files):03}.{ending}"

    def together(self, calls, at_once=None):
        """The results of calls that run at the same time; a failure names the failures of all, and the results of others."""
        with concurrent.futures.ThreadPoolExecutor(at_once or max(1, len(calls))) as pool:
            ended = [pool.submit(call) for call in calls]
        problems = [problem for problem in (each.exception() for each in ended) if problem]
        if problems:
            texts = dict.fromkeys(str(problem) if isinstance(problem, Failed) else repr(problem) for problem in problems)
            others = [str(each.result()) for each in ended if not each.exception()]
            raise Failed("; ".join([*texts, *([f"others passed: {', '.join(others)}"] if others else [])]))
        return [each.result() for each in ended]

    def write_report(self):
        with self.lock:
            (self.out / "report.json").write_text(json.dumps(self.report, indent=2) + "\n")

    def run(self, *command, expect=0, limit=300, record=None, **environment):
        """The output of a program; its exit code must be `expect`. A `record` gets the seconds that it took."""
        log = self.file("log")
        own = os.environ if command[0] == sys.executable else self.environment  # Python finds its own libraries
        with self.places, open(log, "w+") as file:
            start = time.monotonic()
            if start > self.end:
                raise NotRun(f"{' '.join(map(str, command))}: not run, the time of --budget was over")
            file.write(" ".join(map(str, command)) + "\n")
            file.flush()
            try:
                code = subprocess.run([str(HERE / command[0]), *map(str, command[1:])], stdout=file, stderr=file,
                                      cwd=self.out, env={**own, **environment}, timeout=limit, check=False).returncode
            except subprocess.TimeoutExpired:
                code = f"not ended after {limit} s"
            if record is not None:
                record["seconds"] = round(time.monotonic() - start, 1)
        text = log.read_text()
        if code != expect:
            failures = "".join(re.findall(r"^.*: Failure\n(?:.*\n){1,6}", text, re.MULTILINE))  # of GoogleTest
            ended = code if isinstance(code, str) else f"exit code {code}, not {expect}"
            raise Failed(f"{' '.join(map(str, command))}: {ended}: ...{failures[:1500] or text[-600:]}")
        return text

    def settings(self, strategy, *settings, device=None, steps=50):
        """The arguments of a run of mingpt, and the file of its metrics."""
        metrics = self.file("jsonl")
        return ["mingpt", f"data.path={HERE / 'text'}", *SMALL_MODEL, f"training.device={device or self.device}",
                f"training.max_steps={steps}", f"training.metrics={metrics}", "training.save_dir=",
                f"strategy={strategy[0]}", *strategy[1:], *settings], metrics

    def train(self, strategy, *settings, device=None, steps=50, launcher=(), limit=300, **environment):
        """The rows of metrics of a run of mingpt."""
        command, metrics = self.settings(strategy, *settings, device=device, steps=steps)
        if launcher:
            command[0] = str(HERE / command[0])
        self.run(*launcher, *command, limit=limit, **environment)
        return [json.loads(line) for line in metrics.read_text().splitlines()]

    def losses(self, *arguments, **options):
        return [row["loss"] for row in self.train(*arguments, **options) if "loss" in row]

    def tests(self, names, record=None, program="gpu_test"):
        """Runs tests of GoogleTest; a test that is skipped for want of a GPU is a failure, since there is one."""
        text = self.run(program, f"--gtest_filter={names}", "--gtest_color=no", limit=540, record=record)
        passed = re.search(r"^\[  PASSED  \] ([1-9]\d*) test", text, re.MULTILINE)
        if not passed or "[  SKIPPED ]" in text:
            raise Failed(f"{program} {names}: tests were skipped, or none has this name")
        return f"{passed[1]} tests"

    def listed_tests(self, names):
        """The full names of the tests of gpu_contract_test that a filter fits."""
        suite, found = "", []
        command = [HERE / "gpu_contract_test", f"--gtest_filter={names}", "--gtest_list_tests"]
        for line in subprocess.check_output(command, env=self.environment, text=True, timeout=120).splitlines():
            word = line.split("#")[0].strip()
            if line.startswith("  "):
                found.append(suite + word)
            else:
                suite = word
        return found

    def each_test(self, names):
        """Runs tests of gpu_contract_test in a process each, and reports each as soon as it has ended."""
        wanted = self.listed_tests(self.only_tests)
        found = [name for name in self.listed_tests(names) if name in wanted]
        found.sort(key=lambda name: not re.search(LONGEST, name))
        records = [{"name": name, "passed": None, "seconds": None, "found": "not run"} for name in found]
        self.report["tests"] += records

        def run_test(record):
            try:
                self.tests(record["name"], record, "gpu_contract_test")
                record["passed"], record["found"] = True, ""
            except NotRun:
                return
            except Failed as problem:
                record["passed"], record["found"] = False, str(problem)
            self.write_report()

        self.write_report()
        self.together([lambda record=record: run_test(record) for record in records])
        failed = [record["found"] for record in records if record["passed"] is False]
        not_run = ":".join(record["name"] for record in records if record["passed"] is None)
        passed = f"{sum(record['passed'] is True for record in records)} of {len(records)} tests passed"
        if failed or not_run or not records and self.only_tests == "*":
            raise Failed("; ".join([passed, *failed, *([f"not run: {not_run}"] if not_run else [])]))
        return passed

    def compare_devices(self, strategy, **options):
        """The largest relative difference of the losses on the CPU and on the GPU."""
        expected, got = (self.losses(strategy, device=device, **options) for device in ("cpu", self.device))
        return compare(expected, got, 1e-4, strategy)

    def starts(self):
        """The programs load, see the GPU, and train; `ddpxx doctor` finds nothing wrong, and `ddpxx net` measures."""
        losses = self.losses(("single",), steps=3)
        self.run("ddpxx", "doctor")  # forks ranks, which fails in a process that has started CUDA
        self.run("ddpxx", "net", "max_bytes=64KiB", "repeats=3")
        return f"losses {losses}"

    def numbers(self):
        """Each strategy has the losses of the CPU, a captured step too, and fused kernels the results of their CPU versions."""
        def captured():
            expected = self.losses(("single",), device="cpu")
            return compare(expected, self.losses(("single", "training.cuda_graph=true")), 1e-4, "single in a CUDA graph")

        def tested():
            return self.tests("Fused.*:Graph.*") and 0.0

        gpu_only = [captured, tested] if self.device == "cuda" else []
        calls = [lambda strategy=strategy: self.compare_devices(strategy) for strategy in STRATEGIES]
        return f"largest relative difference {max(self.together(gpu_only + calls)):.1e}"

    def races(self):
        """Losses do not change if each kernel is waited for or no memory is kept for later use, weights if streams are late."""
        def check_strategy(strategy):
            plain = self.losses(strategy)
            return max(compare(plain, self.losses(strategy, **{way: "1"}), 1e-5, (*strategy, way))
                       for way in ("CUDA_LAUNCH_BLOCKING", "PYTORCH_NO_CUDA_MEMORY_CACHING"))

        def check_strategies():
            strategies = (("ddp",), ("fsdp",), ("fsdp", "strategy.offload=cpu"))
            worst = max(self.together([lambda strategy=strategy: check_strategy(strategy) for strategy in strategies]))
            return f"largest relative difference {worst:.1e}"

        found = self.together([lambda: self.tests("OffloadedFSDP.*"), check_strategies, self.memcheck])
        return ", ".join(found)

    def memcheck(self):
        """Whether compute-sanitizer finds nothing. It does not support every GPU, nor every kind of virtual GPU."""
        sanitizer = shutil.which("compute-sanitizer")
        if not sanitizer:
            return "memcheck is not here"
        # LibTorch itself makes calls that fail, and deals with them: only accesses count.
        launcher = (sanitizer, "--tool", "memcheck", "--report-api-errors", "no")
        command, _ = self.settings(("single",), steps=1)
        try:
            can_run = "Device not supported" not in self.run(*launcher, HERE / command[0], *command[1:], limit=150)
        except NotRun:
            raise
        except Failed as problem:
            if re.search("ERROR SUMMARY: [1-9]", str(problem)):
                raise
            can_run = False
        if not can_run:
            return "memcheck cannot run here"
        self.losses(("fsdp", "model.fused=true", "model.loss_chunk=100"), steps=3,
                    launcher=(*launcher, "--error-exitcode", "9"))
        return "memcheck passed"

    def nccl(self):
        """Collectives and strategies over an NCCL communicator of one rank."""
        return self.tests("Nccl.*")

    def shared_gpu(self):
        """Several ranks share the GPU over Gloo: the suites of the strategies, and HSDP on four ranks."""
        launcher = ("ddpxx-run", "--standalone", "--nproc-per-node=4")
        hsdp = ("hsdp", "strategy.shard_size=2", "comm.backend=gloo")
        suites = f"Strategies/*:StepInBackward*:Offloaded.*{ONE_GPU}"
        if self.only_tests != "*":
            return self.each_test(suites)
        tested, difference = self.together([lambda: self.each_test(suites),
                                            lambda: self.compare_devices(hsdp, launcher=launcher)])
        return f"{tested}; HSDP differs by {difference:.1e}"

    def waits(self):
        """The loop waits for nothing."""
        return self.tests("Steps.*")

    def precisions(self):
        """The suites of precisions and of recomputed layers; each precision's losses beside float32's and PyTorch's."""
        suites = f"Precisions/*:LowPrecision*:LossScale*:TF32*:SameBitsRecomputed/*{ONE_GPU}"
        if self.only_tests != "*":
            return self.each_test(suites)

        def beside_float32():
            expected = self.losses(("ddp",))

            def compared(name):
                return f"{name} {compare(expected, self.losses(('ddp',), f'precision={name}'), 5e-2, name):.1e}"

            names = ("bf16", "fp16", "bf16_params", *(["tf32"] if self.device == "cuda" else []))
            return ", ".join(self.together([lambda name=name: compared(name) for name in names]))

        pairs = (("fp32", "float32"), ("bf16", "bf16"), ("fp16", "fp16"))
        found = self.together([beside_float32,
                               *[lambda pair=pair: self.beside_pytorch(*pair) for pair in pairs],
                               lambda: self.each_test(suites)])
        return f"relative to float32 and to PyTorch: {', '.join(found)}"

    def beside_pytorch(self, name, theirs):
        """The losses of a run beside those of PyTorch on this device; fp16 begins with too large a scale."""
        both = ("model.model_type=gpt-nano", "scaler.initial_scale=1e9")
        metrics = self.file("jsonl")
        self.run(sys.executable, HERE / "reference.py", f"data.path={HERE / 'text'}", "model.dropout=0",
                 "training.max_steps=50", f"training.metrics={metrics}", "strategy=single", f"precision={theirs}",
                 f"device={self.device}", *both)
        expected = [json.loads(line)["loss"] for line in metrics.read_text().splitlines()]
        got = self.losses(("single",), *both, "model.n_layer=null", "model.n_head=null", "model.n_embd=null",
                          "data.split=random", f"precision={name}")
        return f"{name} beside PyTorch {compare(expected, got, 1e-3, f'{name} beside PyTorch'):.1e}"

    def memory(self):
        """Memory does not grow, a batch that is too large ends with code 7, and the peak is near the plan."""
        def peak_beside_plan():
            strategy, preset = ("ddp", "precision=bf16"), preset_of("gpt2")
            peaks = [row.get("gpu_peak_bytes") for row in self.train(strategy, *preset, steps=6) if "loss" in row]
            if not peaks or None in peaks:
                raise Failed("the rows of metrics have no gpu_peak_bytes")
            command, _ = self.settings(strategy, *preset)
            plan = re.search(r"^a rank +(\d+) bytes", self.run(command[0], "plan", *command[1:]), re.MULTILINE)
            share = max(peaks) / int(plan[1])
            if not 0.5 < share < 2:
                raise Failed(f"GPT-2's peak is {share:.2f} of its plan")
            return f"GPT-2's peak is {share:.2f} of its plan"

        def too_large():
            batch = ("data.batch_size=100000", "data.block_size=256", "model.n_embd=1536")
            command, _ = self.settings(("ddp",), *batch, steps=3)
            self.run(*command, expect=7)
            return "a batch of 100000 ends with code 7"

        return "; ".join(self.together([lambda: self.tests("Memory.*"), too_large, peak_beside_plan], at_once=1))

    def snapshots(self):
        """A run that is killed resumes from its last snapshot, on the GPU and then on the CPU."""
        if self.device == "cuda":
            self.tests("Snapshots.*")
        place = self.out / "snapshots"
        saving = (f"training.save_dir={place}", "training.save_every=5", "snapshot.writing=background")
        whole = self.losses(("fsdp",), steps=360)
        command, _ = self.settings(("fsdp",), *saving, steps=100000)
        run = subprocess.Popen([str(HERE / command[0]), *command[1:]], cwd=self.out, env=self.environment,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 120
        while not list(place.glob("**/manifest*")) and run.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        run.send_signal(signal.SIGKILL)
        run.wait()
        first = last_step = None
        compared = 0
        for device in (self.device, "cpu"):
            rows = [row for row in self.train(("fsdp",), *saving, device=device, steps=(last_step or 240) + 60)
                    if "loss" in row]
            first, last_step = rows[0]["step"], rows[-1]["step"]
            if first == 1:
                raise Failed(f"the run on {device} began anew")
            for row in rows:
                if row["step"] <= len(whole):
                    compare([whole[row["step"] - 1]], [row["loss"]], 1e-3, f"step {row['step']} on {device}")
                    compared += 1
        self.run("ddpxx", "snapshot", "verify", place)
        shutil.rmtree(place)
        if compared == 0:
            raise Failed(f"the run was killed behind step {len(whole)}, so that no step could be compared")
        return f"killed, then went on, at last from step {first} to {last_step}; {compared} steps compared"

    def speed(self):
        """Time of a step of two presets, and from the start of a program to its tenth step: recorded, not judged."""
        def tenth_step():
            start = time.monotonic()
            self.train(("single",), steps=10)
            return f"a small model's tenth step {time.monotonic() - start:.2f} s after the start"

        def time_of_step(preset, strategy, *settings):
            rows = self.train((strategy,), *settings, *preset_of(preset), steps=25)
            times = sorted(row["step_ms"] for row in rows if row.get("step", 0) > 10)
            return f"{' '.join((preset, strategy, *settings))} {times[len(times) // 2]:.2f} ms"

        runs = [lambda run=(preset, *speed): time_of_step(*run) for preset in ("gpt-mini", "gpt2") for speed in SPEEDS]
        return "; ".join(self.together([tenth_step, *runs], at_once=1))


CHECKS = (Checks.starts, Checks.numbers, Checks.races, Checks.nccl, Checks.shared_gpu, Checks.waits, Checks.precisions,
          Checks.memory, Checks.snapshots, Checks.speed)
WITH_TESTS = ("shared_gpu", "precisions")
NEED_A_GPU = (Checks.races, Checks.nccl, Checks.waits, Checks.memory, Checks.speed)


def compare(expected, got, tolerance, what):
    """The largest relative difference of two rows of losses."""
    if len(expected) != len(got) or not got:
        raise Failed(f"{what}: {len(got)} losses, not {len(expected)}")
    worst = max(abs(a - b) / abs(a) for a, b in zip(expected, got))
    if not worst <= tolerance:
        raise Failed(f"{what}: losses differ by {worst:.1e} relative, more than {tolerance:.0e}: {got} {expected}")
    return worst


def gather_logs(out):
    """Moves the logs and the metrics of the programs into one file, which is easier to copy from another machine."""
    files = sorted([*out.glob("*.log"), *out.glob("*.jsonl")])
    with tarfile.open(out / "logs.tar.xz", "w:xz") as archive:
        for file in files:
            archive.add(file, file.name)
    for file in files:
        file.unlink()


def main(arguments):
    if len(arguments) >= 3 and arguments[0] == "pack":
        return pack(Path(arguments[1]), [Path(folder) for folder in arguments[2:]])
    parser = argparse.ArgumentParser(prog="gpu-check", description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--only", metavar="NAME,...")
    parser.add_argument("--budget", metavar="SECONDS", type=float, default=math.inf)
    parser.add_argument("--tests", metavar="FILTER", default="*")
    parser.add_argument("out", metavar="OUT", type=Path)
    options = parser.parse_args(arguments)
    names = [check.__name__ for check in CHECKS]
    by_default = names if options.tests == "*" else WITH_TESTS
    only = set(options.only.split(",") if options.only else by_default)
    if unknown := only - set(names):
        sys.exit(f"gpu-check: there is no check {', '.join(sorted(unknown))}; the checks are {', '.join(names)}")
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        sys.exit(f"gpu-check: {out} is not empty; give a new folder for the report and the logs")
    if importlib.util.find_spec("torch") is None:
        sys.exit("gpu-check: Python's torch is not installed; the checks use its libraries")
    try:
        return run_checks(out, only, options)
    finally:
        gather_logs(out)


def run_checks(out, only, options):
    """Runs the checks with the names `only`, writes the report, and returns the exit code."""
    rehearse = options.rehearse
    report = {"device": "", "host": platform.platform(), "checks": [], "tests": []}
    checks = Checks(out, "cpu" if rehearse else "cuda", report, options.budget, options.tests)
    try:
        report["device"] = found = checks.run("cuda_program").strip().split("\n")[-1]
    except Failed as problem:
        report["failed"] = str(problem)
        checks.write_report()
        sys.exit(f"gpu-check: {problem}")
    if found == "device cpu" and not rehearse:
        print(f"gpu-check: there is no GPU that LibTorch can use: 0 of {len(CHECKS)} checks run")
    else:
        if shutil.which("nvidia-smi") and not rehearse:
            query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
            report["gpu"] = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
        for number, check in enumerate(CHECKS, 1):
            if check.__name__ not in only or rehearse and check in NEED_A_GPU:
                continue
            start = time.monotonic()
            try:
                passed, text = True, check(checks)
            except Failed as problem:
                passed, text = False, str(problem)
            except Exception as problem:  # whatever it is, the other checks still run
                passed, text = False, f"{type(problem).__name__}: {problem}"
            seconds = round(time.monotonic() - start, 1)
            report["checks"].append({"number": number, "name": check.__name__, "passed": passed, "seconds": seconds,
                                     "found": text})
            print(f"gpu-check: {number:2} {check.__name__}: {'passed' if passed else 'FAILED'} ({seconds} s): {text}",
                  flush=True)
            checks.write_report()
        if not report["checks"]:
            sys.exit(f"gpu-check: none of these checks can run without a GPU: {', '.join(sorted(only))}")
        if options.tests != "*" and not report["tests"]:
            sys.exit(f"gpu-check: none of the checks {', '.join(sorted(only))} has a test that fits {options.tests}")
    checks.write_report()
    return 0 if all(check["passed"] for check in report["checks"]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
