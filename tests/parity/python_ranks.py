"""A Python rank in a group with a rank of ddpxx: first as rank 1, then as rank 0, which hosts the store.

    python_ranks.py PORT_OF_CXX PORT_OF_PYTHON

Prints what each collective has left here, a line for each group.
"""

import os
import sys

import torch
import torch.distributed as dist


def take_part(rank, port):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    dist.init_process_group("gloo")
    total = torch.arange(3.0) + 10 * rank
    dist.all_reduce(total)
    from_each = []
    for root in range(2):
        value = torch.full((2,), 100.0 + rank)
        dist.broadcast(value, src=root)
        from_each += value.tolist()
    dist.barrier()
    print(rank, total.tolist(), from_each, flush=True)
    dist.barrier()  # what a group of ddpxx does when it leaves
    dist.destroy_process_group()


take_part(1, sys.argv[1])
take_part(0, sys.argv[2])
