"""The peer of mingpt: the same training in Python, started by torchrun. Takes the keys of tests/parity/reference.py."""
import os
import sys

import torch.distributed as dist

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "tests", "parity"))
import reference  # noqa: E402

settings = reference.parse_settings(sys.argv[1:])
dist.init_process_group("gloo")
reference.train(settings)
dist.destroy_process_group()
# A thread of Gloo sometimes aborts the process while the interpreter ends, after the training.
sys.stdout.flush()
os._exit(0)
