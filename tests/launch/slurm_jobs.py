#!/usr/bin/env python3
"""Gives the scripts of `ddpxx slurm` to a real Slurm.

    slurm_jobs.py FOLDER_OF_PROGRAMS [time_limit]

With `time_limit`, a job runs into its real time limit, which takes two minutes. Otherwise a job on two nodes gets the
signal that announces a time limit by hand; it saves, is requeued, and goes on with the losses of an undisturbed run. A
sweep runs as a job array. A job ends when one of its ranks has failed. samples/slurm/agents.sh runs as the first of these
jobs does, and Slurm accepts the other scripts of that folder.
"""
import json
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[1] / "services"))
from hosts import skip_unless_possible  # noqa: E402
from slurm import PROGRAMS, Slurm  # noqa: E402

BIN = pathlib.Path(sys.argv[1])
MINGPT = [BIN / "mingpt", f"data.path={HERE}", "data.block_size=32", "model.n_layer=1", "model.n_head=2",
          "model.n_embd=16", "generate.tokens=0"]
STEPS = 500  # so many that a job still runs when the signal comes that is sent after its first step
PATIENCE = 240  # seconds


def losses(metrics):
    """The loss of each step; several rows of one step are an error."""
    rows = [row for row in map(json.loads, metrics.read_text().splitlines()) if "loss" in row]
    result = {row["step"]: row["loss"] for row in rows}
    assert len(result) == len(rows), f"{metrics} has steps twice"
    return result


