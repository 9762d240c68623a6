#!/usr/bin/env python3
"""Checks that samples/slurm and samples/k8s are what the commands of their pages write, and that each file can be read.

    cluster_samples.py FOLDER_OF_PROGRAMS
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import jsonschema
import ruamel.yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLURM, K8S = ROOT / "samples" / "slurm", ROOT / "samples" / "k8s"


def read_yaml(text):
    return ruamel.yaml.YAML(typ="safe").load(text)


def check_written(folder, minimum):
    """Runs the commands of the folder's page elsewhere, and compares what they write with the files of the folder."""
    commands = re.findall(r"^ddpxx .*>(\S+)$", (folder / "README.md").read_text(), re.MULTILINE)
    assert len(commands) >= minimum, commands
    with tempfile.TemporaryDirectory() as elsewhere:
        text = "\n".join(re.findall(r"^ddpxx .*$", (folder / "README.md").read_text(), re.MULTILINE))
        subprocess.run(["sh", "-ec", text], cwd=elsewhere, check=True, timeout=120,
                       env=os.environ | {"PATH": f"{sys.argv[1]}:{os.environ['PATH']}"})
        for name in commands:
            written = (pathlib.Path(elsewhere) / name).read_text()
            assert written == (folder / name).read_text(), f"{folder / name} is not what the page's command writes"


def check_signal_times():
    """Slurm counts whole seconds, and a signal 0 s before the time limit would be none."""
    for setting, line in (("500ms", "#SBATCH --signal=USR1@1\n"), ("90s", "#SBATCH --signal=USR1@90\n"), ("0", None)):
        done = subprocess.run([f"{sys.argv[1]}/ddpxx", "slurm", f"signal_before={setting}", "--", "program"],
                              capture_output=True, text=True, check=True, timeout=120)
        assert line in done.stdout if line else "--signal" not in done.stdout, done.stdout


def check_empty_programs():
    """A shell makes an empty word of a variable that is not set: "$PROGRAM"."""
    for command in ("slurm", "k8s"):
        done = subprocess.run([f"{sys.argv[1]}/ddpxx", command, "--", ""], capture_output=True, text=True, check=False,
                              timeout=120)
        assert done.returncode == 2 and not done.stdout and "needs the program" in done.stderr, done


def check_sweeps():
    """A script is an array where the program's arguments ask for a sweep; Python's -m does not."""
    def script(*program):
        return subprocess.run([f"{sys.argv[1]}/ddpxx", "slurm", "--", *program], capture_output=True, text=True,
                              check=False, timeout=120)
    for program, is_array in ((("mingpt", "-m", "a=1,2"), True), (("python3", "-m", "train", "a=1,2"), False),
                              (("/usr/bin/python3.11", "train.py", "--multirun", "a=1,2"), True)):
        done = script(*program)
        assert done.returncode == 0 and ("#SBATCH --array" in done.stdout) == is_array, (program, done)
    done = script("mingpt", "-m", "a=1,2", "--dry-run")
    assert done.returncode == 2 and not done.stdout and "--dry-run" in done.stderr, done


def check_ports():
    """Two jobs that have the same first node must not meet at one port."""
    with tempfile.TemporaryDirectory() as programs:
        for name, body in (("scontrol", "echo node1"), ("srun", 'printf "%s\\n" "$@"')):
            program = pathlib.Path(programs) / name
            program.write_text(f"#!/bin/sh\n{body}\n")
            program.chmod(0o755)
        for job, port in (("7", 20007), ("10008", 20008)):
            done = subprocess.run(["bash", SLURM / "agents.sh", "program"], capture_output=True, text=True, check=True,
                                  env=os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "SLURM_JOB_ID": job})
            words = done.stdout.splitlines()
            assert words[words.index("--rdzv-endpoint") + 1] == f"node1:{port}", words


def main():
    check_written(SLURM, 4)
    check_written(K8S, 1)
    check_signal_times()
    check_empty_programs()
    check_sweeps()
    check_ports()
    for script in SLURM.glob("*.sh"):
        subprocess.run(["bash", "-n", script], check=True)
        assert f"`{script.name}`" in (SLURM / "README.md").read_text(), script
    jsonschema.validate(read_yaml((K8S / "train_job.yaml").read_text()),
                        json.loads(pathlib.Path(__file__).with_name("train_job.schema.json").read_text()))
    template = (SLURM / "pcluster.yaml.template").read_text()
    cluster = read_yaml(re.sub(r"<[\w-]+>", "filled-in", template))
    assert cluster["Scheduling"]["Scheduler"] == "slurm" and cluster["SharedStorage"][0]["MountDir"] == "/shared", cluster
    for queue in cluster["Scheduling"]["SlurmQueues"]:
        bucket, script = re.fullmatch("s3://([^/]+)/(.+)", queue["CustomActions"]["OnNodeConfigured"]["Script"]).groups()
        assert (SLURM / script).is_file() and queue["Iam"]["S3Access"] == [{"BucketName": bucket}], queue
    print("the samples are what their pages say")


main()
