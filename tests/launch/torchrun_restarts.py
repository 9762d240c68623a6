#!/usr/bin/env python3
"""Two agents of torchrun start two ranks again after a failure that only one of them counts; the ranks must meet.

    torchrun_restarts.py FOLDER_OF_PROGRAMS

An agent whose rank has failed counts a restart. The other agent restarts its rank because the first one joins anew, and
counts none, if its rank has not failed before that: a rank that reads its first batch does not notice a lost peer.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from unused_port import unused_port  # noqa: E402

PROGRAM = pathlib.Path(sys.argv[1]) / "torchrun_restart_program"
PATIENCE = 120  # seconds


def main():
    line = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--max-restarts=2",
            "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{unused_port()}", "--no-python", PROGRAM]
    with tempfile.TemporaryDirectory(prefix="ddpxx-test-") as folder:
        agents = [subprocess.Popen(line, env=os.environ | {"FOLDER": folder}, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(2)]
        try:
            texts = [agent.communicate(timeout=PATIENCE)[0] for agent in agents]
        finally:
            for agent in agents:
                agent.terminate()
        assert [agent.returncode for agent in agents] == [0, 0], "\n".join(texts)
        seen = sorted((pathlib.Path(folder) / rank).read_text() for rank in "01")
        assert seen == ["restarts 0, sum 3", "restarts 1, sum 3"], seen
    print("the ranks of an agent with one restart and of an agent with none have met")


if __name__ == "__main__":
    main()
