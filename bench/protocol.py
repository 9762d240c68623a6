"""Compares two programs in a way that other work on the machine does not change the result.

The programs run in pairs, one after the other, in the order AB BA AB ... The result is the median over the pairs of
log(theirs / ours), with the interval that contains the true median with a probability of at least 95 %. Its ends are
ratios of pairs, chosen by the binomial distribution: the smallest and the largest of six pairs, and others the nearer to
the median the more pairs there are. Fewer than six pairs have no such interval. Each benchmark says how many pairs are
the fewest; more are added until the interval is narrow, or for one minute. Where programs run for long, six pairs with a
narrow interval are enough after two minutes. A goal is reached if the lower end of the interval reaches it. Before, one
case of ours is compared with itself in the same way, for two minutes at most: if that ratio differs from 1.00 by more
than 2 %, or its interval is wider than 2 % to each side, there is no verdict. Pairs during which other processes used more
than a tenth of a core are dropped; if more than half are dropped, there is no verdict.

Needs only the standard library. Results are written to build/bench/NAME.json, with every sample.
"""
import argparse
import contextlib
import dataclasses
import hashlib
import importlib.util
import itertools
import json
import math
import os
import pathlib
import platform
import re
import resource
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = ROOT / "build" / "bin"
RESULTS = ROOT / "build" / "bench"
SITE = ROOT / ".deps" / "site"
CORES = sorted(os.sched_getaffinity(0))  # that this process and its children may use
FOREIGN_CORES = 0.1
AA_TOLERANCE = 0.02
CONFIDENCE = 0.95  # of an interval
HALF_WIDTH = 0.03  # of the interval of a comparison that has enough pairs
MOST_PAIRS = 60
MOST_SECONDS = 60  # of one comparison that has the fewest pairs
LONG_SECONDS = 120  # after which FEWEST_OF_LONG pairs are enough if their interval is narrow
FEWEST_OF_LONG = 6
SAME_WORK = {"loss_10": 1e-5, "loss_last": 1e-3}  # how far the losses of both sides may differ, in float32


@dataclasses.dataclass
class Run:
    """One run of a program."""

    wall: float  # seconds
    cpu: float  # user + system seconds of all its processes
    foreign: float  # cores that other programs used meanwhile
    lines: list  # (seconds since the start, text) of each line of output
    value: float = math.nan  # the value that is compared
    facts: dict = dataclasses.field(default_factory=dict)
    is_bound: bool = False  # the value is the smallest that can be told from noise; the true one may be smaller
    peak: float = math.nan  # MB, the largest resident memory of one of its processes


# --- programs ---------------------------------------------------------------------------------------------------

# The cache folder of torch.compile. The warm-up of a comparison fills it. The folder that all programs share by default may
# have half a file of a program that was killed. TORCHINDUCTOR_CACHE_DIR names another one.
COMPILED = tempfile.TemporaryDirectory(prefix="ddpxx-bench-")
FASTEST = ["model.fused=true", "training.fused_clip=true"]  # settings of ours that change no result beyond rounding
RANKS = ["--standalone", "--nproc-per-node", "2"]


def launched(ranks):
    return RANKS if ranks is None else [*RANKS[:-1], str(ranks)]


def pinned(program):
    """Binds each rank to a core, on machines that have a core for each rank. With a GPU, Python's threads need several."""
    if BIN.parent.name == "cuda" or not shutil.which("taskset") or len(CORES) < 2:
        return program
    core = f'$(echo {" ".join(map(str, CORES))} | cut -d " " -f $((LOCAL_RANK + 1)))'
    return ["sh", "-c", f'exec taskset -c "{core}" "$0" "$@"', *program]


def ours(settings, wrap=list, ranks=None):
    # The peers hold out random samples; mingpt holds out the end of a text unless it is told.
    split = [] if "data.format=tokens" in settings else ["data.split=random"]
    return [str(BIN / "ddpxx-run"), *launched(ranks), *wrap([str(BIN / "mingpt"), *split, *settings])]