class Jobs:
    def __init__(self, slurm, folder):
        self.slurm, self.folder = slurm, folder

    def submit(self, name, settings, program):
        """The number of the job of a script that `ddpxx slurm` has written."""
        script = subprocess.run([BIN / "ddpxx", "slurm", f"job_name={name}", f"output={self.folder}/{name}.out",
                                 *settings, "--", *program], capture_output=True, text=True, check=True)
        path = self.folder / f"{name}.sh"
        path.write_text(script.stdout)
        return self.slurm.submit(path)

    def finish(self, name, job, state="COMPLETED"):
        ended = self.slurm.wait_for(job, ["COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"], PATIENCE)
        output = self.folder / f"{name}.out"
        assert ended == state, f"{name} is {ended}: {output.read_text() if output.exists() else self.slurm.logs()}"

    def training(self, name, steps=STEPS):
        return [*MINGPT, f"training.max_steps={steps}", "training.max_epochs=0",
                f"training.save_dir={self.folder}/{name}", f"training.metrics={self.folder}/{name}.jsonl"]

    def check_forms_of_time(self):
        """sbatch takes the time limits that `ddpxx slurm` takes."""
        path = self.folder / "time.sh"
        for limit, is_taken in (("30", True), ("30:00", True), ("4:00:00", True), ("2-0", True), ("2-0:30", True),
                                ("1-0:0:30", True), ("UNLIMITED", True), ("infinite", True), ("abc", False),
                                ("4h", False), ("1:2:3:4", False), ("-5", False), ("90s", False)):
            script = subprocess.run([BIN / "ddpxx", "slurm", f"time={limit}", "--", "true"], capture_output=True,
                                    text=True, check=False)
            assert script.returncode == (0 if is_taken else 2), (limit, script)
            if not is_taken:
                assert f"time={limit} is not a time limit of Slurm" in script.stderr, script
                continue  # sbatch takes some of them, such as -5
            path.write_text("#!/bin/sh\n")
            self.slurm.run(["sbatch", "--test-only", f"--time={limit}", path])

    def check_time_limit(self):
        """Slurm knows limits of whole minutes, and may send the signal a minute early."""
        name = "limited"
        job = self.submit(name, ["time=1", "signal_before=10", "ranks_per_node=2"], self.training(name, 10_000_000))
        output = self.folder / f"{name}.out"
        end = time.monotonic() + PATIENCE
        while not output.exists() or output.read_text().count("started by srun") < 2:
            assert time.monotonic() < end, output.read_text() if output.exists() else self.slurm.logs()
            time.sleep(0.5)
        text = output.read_text()
        assert "SIGUSR1" in text and "resumed" in text, text
        self.slurm.run(["scancel", job])
        self.finish(name, job, "CANCELLED")

    def check_samples(self):
        """The nodes of the test have no GPUs."""
        folder = HERE.parents[2] / "samples" / "slurm"
        for script in folder.glob("*.sh"):
            copy = self.folder / script.name
            copy.write_text("".join(line for line in script.open() if "--gpus-per-node" not in line))
            self.slurm.run(["sbatch", "--test-only", "--cpus-per-task=1", copy])
        output = self.folder / "agents.out"
        job = self.slurm.run(["sbatch", "--parsable", f"--output={output}", f"--export=ALL,DDPXX_RUN={BIN}/ddpxx-run,"
                              "RANKS_PER_NODE=2", folder / "agents.sh", *self.training("agents")]).strip()
        self.wait_for_rows(self.folder / "agents.jsonl")
        self.slurm.run(["scancel", "--signal=USR1", job])
        self.finish("agents", job)
        text = output.read_text()
        assert text.count("place of the meeting: node1:") == 2 and "resumed" in text, text
        assert sorted(losses(self.folder / "agents.jsonl")) == list(range(1, STEPS + 1))

    def wait_for_rows(self, metrics):
        end = time.monotonic() + PATIENCE
        while not metrics.exists() or metrics.stat().st_size == 0:
            assert time.monotonic() < end, self.slurm.logs()
            time.sleep(0.05)

    def check_requeue(self):
        settings = ["nodes=2", "ranks_per_node=2", "time=1:00:00"]
        job = self.submit("stopped", settings, self.training("stopped"))
        metrics = self.folder / "stopped.jsonl"
        self.wait_for_rows(metrics)
        # As Slurm does before the time limit because of --signal=USR1@60: the ranks get the signal, not the script.
        self.slurm.run(["scancel", "--signal=USR1", job])
        self.finish("stopped", job)
        output = (self.folder / "stopped.out").read_text()
        assert output.count("started by srun: 4 ranks") == 2, f"the job was not requeued: {output}"
        whole = self.submit("whole", settings, self.training("whole"))
        self.finish("whole", whole)
        expected, found = losses(self.folder / "whole.jsonl"), losses(metrics)
        assert sorted(expected) == list(range(1, STEPS + 1)), sorted(expected)
        assert found == expected, {step: (found.get(step), loss) for step, loss in expected.items()
                                   if found.get(step) != loss}

    def check_array(self):
        """Each element is stopped once, the first while the other one runs, and only the stopped one is requeued."""
        sweep, config = self.folder / "sweep", self.folder / "sweep.yaml"
        logs = [sweep / str(number) / "log" for number in range(2)]

        def starts(log):
            return log.read_text().count("started by srun: 2 ranks") if log.exists() else 0

        def wait_until(met, log):
            end = time.monotonic() + PATIENCE
            while not met():
                assert time.monotonic() < end, (log.read_text(), self.slurm.logs())
                time.sleep(0.05)

        def limit_steps(count):
            config.write_text(json.dumps({"training": {"max_steps": count, "max_epochs": 0}}))

        limit_steps(10_000_000)  # neither element ends before its signal, however slow the other one is
        job = self.submit("sweep", ["ranks_per_node=2"],
                          [*MINGPT, config, "-m", f"--sweep-dir={sweep}", "training.save_dir=${run_folder}/snapshots",
                           "training.metrics=rows.jsonl", "training.seed=1,2"])
        for number in range(2):
            self.wait_for_rows(sweep / str(number) / "rows.jsonl")
        lines = max((sweep / str(number) / "rows.jsonl").read_bytes().count(b"\n") for number in range(2))
        limit = lines + 1000
        limit_steps(limit)  # read by the next starts
        for number, log in enumerate(logs):
            self.slurm.run(["scancel", "--signal=USR1", f"{job}_{number}"])
            # The next start follows some seconds later, when the other element may be at its end.
            wait_until(lambda: "stopped by SIGUSR1" in log.read_text(), log)
        for log in logs:
            wait_until(lambda: starts(log) > 1, log)
        for number, log in enumerate(logs):
            self.finish("sweep", f"{job}_{number}")
            assert "exit_code: 0" in (sweep / str(number) / "status").read_text()
            assert starts(log) == 2 and f"seed {number + 1}" in log.read_text(), log.read_text()
            steps = sorted(losses(sweep / str(number) / "rows.jsonl"))
            assert len(steps) >= limit and steps == list(range(1, len(steps) + 1)), steps

    def check_failure(self):
        # Slurm may lose the signal to a task that is still being launched, so the other task waits for it.
        runs = shlex.quote(str(self.folder / "runs"))
        script = (f'[ "$SLURM_PROCID" = 0 ] && {{ echo > {runs}; exec sleep 1000; }}; '
                  f"until [ -e {runs} ]; do sleep 0.1; done; exit 6")
        job = self.submit("failing", ["nodes=2"], ["sh", "-c", script])
        self.finish("failing", job, "FAILED")
        record = self.slurm.run(["scontrol", "show", "job", job])
        assert "Restarts=0 " in record and "ExitCode=143:0" in record, record  # srun ends rank 0 by SIGTERM


def main():
    skip_unless_possible(*PROGRAMS)
    with Slurm(nodes=2) as slurm, tempfile.TemporaryDirectory() as folder:
        jobs = Jobs(slurm, pathlib.Path(folder))
        if sys.argv[2:] == ["time_limit"]:
            jobs.check_time_limit()
        else:
            jobs.check_forms_of_time()
            jobs.check_failure()
            jobs.check_array()
            jobs.check_requeue()
            jobs.check_samples()
    print("Slurm runs the scripts of ddpxx slurm")


main()
