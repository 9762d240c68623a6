#!/usr/bin/env python3
"""Tests slurm.py: a step on two nodes, a batch job that is requeued, and that no daemon is left."""

import pathlib
import tempfile

from hosts import skip_unless_possible
from slurm import PROGRAMS, Slurm

SCRIPT = """\
#!/bin/sh
echo "restarts: ${SLURM_RESTART_COUNT-0}"
[ -n "${SLURM_RESTART_COUNT-}" ] || scontrol requeue "$SLURM_JOB_ID"
[ -n "${SLURM_RESTART_COUNT-}" ] || sleep 1000
"""


def daemons(folder):
    """The command lines of processes that name a folder."""
    lines = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:  # the process has ended
            continue
    return [line for line in lines if str(folder) in line]


def main():
    skip_unless_possible(*PROGRAMS)
    with tempfile.TemporaryDirectory() as folder, Slurm(nodes=2) as slurm:
        hosts = slurm.run(["srun", "--nodes=2", "--ntasks-per-node=2", "hostname"]).split()
        assert sorted(hosts) == ["node1", "node1", "node2", "node2"], hosts
        script, output = pathlib.Path(folder) / "job.sh", pathlib.Path(folder) / "output"
        script.write_text(SCRIPT)
        job = slurm.submit(script, f"--output={output}", "--open-mode=append", "--requeue")
        assert slurm.wait_for(job, ["COMPLETED", "FAILED"]) == "COMPLETED", output.read_text()
        assert "restarts: 0\n" in output.read_text() and "restarts: 1\n" in output.read_text(), output.read_text()
        state = slurm.folder
        assert daemons(state)
    assert not daemons(state) and not state.exists(), daemons(state)
    print("Slurm runs steps on two nodes, requeues a job, and leaves nothing")


main()