def peer(settings, wrap=list, program="train.py", ranks=None):
    program = wrap([sys.executable, str(ROOT / "bench" / "peers" / program), *settings])
    return [sys.executable, "-m", "torch.distributed.run", *launched(ranks), "--no-python", *program]


def environment():
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {"TORCHINDUCTOR_CACHE_DIR": COMPILED.name} | inherited | {
        "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONPATH": str(SITE), "PYTHONWARNINGS": "ignore"}


def start(command):
    return subprocess.Popen(command, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def install(pinned, folder):
    """Installs peers into a folder of their own, because ddpxx does not need them."""
    marker = folder / "pinned.txt"
    if marker.exists() and marker.read_text().split() == pinned:
        return
    print(f"installing {', '.join(pinned)} into {folder}", flush=True)
    pip = [ROOT / ".deps" / "pip" / "bin" / "python", "-m", "pip"]  # the program pip names the folder in which it was made
    subprocess.run([*pip, "install", "--quiet", "--upgrade", "--target", folder, *pinned], check=True)
    marker.write_text("\n".join(pinned))


def compiler_flags(program, kinds):
    """The flags of these kinds, such as -I, and all -isystem, with which the build compiles a program of this folder."""
    commands = json.loads((ROOT / "build" / "compile_commands.json").read_text())
    words = shlex.split(next(c["command"] for c in commands if c["file"].endswith(f"bench/programs/{program}")))
    return [word for i, word in enumerate(words) if word.startswith(kinds) or "-isystem" in (word, words[i - 1])]


def busy_seconds():
    """The busy time of all cores since boot, in seconds."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, interrupts, soft_interrupts, stolen = map(int, file.readline().split()[1:9])
    return (user + nice + system + interrupts + soft_interrupts + stolen) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def processes_below(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            children = [int(child) for child in file.read().split()]
    except FileNotFoundError:  # the process has ended meanwhile
        return []
    return children + [pid for child in children for pid in processes_below(child)]


def process_of_rank(launcher, rank):
    """The process of a rank below a launcher; None if it has not been started yet."""
    for pid in processes_below(launcher):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if f"RANK={rank}".encode() in file.read().split(b"\0"):
                    return pid
        except (FileNotFoundError, ProcessLookupError):  # the process has ended meanwhile
            continue
    return None


def run(command, tries=3, watch=None):
    """Runs a program. A peer that fails is run again, because Python's torch sometimes aborts at its end. `watch` is
    called with the process and its lines so far after each line; it may end the program, so no exit code is a failure.
    """
    busy, own, begin = busy_seconds(), own_seconds(), time.perf_counter()
    with start(command) as process:
        lines = []
        for line in process.stdout:
            lines.append((time.perf_counter() - begin, line.rstrip()))
            if watch:
                watch(process, lines)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall, cpu = time.perf_counter() - begin, usage.ru_utime + usage.ru_stime
    failed = process.returncode != 0 and not watch
    if failed and tries > 1 and sys.executable in command:
        print(f"  run again, since it failed with {process.returncode}: {' '.join(command)}")
        return run(command, tries - 1)
    if failed:
        sys.exit("\n".join([f"failed with {process.returncode}: {' '.join(command)}", *(text for _, text in lines)]))
    foreign = max(0.0, busy_seconds() - busy - (own_seconds() - own) - cpu) / wall
    return Run(wall, cpu, foreign, lines, peak=usage.ru_maxrss * 1024 / 1e6)


# --- steps ------------------------------------------------------------------------------------------------------


def step_time(side, settings, warm_up):
    """A run with the median time of the steps after the warm-up as value, and its losses as facts."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = os.path.join(folder, "metrics.jsonl")
        result = run(side([*settings, f"training.metrics={metrics}"], pinned))
        with open(metrics) as file:
            rows = [row for row in map(json.loads, file) if "loss" in row]
    result.value = statistics.median(row["step_ms"] for row in rows[warm_up:])
    result.facts = {"loss_10": rows[9]["loss"], "loss_last": rows[-1]["loss"]}
    return result


def check_same_work(result, tolerances=SAME_WORK):
    """Checks that the losses of both sides agree, since both start from the same weights and use the same batches."""
    for key, tolerance in tolerances.items():
        ours, theirs = (run.facts[key] for run in result.pairs[0])
        if abs(ours / theirs - 1) > tolerance:
            sys.exit(f"  void: {key} is {ours} and {theirs}: the sides do not do the same work")


# --- comparison -------------------------------------------------------------------------------------------------


def interval(logs):
    """The median of the ratios, and the ends of its interval of 95 %: 0 and infinity for fewer than six ratios.

    Each of n ratios is below the true median with a probability of one half. So at most k of them are below it with the
    probability of at most k heads in n tosses of a coin: 1 / 2^n for none of them.
    """
    ordered = sorted(logs)
    at_most = itertools.accumulate(math.comb(len(logs), heads) / 2 ** len(logs) for heads in range(len(logs)))
    outside = sum(2 * probability <= 1 - CONFIDENCE for probability in at_most)  # ratios at each end
    low, high = (ordered[outside - 1], ordered[-outside]) if outside else (-math.inf, math.inf)
    return [math.exp(x) for x in (statistics.median(logs), low, high)]


def verdict(ratio_low, goal):
    if ratio_low == 0:
        return "no verdict: the interval has no lower end"
    return "reached" if ratio_low >= goal else "NOT reached"


class Comparison:
    """Pairs of runs, each with ours at first place, whichever ran first. Without two quiet pairs, all pairs count."""

    def __init__(self, pairs, quiet):
        self.pairs = pairs
        kept = [pair for pair in pairs if not quiet or max(run.foreign for run in pair) <= FOREIGN_CORES]
        self.dropped = len(pairs) - len(kept)
        self.used = kept if len(kept) > 1 else pairs
        logs = [math.log(b.value / a.value) for a, b in self.used]
        lows = [-math.inf if b.is_bound else log for log, (_, b) in zip(logs, self.used)]
        highs = [math.inf if a.is_bound else log for log, (a, _) in zip(logs, self.used)]
        self.ratio, self.low, self.high = interval(logs)[0], interval(lows)[1], interval(highs)[2]

    def is_narrow(self, half_width):
        return self.low > 0 and math.log(self.high / self.low) / 2 <= half_width

    def enough(self, fewest, seconds, half_width, most_seconds=MOST_SECONDS):
        is_narrow = self.is_narrow(half_width)
        counted = len(self.pairs) - self.dropped
        if seconds > LONG_SECONDS and counted >= FEWEST_OF_LONG and is_narrow:
            return True
        return counted >= fewest and (is_narrow or seconds > most_seconds)

    def side(self, i):
        return [pair[i] for pair in self.used]

    def contended(self):
        """Whether the user + system time of a side varies by more than a tenth, so that other work must have run."""

        def spread(runs):
            low, middle, high = statistics.quantiles([run.cpu for run in runs], n=4)
            return (high - low) / middle if middle else 0.0

        return len(self.used) > 1 and max(spread(self.side(i)) for i in (0, 1)) > 0.1


def compare(a, b, fewest, most=MOST_PAIRS, quiet=True, half_width=HALF_WIDTH, most_seconds=MOST_SECONDS):
    """Runs a() and b(), which return a Run with its value, until there are enough pairs."""
    pairs, begin = [], time.perf_counter()
    while True:
        if len(pairs) % 2 == 0:
            first = a()
            pairs.append((first, b()))
        else:
            second = b()
            pairs.append((a(), second))
        result = Comparison(pairs, quiet)
        if result.enough(fewest, time.perf_counter() - begin, half_width, most_seconds) or len(pairs) >= most:
            return result


# --- report -----------------------------------------------------------------------------------------------------


def summary(runs, unit):
    values = sorted(run.value for run in runs)
    p95 = values[math.ceil(0.95 * len(values)) - 1]
    return (f"{statistics.median(values):8.3g} {unit}   min {values[0]:.3g}, p95 {p95:.3g}, "
            f"user+sys {statistics.median(run.cpu for run in runs):.3g} s")


class Bench:
    """One benchmark: its arguments, its report, its result file."""

    def __init__(self, title, fewest, options=(), choices=()):
        """`options` are further arguments: (name, default, help); they become `self.options`. `choices` are the names of
        those that only choose among the comparisons."""
        self.name = pathlib.Path(sys.argv[0]).stem
        parser = argparse.ArgumentParser(description=title)
        parser.add_argument("--pairs", type=int, default=fewest, help="fewest pairs (default: %(default)s)")
        parser.add_argument("--most", type=int, default=MOST_PAIRS, help="most pairs (default: %(default)s)")
        parser.add_argument("--add", action="store_true",
                            help="keep the last comparisons of these programs on this machine, and add to them")
        for name, default, meaning in options:
            parser.add_argument(f"--{name}", type=type(default), default=default, help=meaning)
        arguments = self.options = parser.parse_args()
        self.fewest, self.most = arguments.pairs, max(arguments.pairs, arguments.most)
        if getattr(arguments, "device", "cpu") == "cuda":
            global BIN
            BIN = ROOT / "build" / "cuda" / "bin"
        if not (BIN / "mingpt").exists():
            sys.exit(f"{BIN}/mingpt is missing: ./dev build{' --cuda' if BIN.parent.name == 'cuda' else ''}")
        self.result = {"title": title, "versions": versions(), "arguments": sys.argv[1:],
                       "settings": changed_settings(parser, arguments, {"add", *choices}), "complete": False, "comparisons": {}}
        if arguments.add:
            self.result["comparisons"] = self.earlier()
        self.void = False
        self.failed = []
        print(title)

    def earlier(self):
        """The comparisons of the last run, which must have measured programs of the same commit on this machine with the
        same settings."""
        file, now = RESULTS / f"{self.name}.json", self.result["versions"]
        last = json.loads(file.read_text()) if file.exists() else self.result
        differ = [key for key in now if key != "load" and last["versions"].get(key) != now[key]]
        if last.get("settings") != self.result["settings"]:
            differ.append("settings")
        if now["ddpxx"] == "unknown" or now["ddpxx"].endswith("-dirty"):
            differ.append("the commit is not known, or the tree has changes without a commit")
        if differ:
            sys.exit(f"--add: {file} may hold results of other programs, of another machine or with other settings: "
                     f"{', '.join(differ)}; measure all of them anew")
        return last["comparisons"]

    @contextlib.contextmanager
    def case(self, name):
        """Within it, a failure of a program or of a check ends only the comparison of this name, which is left out."""
        try:
            yield
        except SystemExit as failure:
            print(f"  {name} is left out:\n{failure}", flush=True)
            self.result["comparisons"].pop(name, None)
            self.failed.append(name)
            self.write()

    def end(self, names=()):
        """Called after all comparisons: ends the program with an error if a case has failed. Gives the comparisons the order
        of `names`, of which --add may have measured some last; the result is complete if it has all of them."""
        found = self.result["comparisons"]
        self.result["comparisons"] = {name: found[name] for name in dict.fromkeys([*names, *found]) if name in found}
        self.result["complete"] = not self.failed and all(name in found for name in names)
        self.write()
        if self.failed:
            sys.exit(f"these comparisons failed: {', '.join(self.failed)}")

    def check_noise(self, ours):
        """Compares a case of ours with itself, before any verdict."""
        ours()  # the first run reads files that later runs find in memory
        # Without a narrow interval no comparison gets a verdict: more pairs are worth their time.
        result = compare(ours, ours, self.fewest, self.most, half_width=AA_TOLERANCE, most_seconds=LONG_SECONDS)
        print(f"  A/A      {result.ratio:.3f}x  [{result.low:.3f}, {result.high:.3f}]")
        self.void = abs(result.ratio - 1) > AA_TOLERANCE or not result.is_narrow(AA_TOLERANCE)
        self.keep("A/A", result)

    def compare(self, name, ours, peer, unit, goal, quiet=True, check=lambda result: None):
        """Compares and prints the result; `goal` is the lowest ratio that reaches the goal. `check` is called with the
        result before it is kept, and ends the program or the case if the sides have not done the same work."""
        if self.result["comparisons"].pop(name, None):  # of an earlier run, which must not outlive a failure of this one
            self.write()
        ours()
        peer()
        result = compare(ours, peer, self.fewest, self.most, quiet)
        check(result)
        found = verdict(result.low, goal)
        if self.void or result.dropped > len(result.pairs) / 2:
            found = "no verdict: the machine was not quiet"
        print(f"  ddpxx    {summary(result.side(0), unit)}")
        print(f"  {name:8} {summary(result.side(1), unit)}")
        print(f"  ratio    {result.ratio:.2f}x  [{result.low:.2f}, {result.high:.2f}]  {len(result.used)} pairs, "
              f"{result.dropped} not quiet{', contended' if result.contended() else ''}; goal >= {goal:.3g}x: {found}",
              flush=True)
        self.keep(name, result, unit=unit, goal=goal, verdict=found)
        return result

    def note(self, name, what, value, unit):
        """Adds a fact to a comparison, and prints it."""
        print(f"  {what:8} {value:8.3g} {unit}", flush=True)
        self.result["comparisons"][name][what] = value
        self.write()

    def keep(self, name, result, **more):
        samples = [[{"value": run.value, "wall": run.wall, "cpu": run.cpu, "foreign": run.foreign, **run.facts}
                    for run in pair] for pair in result.pairs]
        self.result["comparisons"][name] = {"ratio": result.ratio, "low": result.low, "high": result.high,
                                            "dropped": result.dropped, "contended": result.contended(),
                                            **more, "pairs": samples}
        self.write()

    def write(self):
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / f"{self.name}.json").write_text(json.dumps(self.result, indent=1) + "\n")


