"""Prints the indices of torch.utils.data.DistributedSampler for settings drawn at random.

    sampler.py COUNT SEED    a line per setting and rank: size world_size rank seed epoch shuffle drop_last indices
"""

import random
import sys

from torch.utils.data import DistributedSampler

count, seed = (int(argument) for argument in sys.argv[1:])
draw = random.Random(seed)
for _ in range(count):
    world_size = draw.choice([1, 2, 3, 4, 5, 7, 8, 16])
    # Sizes near a multiple of the world size, below the world size, and up to some thousands.
    size = draw.choice([draw.randint(1, 20), world_size * draw.randint(1, 30), draw.randint(1, 300), draw.randint(1, 4000)])
    setting = {
        "seed": draw.choice([0, draw.randint(1, 10_000), draw.getrandbits(63)]),
        "shuffle": draw.random() < 0.8,
        "drop_last": draw.random() < 0.5,
    }
    epoch = draw.choice([0, 1, draw.randint(2, 1000)])
    for rank in range(world_size):
        sampler = DistributedSampler(range(size), num_replicas=world_size, rank=rank, **setting)
        sampler.set_epoch(epoch)
        indices = list(sampler)
        assert len(indices) == len(sampler)
        print(size, world_size, rank, setting["seed"], epoch, int(setting["shuffle"]), int(setting["drop_last"]), *indices)
