#!/usr/bin/env python3
"""Trains mingpt while its ranks and launchers are killed, paused and asked to stop at random moments. However often it
has to be started again, the training must have the losses and the snapshots of one that was left alone.

    random_faults.py FOLDER_OF_PROGRAMS SECONDS [SEED [TRIAL]]

Trials follow one another for so many seconds: each chooses a strategy, a launch and other settings. A trial that fails
prints its settings and its faults, and keeps its folder. Without SEED each run has other trials. With TRIAL only that
trial runs, once: with the same settings and kinds of faults, but at other steps.
"""
import itertools
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from unused_port import unused_port  # noqa: E402  (found by the line above)

PATIENCE = 150  # seconds until processes that do not end count as hanging
STOPS = {75, 128 + signal.SIGTERM, 128 + signal.SIGUSR1}
DEATHS = {-signal.SIGKILL, 128 + signal.SIGKILL, 128 + signal.SIGSEGV, 5}  # 5: a rank or a launcher was lost
STARTS = 40  # of one trial; each start has a few faults at most


class Trial:
    """The settings of a training, chosen by a random generator."""

    def __init__(self, draw):
        self.launch = draw.choice(["standalone", "fixed", "fixed", "elastic"])
        self.launchers = {"standalone": 1, "fixed": 2, "elastic": 3}[self.launch]
        self.ranks = {"standalone": draw.choice([2, 3, 4]), "fixed": draw.choice([1, 2]), "elastic": 1}[self.launch]
        self.nnodes = {"standalone": "1", "fixed": "2", "elastic": draw.choice(["1:3", "2:3"])}[self.launch]
        self.max_restarts = draw.choice([0, 100])
        world_size = self.launchers * self.ranks
        strategy = draw.choice(["ddp", "zero1", "zero2", "fsdp", "hsdp"])
        if strategy == "hsdp" and (self.launch == "elastic" or world_size != 4):
            strategy = "fsdp"
        self.settings = [f"strategy={strategy}", f"training.save_every={draw.choice([1, 4, 10])}"]
        if strategy == "hsdp":
            self.settings.append("strategy.shard_size=2")
        if self.launch == "elastic":  # equal steps on any number of ranks, apart from rounding
            self.settings += ["training.global_batch_size=12", "model.dropout=0"]
        else:
            self.settings += draw.choice([[], ["training.accumulation_steps=2"]]) + draw.choice([[], ["precision=bf16"]])
        if strategy != "fsdp":
            self.settings += draw.choice([[], ["training.check_replicas_every=7"]])
        for setting in ("snapshot.writing=background", "training.spike_factor=1000", "training.slow_rank_factor=1.5",
                        "training.ema_decay=0.9", "training.eval_every=20", "comm.backend=gloo", "snapshot.keep_last=3"):
            self.settings += draw.choice([[], [setting]])

    def __str__(self):
        return f"{self.launch}, {self.launchers} x {self.ranks} ranks, --nnodes={self.nnodes}, " \
               f"--max-restarts={self.max_restarts}, {' '.join(self.settings)}"