def changed_settings(parser, arguments, others=()):
    """The arguments of this run that are not the default ones."""
    return {name: value for name, value in vars(arguments).items()
            if name not in others and value != parser.get_default(name)}


def torch_folder():
    """The folder of Python's torch: that of the project, or that of the system."""
    found = None if SITE.exists() else importlib.util.find_spec("torch")
    return pathlib.Path(found.origin).parent if found else SITE / "torch"


def versions():
    def first(path, pattern):
        try:
            found = re.search(pattern, pathlib.Path(path).read_text(), re.MULTILINE)
        except OSError:
            found = None
        return found and found[1]

    describe = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    known = shutil.which("git") and subprocess.run(describe, capture_output=True, text=True).stdout.strip()
    cpu = re.sub(r"(?m)^(cpu MHz|bogomips).*\n", "", pathlib.Path("/proc/cpuinfo").read_text())
    cache = ROOT / "build" / "CMakeCache.txt"
    return {
        "ddpxx": os.environ.get("DDPXX_COMMIT") or known or "unknown",  # the variable, where only the programs are
        "build": first(cache, r"^CMAKE_BUILD_TYPE:\w+=(.*)"),
        "compiler": first(cache, r"^CMAKE_CXX_COMPILER:\w+=(.*)"),
        "torch": first(torch_folder() / "version.py", r"^__version__ = '(.*)'"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpu": first("/proc/cpuinfo", r"^model name\s*: (.*)"),
        "cores": len(CORES),
        "cpuinfo_sha256": hashlib.sha256(cpu.encode()).hexdigest(),
        "load": os.getloadavg(),
    }
