#!/usr/bin/env python3
"""Trains mingpt on two ranks by ddpxx-run, by itself, by mpirun and with srun's variables; the losses must be equal.

    by_other_launchers.py FOLDER_OF_PROGRAMS

srun itself is not started: two processes get the variables that it sets on one node.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

BIN = Path(sys.argv[1])
TEXT = Path(__file__).resolve()
SETTINGS = [f"data.path={TEXT}", "data.block_size=32", "model.n_layer=1", "model.n_head=2", "model.n_embd=16",
            "training.max_steps=5", "generate.tokens=0", "training.save_dir="]
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in NAMES}


def losses(metrics):
    return [row["loss"] for row in map(json.loads, metrics.read_text().splitlines()) if "loss" in row]


def run(commands, metrics):
    """The losses of a run whose processes are `commands`, pairs of a command and variables; and what they print."""
    processes = [subprocess.Popen([*command, *SETTINGS, f"training.metrics={metrics}"], env={**ENVIRONMENT, **variables},
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                 for command, variables in commands]
    text = "".join(process.communicate(timeout=120)[0] for process in processes)
    codes = [process.returncode for process in processes]
    assert codes == [0] * len(codes), f"{commands}: exit codes {codes}: {text}"
    return losses(metrics), text


def srun_variables(rank):
    return {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0", "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank),
            "SLURM_STEP_NUM_TASKS": "2", "SLURM_NODEID": "0", "SLURM_STEP_TASKS_PER_NODE": "2",
            "SLURM_STEP_NODELIST": "localhost"}


def main():
    mingpt = str(BIN / "mingpt")
    mpirun = [shutil.which("mpirun"), "--allow-run-as-root", "--oversubscribe", "-n", "2", mingpt]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        expected, _ = run([([str(BIN / "ddpxx-run"), "--standalone", "--nproc-per-node=2", mingpt], {})], place / "ddpxx")
        assert len(expected) == 5, expected
        by_itself, _ = run([([mingpt, "spawn=2"], {})], place / "spawn")
        assert by_itself == expected, (by_itself, expected)
        by_mpirun, text = run([(mpirun, {})], place / "mpirun")
        assert by_mpirun == expected, (by_mpirun, expected)
        assert "started by mpirun: 2 ranks, which meet at 127.0.0.1 port " in text, text
        by_srun, text = run([([mingpt], srun_variables(rank)) for rank in range(2)], place / "srun")
        assert by_srun == expected, (by_srun, expected)
        assert "started by srun: 2 ranks, which meet at localhost port " in text, text
        broken = {name: value for name, value in srun_variables(0).items() if name != "SLURM_LOCALID"}
        refused = subprocess.run([mingpt, *SETTINGS], env={**ENVIRONMENT, **broken}, capture_output=True, text=True,
                                 timeout=60, check=False)
        assert refused.returncode == 5 and "SLURM_LOCALID is not set" in refused.stderr, refused
    print("ddpxx-run, spawn=2, mpirun and srun's variables give the same losses")


main()
