#!/usr/bin/env python3
"""Checks the manifests of `ddpxx k8s` against the schema of a TrainJob, and that wrong settings are refused.

    train_job.py FOLDER_OF_PROGRAMS
"""
import json
import pathlib
import re
import subprocess
import sys

import jsonschema
import ruamel.yaml

DDPXX = pathlib.Path(sys.argv[1]) / "ddpxx"
SCHEMA = json.loads(pathlib.Path(__file__).with_name("train_job.schema.json").read_text())
PROGRAM = ["/app/mingpt", "data.path=s3://bucket/text", "a=yes", "b=1.0",
           'c="x" \\y: #z', "d=\N{GREEK SMALL LETTER PI}", "",
           "e=$(HOME) ${f} $$ $$(g) $"]


def run(*words):
    return subprocess.run([DDPXX, "k8s", *words], capture_output=True, text=True, check=False, timeout=60)


def as_kubernetes(word):
    """A word of a container's command after Kubernetes has put in the variables of the container."""
    return re.sub(r"\$(\$|\(HOME\))", lambda found: "$" if found[1] == "$" else "/root", word)


def manifest(*settings):
    done = run(*settings, "--", *PROGRAM)
    assert done.returncode == 0, done
    job = ruamel.yaml.YAML(typ="safe").load(done.stdout)
    jsonschema.validate(job, SCHEMA)
    return job


def check_refused(sentence, *words):
    done = run(*words)
    assert done.returncode == 2 and done.stdout == "" and sentence in done.stderr, done


def main():
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    trainer = manifest()["spec"]["trainer"]
    assert [as_kubernetes(word) for word in trainer.pop("args")] == PROGRAM
    assert trainer == {"numNodes": 1, "numProcPerNode": 1, "command": ["ddpxx-run"]}
    job = manifest("name=gpt-1", "k8s_namespace=team", "image=registry/gpt:1", "runtime=ours", "nodes=2",
                   "ranks_per_node=4", "gpus_per_node=4", "cpus_per_node=500m", "memory_per_node=64Gi", "launcher=/opt/ddpxx-run",
                   "token_secret=run-token", "grace=90")
    assert job["metadata"] == {"name": "gpt-1", "namespace": "team"}
    assert job["spec"]["runtimeRef"]["name"] == "ours"
    trainer = job["spec"]["trainer"]
    amounts = {"cpu": "500m", "memory": "64Gi", "nvidia.com/gpu": "4"}
    assert trainer["resourcesPerNode"] == {"requests": amounts, "limits": amounts}
    assert trainer["env"][0]["valueFrom"]["secretKeyRef"] == {"name": "run-token", "key": "token"}
    assert trainer["env"][1:] == [{"name": "PET_GRACE", "value": "90.0"}]
    assert manifest("grace=0.5")["spec"]["trainer"]["env"] == [{"name": "PET_GRACE", "value": "0.5"}]
    assert (trainer["numNodes"], trainer["numProcPerNode"], trainer["image"]) == (2, 4, "registry/gpt:1")
    manifest("name=" + "a" * 45, "k8s_namespace=" + "1" * 63, "token_secret=team.1-" + "a" * 240)
    for wrong in ("name=" + "a" * 46, "name=1a", "name=a.b", "name=a-", "k8s_namespace=a.b", "k8s_namespace=-a",
                  "k8s_namespace=" + "a" * 64, "token_secret=a..b", "token_secret=.a", "token_secret=a.", "token_secret=a.-b",
                  "token_secret=a_b", "token_secret=" + "a" * 254):
        check_refused("is not a valid name in Kubernetes", wrong, "--", "x")
    check_refused('name="Big" is not a valid name in Kubernetes', "name=Big", "--", "x")
    for key, wrong in (("memory_per_node", "64GB"), ("memory_per_node", "64 Gi"), ("cpus_per_node", "two"),
                       ("cpus_per_node", "-1"), ("cpus_per_node", "1.5.2")):
        check_refused(f"{key}={wrong} is not an amount in Kubernetes", f"{key}={wrong}", "--", "x")
    for amount in ("2", "0.5", "500m", "1e9", "128Mi", "2G"):
        assert manifest(f"memory_per_node={amount}")["spec"]["trainer"]["resourcesPerNode"]["limits"]["memory"] == amount
    check_refused("needs the program", "nodes=2")
    check_refused("nodes", "nodes=0", "--", "x")
    check_refused("launcher is empty", "launcher=", "--", "x")
    check_refused("word 2 behind -- is not UTF-8", "--", "x", b"data.path=\xe9")
    check_refused('argument 2: "node=2": unknown key; did you mean', "node=2", "--", "x")
    print("the manifests are TrainJobs")


main()