class Training:
    """One training in a folder, which may need several starts."""

    def __init__(self, programs, folder, text, trial, steps):
        self.programs, self.folder, self.trial = programs, folder, trial
        self.launchers, self.port = [], 0
        folder.mkdir()
        self.program = [programs / "mingpt", f"data.path={text}", "data.block_size=16", "data.batch_size=2",
                        "data.train_split=0.8", "model.n_layer=2", "model.n_head=2", "model.n_embd=16",
                        "training.device=cpu", "training.max_epochs=0", f"training.max_steps={steps}",
                        "comm.collective_timeout=20s", f"training.save_dir={folder / 'run'}",
                        f"training.metrics={folder / 'metrics.jsonl'}", *trial.settings]

    def launch(self, flags):
        output = open(self.folder / f"launcher-{len(self.launchers)}.txt", "w", encoding="utf-8")
        self.launchers.append(subprocess.Popen(
            [self.programs / "ddpxx-run", *flags, *self.program], env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT))

    def launch_alone(self):
        self.launch(["--standalone", f"--nproc-per-node={self.trial.launchers * self.trial.ranks}"])

    def launch_one(self):
        self.launch([f"--nnodes={self.trial.nnodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self.port}",
                     f"--nproc-per-node={self.trial.ranks}", f"--max-restarts={self.trial.max_restarts}",
                     "--rdzv-conf=last_call_timeout=1,join_timeout=20"])

    def start(self):
        """Starts all launchers."""
        self.launchers, self.port = [], unused_port()
        for _ in range(self.trial.launchers):
            if self.trial.launch == "standalone":
                self.launch(["--standalone", f"--nproc-per-node={self.trial.ranks}",
                             f"--max-restarts={self.trial.max_restarts}"])
            else:
                self.launch_one()

    def running(self):
        return [launcher for launcher in self.launchers if launcher.poll() is None]

    def codes(self):
        """The exit codes of all launchers, once they have ended."""
        end = time.monotonic() + PATIENCE
        for launcher in self.launchers:
            launcher.wait(max(0.1, end - time.monotonic()))
        return [launcher.returncode for launcher in self.launchers]

    def rows(self):
        """The rows of steps; one that is being written does not count."""
        try:
            lines = (self.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        except OSError:
            return []
        rows = [json.loads(line) for line in lines if line.endswith("\n")]
        return [row for row in rows if "loss" in row]

    def files(self):
        """The names of the files of snapshots, without their random parts."""
        run = self.folder / "run"
        return sorted(re.sub(r"\.[0-9a-f]{12}\.", ".START.", str(file.relative_to(run)))
                      for file in run.rglob("*") if file.is_file())


def ranks_of(launcher):
    """The processes of a launcher's ranks: its children except the guardian."""
    ranks = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = status.read_text(encoding="utf-8").rpartition(")")
        except OSError:
            continue
        state, parent = rest.split()[:2]
        if int(parent) == launcher.pid and state != "Z" and "ddpxx-guardian" not in name:
            ranks.append(int(status.parent.name))
    return ranks


def cause_fault(training, draw):
    """Kills, pauses or stops a rank or a launcher; returns what was done, and at which step: "" where nothing was."""
    launcher = draw.choice(training.running() or [None])
    if launcher is None:
        return ""
    ranks = ranks_of(launcher)
    fault = draw.choice(["kill rank", "kill rank", "kill rank", "crash rank", "pause rank", "stop rank", "warn rank",
                         "stop launcher", "kill launcher"])
    step = max((row["step"] for row in training.rows()), default=0)
    try:
        if fault == "stop launcher":
            launcher.terminate()
        elif fault == "kill launcher":
            launcher.kill()
            launcher.wait()
            if training.trial.launch == "elastic" and draw.random() < 0.8:  # the machine comes back
                time.sleep(draw.uniform(0, 2))
                if training.running():
                    training.launch_one()
        elif ranks and fault == "pause rank":
            rank = draw.choice(ranks)
            os.kill(rank, signal.SIGSTOP)
            time.sleep(draw.uniform(0.1, 3))
            os.kill(rank, signal.SIGCONT)
        elif ranks:
            os.kill(draw.choice(ranks), {"kill": signal.SIGKILL, "crash": signal.SIGSEGV, "stop": signal.SIGTERM,
                                         "warn": signal.SIGUSR1}[fault.split()[0]])
        else:
            return ""
    except ProcessLookupError:
        return ""
    return f"{fault} at step {step}"


def train_with_faults(training, draw, log):
    """Starts the training again and again until it is complete; the last starts are left alone."""
    faults = draw.randint(3, 8)
    for _ in range(STARTS):
        training.start()
        while faults > 0 and training.running():
            time.sleep(draw.choice([draw.uniform(0, 0.3), draw.uniform(0, 1.5), draw.uniform(0.5, 3)]))
            if fault := cause_fault(training, draw):
                log.append(fault)
                faults -= 1
        codes = training.codes()
        log.append(f"ended with {codes}")
        assert set(codes) <= {0} | STOPS | DEATHS, "unexpected exit codes"
        if set(codes) <= {0, -signal.SIGKILL} and 0 in codes:
            assert log[:-1], "no fault has hit the training"
            return
    raise AssertionError(f"not complete after {STARTS} starts")


def compare(training, quiet, programs):
    expected, found = quiet.rows(), training.rows()
    assert [row["step"] for row in found] == [row["step"] for row in expected], "the metrics file has other steps"
    is_elastic = training.trial.launch == "elastic"
    for ours, theirs in zip(found, expected):
        is_equal = math.isclose(ours["loss"], theirs["loss"], rel_tol=1e-4) if is_elastic else ours["loss"] == theirs["loss"]
        assert is_equal, f"the loss of step {ours['step']} is {ours['loss']}, and without faults {theirs['loss']}"
    if is_elastic:
        return  # other bits, and other files for other numbers of ranks
    assert training.files() == quiet.files(), f"other files: {set(training.files()) ^ set(quiet.files())}"
    diff = subprocess.run([programs / "ddpxx", "snapshot", "diff", quiet.folder / "run", f"other={training.folder / 'run'}"],
                          capture_output=True, text=True, check=False)
    lines = [line for line in (diff.stdout + diff.stderr).splitlines()
             if not line.startswith(("training.save_dir:", "training.metrics:"))]
    assert not lines, f"the snapshots differ: {lines[:5]}"


def run_trial(programs, folder, seed, number):
    draw = random.Random(f"{seed} {number}")
    trial, log = Trial(draw), []
    text = folder / "text.txt"
    text.write_text("".join(f"the quick brown fox {i * i}\n" for i in range(200)), encoding="utf-8")
    steps = draw.choice([400, 800])
    quiet = Training(programs, folder / "quiet", text, trial, steps)
    training = Training(programs, folder / "faults", text, trial, steps)
    try:
        quiet.launch_alone()
        assert quiet.codes() == [0], "the training without faults has failed"
        train_with_faults(training, draw, log)
        compare(training, quiet, programs)
        left = subprocess.run(["pgrep", "-f", str(folder)], capture_output=True, text=True, check=False).stdout.split()
        assert not left, f"processes are left: {left}"
    except (AssertionError, subprocess.TimeoutExpired) as error:
        for launcher in quiet.running() + training.running():
            launcher.kill()
        print(f"seed {seed}, trial {number} in {folder}: {error}\n  {trial}\n  {'; '.join(log)}", flush=True)
        return False
    shutil.rmtree(folder)
    return True


def main():
    programs, seconds = Path(sys.argv[1]), float(sys.argv[2])
    seed = sys.argv[3] if len(sys.argv) > 3 else str(random.randrange(1_000_000))
    only = [int(sys.argv[4])] if len(sys.argv) > 4 else None
    end, failed, count = time.monotonic() + seconds, 0, 0
    for number in only or itertools.count(1):
        if not only and time.monotonic() >= end:
            break
        failed += not run_trial(programs, Path(tempfile.mkdtemp(prefix="ddpxx-faults-")), seed, number)
        count += 1
    print(f"{count - failed} of {count} trials passed, with seed {seed}")
    raise SystemExit(1 if failed or not count else 0)


if __name__ == "__main__":
    main()
