"""Trains a small network on numbers by fully_shard with parameters in bfloat16; prints its losses, the norms of its
gradients and its final parameters.

    python3 features.py
"""
import json
import math
import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DistributedSampler

RANKS, BATCH, SAMPLES, WIDTH, STEPS, LEARNING_RATE, SEED = 2, 4, 8, 6, 10, 0.02, 5


def pattern(rows, columns):
    """Numbers that are not exact in bfloat16."""
    return ((torch.arange(rows).unsqueeze(1) * 5 + torch.arange(columns) * 3) % 13 - 6) / 13


def train(rank, meeting):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    model = nn.Sequential(nn.Linear(WIDTH, 16, bias=False), nn.Tanh(), nn.Linear(16, 1, bias=False))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(pattern(*parameter.shape))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32,
                                  cast_forward_inputs=True)
    fully_shard(model, mesh=dist.init_device_mesh("cpu", (RANKS,)), mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    sampler = DistributedSampler(range(SAMPLES), seed=SEED)
    losses, norms = [], []
    for step in range(STEPS):  # each step is an epoch
        sampler.set_epoch(step)
        inputs = pattern(SAMPLES, WIDTH)[list(sampler)]
        targets = inputs.square().sum(1)
        loss = (model(inputs).squeeze(1) - targets).square().sum()
        optimizer.zero_grad()
        (loss / BATCH).backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), math.inf).full_tensor().item())
        optimizer.step()
        losses.append(loss.detach())
    sums = torch.stack(losses)
    dist.all_reduce(sums)
    weights = [parameter.full_tensor().flatten().tolist() for parameter in model.parameters()]
    if rank == 0:
        print(json.dumps({"losses": (sums / SAMPLES).tolist(), "norms": norms, "weights": weights}))
        sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.start_processes(train, (os.path.join(folder, "meeting"),), RANKS, start_method="fork")
