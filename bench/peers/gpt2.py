"""The peer of mingpt for bench/gpt2.py: GPT-2 in Python, on token files, on a CPU or on GPUs.

    gpt2.py mode=eager|compile|reduce-overhead|ddp|fsdp device=cpu|cuda precision=fp32|bf16 data.path=FILE ...

Model, initial weights, order of the samples and optimizer are those of mingpt; tensor operations are those of
tests/parity/reference.py.
"""
import collections
import contextlib
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.utils.data import DistributedSampler

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "tests", "parity"))
import reference  # noqa: E402

OWN = {"mode": "eager", "device": "cpu", "precision": "fp32", "data.vocab_size": 50304}


def parse(arguments):
    own, other = dict(OWN), []
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key in own:
            own[key] = type(own[key])(value)
        else:
            other.append(argument)
    return own, reference.parse_settings(other)


def batches(settings, ids, device):
    """This rank's batches of all epochs, from the windows of the first nine tenths of the tokens."""
    length, size = settings["data.block_size"], settings["data.batch_size"]
    windows = range(int(len(ids) * settings["data.train_split"]) - length)
    sampler = DistributedSampler(windows, seed=settings["training.seed"])
    offsets = torch.arange(length + 1)
    for epoch in range(1 << 30):
        sampler.set_epoch(epoch)
        order = torch.tensor(list(sampler))
        for first in order.split(size):
            tokens = ids[first[:, None] + offsets].long()
            pair = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
            if device.type == "cuda":
                pair = [part.pin_memory().to(device, non_blocking=True) for part in pair]
            yield pair


def copy_to_host(value):
    """Starts to copy a number to the host, and returns the function that waits for the copy and reads it."""
    if value.device.type == "cpu":
        value = value.clone()
        return value.item
    host, copied = torch.empty((), pin_memory=True), torch.cuda.Event()
    host.copy_(value, non_blocking=True)
    copied.record()

    def read():
        copied.synchronize()
        return host.item()

    return read


def wrap(own, model, device):
    if own["mode"] == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    if own["mode"] == "fsdp":
        from torch.distributed.fsdp import fully_shard
        mesh = dist.init_device_mesh(device.type, (dist.get_world_size(),))
        for block in model.parts[1]:
            fully_shard(block, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    if own["mode"] == "eager":
        return model
    return torch.compile(model, mode="default" if own["mode"] == "compile" else own["mode"])


def main():
    own, settings = parse(sys.argv[1:])
    rank = int(os.environ["LOCAL_RANK"])
    device = torch.device(own["device"], rank) if own["device"] == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    with open(settings["data.path"], "rb") as file:
        ids = torch.frombuffer(bytearray(file.read()), dtype=torch.uint16).int()
    model = reference.GPT(settings, own["data.vocab_size"])
    model.draw_weights(settings["training.seed"])
    model.to(device)
    wrapped = wrap(own, model, device)
    optimizer = torch.optim.AdamW(model.optimizer_groups(settings["optimizer.weight_decay"]),
                                  settings["optimizer.learning_rate"], betas=(0.9, 0.95), eps=1e-8, fused=True)
    autocast = contextlib.nullcontext()
    if own["precision"] == "bf16":
        autocast = torch.autocast(device.type, torch.bfloat16)

    rows, waiting, start = [], collections.deque(), time.perf_counter()

    def read_oldest():
        nonlocal start
        loss, now = waiting.popleft()(), time.perf_counter()
        rows.append({"step": len(rows) + 1, "loss": loss, "step_ms": 1e3 * (now - start)})
        start = now

    for step, (inputs, targets) in enumerate(batches(settings, ids, device), 1):
        optimizer.zero_grad()
        with autocast:
            loss = wrapped(inputs, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings["training.grad_norm_clip"])
        optimizer.step()
        waiting.append(copy_to_host(loss.detach()))
        if len(waiting) > 2:  # ddpxx too reads a step's loss two steps later
            read_oldest()
        if step == settings["training.max_steps"]:
            break
    while waiting:
        read_oldest()
    if device.type == "cuda":
        rows[-1]["gpu_peak_bytes"] = torch.cuda.max_memory_allocated()
    if dist.get_rank() == 0:
        with open(settings["training.metrics"], "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    dist.destroy_process_group()


main()
