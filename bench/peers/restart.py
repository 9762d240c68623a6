"""The peer of a mingpt that is restarted: train.py, whose ranks meet again after torchrun has restarted them.

The store of torchrun's agent outlives a restart and has the addresses of the ranks that have ended, so each start uses
keys of its own.
"""
import os
import sys

import torch.distributed as dist

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "tests", "parity"))
import reference  # noqa: E402

settings = reference.parse_settings(sys.argv[1:])
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
store = dist.PrefixStore("start" + os.environ["TORCHELASTIC_RESTART_COUNT"], store)
dist.init_process_group("gloo", store=store, rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
reference.train(settings)
dist.destroy_process_group()
