#!/usr/bin/env python3
"""Trains mingpt on two hosts with two ranks each by one command line under each launcher; the losses must be equal. Where
the ranks of a host do not follow one another, or the hosts have different numbers of them, Gloo adds in another order.

    on_two_hosts.py FOLDER_OF_PROGRAMS

The launchers are ddpxx-run, PyTorch's torchrun, Slurm's srun and Open MPI's mpirun, by IPv4 and by IPv6, and ddpxx-run
as Kubeflow Trainer starts it. The hosts are network namespaces.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import ruamel.yaml

HERE = pathlib.Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[1] / "services"))
from hosts import skip_unless_possible  # noqa: E402
from slurm import PROGRAMS, Slurm  # noqa: E402

BIN = pathlib.Path(sys.argv[1])
MINGPT = [BIN / "mingpt", f"data.path={HERE}", "data.block_size=32", "model.n_layer=1", "model.n_head=2",
          "model.n_embd=16", "generate.tokens=0"]
STEPS = 5
PATIENCE = 240  # seconds
os.environ.pop("MASTER_ADDR", None)


def rows(metrics):
    return [row for row in map(json.loads, metrics.read_text().splitlines()) if "loss" in row]


class Runs:
    """Runs of mingpt on the hosts of one Slurm; each returns its losses."""

    def __init__(self, slurm, folder):
        self.slurm, self.folder, self.count = slurm, folder, 0

    def command(self):
        self.count += 1
        self.metrics = self.folder / f"{self.count}.jsonl"
        return [*MINGPT, f"training.max_steps={STEPS}", "training.save_dir=", f"training.metrics={self.metrics}"]

    def losses(self, text, family):
        found = [row["loss"] for row in rows(self.metrics)]
        assert len(found) == STEPS, text
        address = self.slurm.hosts.addresses["node1"][family == 6]
        assert f"the ranks connect by IPv{family}: rank 0 at {address} (eth0)" in text, text
        return found

    def by_agents(self, family, launcher, endpoint):
        """One agent on each node; the agents meet by c10d's rendezvous."""
        line = [*launcher, "--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}",
                "--rdzv-id=7", *self.command()]
        agents = [self.slurm.hosts.start(node, line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                         env=self.slurm.environment)
                  for node in self.slurm.nodes]
        text = "".join(agent.communicate(timeout=PATIENCE)[0] for agent in agents)
        assert [agent.returncode for agent in agents] == [0, 0], text
        return self.losses(text, family)

    def by_train_job(self):
        """The command of `ddpxx k8s`, with the variables that Kubeflow Trainer's runtime for torch sets in each pod."""
        manifest = subprocess.run([BIN / "ddpxx", "k8s", "nodes=2", "ranks_per_node=2", f"launcher={BIN}/ddpxx-run",
                                   "--", *self.command()], capture_output=True, text=True, check=True).stdout
        trainer = ruamel.yaml.YAML(typ="safe").load(manifest)["spec"]["trainer"]
        pods = [self.slurm.hosts.start(
            node, [*trainer["command"], *trainer["args"]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=self.slurm.environment | {
                "PET_NNODES": str(trainer["numNodes"]), "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
                "PET_NODE_RANK": str(number), "PET_MASTER_ADDR": "node1", "PET_MASTER_PORT": "29400"})
            for number, node in enumerate(self.slurm.nodes)]
        text = "".join(pod.communicate(timeout=PATIENCE)[0] for pod in pods)
        assert [pod.returncode for pod in pods] == [0, 0], text
        return self.losses(text, 6)

    def by_srun(self, family, *options):
        master = [] if not family else [f"--export=ALL,MASTER_ADDR=node1-v{family}"]
        command = ["srun", "--nodes=2", "--kill-on-bad-exit=1", *options, *master, *self.command()]
        text = self.slurm.run(command, PATIENCE)
        assert "started by srun: 4 ranks, which meet at node1" in text, text
        return self.losses(text, family or 6)

    def by_mpirun(self, family):
        """mpirun reaches the second node by Slurm. Without a family it has no MASTER_ADDR."""
        master = [] if not family else ["-x", f"MASTER_ADDR=node1-v{family}"]
        script = self.folder / "mpirun.sh"
        script.write_text("#!/bin/sh\nexec " + " ".join(map(str, [
            "mpirun", "--allow-run-as-root", "-n", "4", "--map-by", "ppr:2:node", *master, *self.command()])) + "\n")
        output = self.folder / f"mpirun{family}"
        self.slurm.run(["sbatch", "--wait", "--nodes=2", "--ntasks-per-node=2", f"--output={output}", script], PATIENCE)
        text = output.read_text()
        assert "started by mpirun: 4 ranks, which meet at " in text, text
        return self.losses(text, family or 4)


def main():
    skip_unless_possible(*PROGRAMS, "mpirun")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--no-python"]
    with Slurm(nodes=2) as slurm, tempfile.TemporaryDirectory() as folder:
        runs = Runs(slurm, pathlib.Path(folder))
        results = {}
        ipv4, ipv6 = slurm.hosts.addresses["node1"]
        for family, endpoint in ((4, f"{ipv4}:29400"), (6, f"[{ipv6}]:29400")):
            results[f"ddpxx-run, IPv{family}"] = runs.by_agents(family, [BIN / "ddpxx-run"], endpoint)
            results[f"srun, IPv{family}"] = runs.by_srun(family, "--ntasks-per-node=2")
            results[f"mpirun, IPv{family}"] = runs.by_mpirun(family)
        results["the command of a TrainJob"] = runs.by_train_job()
        # torchrun's ranks meet at the first host's name, whose first address is that of IPv6, whatever the endpoint is.
        results["torchrun"] = runs.by_agents(6, torchrun, "node1:29400")
        results["mpirun by its own address"] = runs.by_mpirun(None)
        uneven = runs.by_srun(None, "--ntasks=4")
        cyclic = runs.by_srun(None, "--ntasks-per-node=2", "--distribution=cyclic")
    expected = results["ddpxx-run, IPv4"]
    for name, found in results.items():
        assert found == expected, f"{name}: {found}, but ddpxx-run by IPv4: {expected}"
    assert uneven == cyclic, f"srun, 3 and 1 ranks: {uneven}, but srun, cyclic: {cyclic}"
    assert all(abs(a / b - 1) < 1e-6 for a, b in zip(uneven, expected)), f"{uneven} in another order, {expected} in order"
    print("equal losses on two hosts: " + "; ".join(results))


main()
