"""The peer of bench/programs/data_times.cpp: batches of int64 from a file of tokens, by Python.

    data_times.py FILE SAMPLES TOKENS WORKERS BATCHES     DataLoader and DistributedSampler
    data_times.py FILE SAMPLES TOKENS get_batch BATCHES   nanoGPT's way: random places of a mapped file, stacked
"""
import json
import sys
import time

import numpy
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Tokens(Dataset):
    """Sample i has the tokens from i on as input, and those from i + 1 on as targets."""

    def __init__(self, path, block):
        self.tokens, self.block = numpy.memmap(path, dtype=numpy.uint16, mode="r"), block

    def __len__(self):
        return len(self.tokens) - self.block

    def __getitem__(self, i):
        chunk = torch.from_numpy(self.tokens[i:i + self.block + 1].astype(numpy.int64))
        return chunk[:-1], chunk[1:]


def drawn(dataset, samples):
    """Batches from random places, each tensor stacked from its rows."""
    tokens, block = dataset.tokens, dataset.block
    while True:
        places = torch.randint(len(dataset), (samples,))
        yield tuple(torch.stack([torch.from_numpy(tokens[i + shift:i + shift + block].astype(numpy.int64)) for i in places])
                    for shift in (0, 1))


path, samples, block, workers, batches = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
torch.set_num_threads(1)
begin = time.perf_counter()
dataset = Tokens(path, block)
if workers == "get_batch":
    source = drawn(dataset, samples)
else:
    sampler = DistributedSampler(dataset, num_replicas=1, rank=0)
    source = iter(DataLoader(dataset, samples, sampler=sampler, num_workers=int(workers)))
tokens = next(source)[0].numel()
first = 1e3 * (time.perf_counter() - begin)
start = time.perf_counter()
for _ in range(batches):
    tokens += next(source)[0].numel()
print(json.dumps({"first": first, "batch": 1e3 * (time.perf_counter() - start) / batches, "tokens": tokens}))
