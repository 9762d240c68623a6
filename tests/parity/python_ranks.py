"""A Python rank in a group with a rank of ddpxx: first as rank 1, then as rank 0, which hosts the store.

    python_ranks.py PORT_OF_CXX

In the first group this rank sends C++ the port at which the store of the second group listens, which the system has
chosen. Prints a line for each group with the results of the collectives.
"""

import os
import sys

import torch
import torch.distributed as dist


def take_part(rank, told):
    """Calls the collectives of the test; one of them sends C++ the number `told`."""
    total = torch.arange(3.0) + 10 * rank
    dist.all_reduce(total)
    from_each = []
    for root in range(2):
        value = torch.full((2,), 100.0 + rank)
        dist.broadcast(value, src=root)
        from_each += value.tolist()
    dist.broadcast(torch.tensor([told]), src=rank)
    dist.barrier()
    print(rank, total.tolist(), from_each, flush=True)
    dist.barrier()  # a group of ddpxx makes this barrier when it leaves
    dist.destroy_process_group()


os.environ.update(RANK="1", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1])
store = dist.TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)
dist.init_process_group("gloo")
take_part(1, store.port)
# init_process_group() adds this prefix to the keys of a store that it makes itself.
dist.init_process_group("gloo", store=dist.PrefixStore("default_pg", store), rank=0, world_size=2)
take_part(0, 0)
