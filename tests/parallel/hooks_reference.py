"""Runs PyTorch's DDP communication hooks on two ranks: python3 hooks_reference.py TENSORS.safetensors RESULT.safetensors

TENSORS has the gradient that rank R computes in step S as `gradient.S.R.NAME`, the Qs of PowerSGD with rank K as
`q.K.NAME`, and those of the batched PowerSGD as `batched.K`. TENSORS is in alphabetical order, which is the
order of the parameters in a bucket. RESULT has the gradients of each step after DDP's reduction as `CASE.S.NAME`.
"""
import importlib
import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook, quantization_hooks
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "parity"))
from reference import read_safetensors, write_safetensors  # noqa: E402

WORLD_SIZE = 2
START = 2  # PowerSGD compresses from this step on


class Given(torch.nn.Module):
    """A model whose gradients are the tensors that forward receives."""

    def __init__(self, shapes):
        super().__init__()
        for name, shape in shapes.items():
            self.register_parameter(name, torch.nn.Parameter(torch.zeros(shape)))

    def forward(self, gradients):
        return sum((parameter * gradients[name]).sum() for name, parameter in self.named_parameters())


def power_sgd(model, qs, rank):
    """PowerSGD whose first compressed step starts from the given Qs."""
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=START,
                                        min_compression_rate=1)
    name_of = {id(parameter): name for name, parameter in model.named_parameters()}

    def hook(_, bucket):
        if state.iter == START:
            names = [name_of[id(parameter)] for parameter in bucket.parameters()]
            chosen = [qs[f"{rank}.{name}"] for name in names if f"{rank}.{name}" in qs]
            rows = [p.shape[0] for p, name in zip(bucket.parameters(), names) if f"{rank}.{name}" in qs]
            state.q_memory_dict[bucket.index()] = torch.cat([q.reshape(-1) for q in chosen])
            state.p_memory_dict[bucket.index()] = torch.empty(sum(n * q.shape[1] for n, q in zip(rows, chosen)))
        return powerSGD_hook.powerSGD_hook(state, bucket)

    return hook


def batched_power_sgd(model, q):
    """batched_powerSGD_hook whose first compressed step starts from the given Q.

    The hook passes one matrix to a function that takes batches of matrices.
    """
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=q.shape[1], start_powerSGD_iter=START)
    name_of = {id(parameter): name for name, parameter in model.named_parameters()}

    def hook(_, bucket):
        if state.iter == START:
            names = [name_of[id(parameter)] for parameter in bucket.parameters()]
            assert names == list(reversed(name_of.values())), names
            state.q_memory_dict[bucket.index()] = q.clone()
            state.p_memory_dict[bucket.index()] = torch.empty_like(q)
        return powerSGD_hook.batched_powerSGD_hook(state, bucket)

    return hook


def take_single_matrices(orthogonalize):
    return lambda matrix, epsilon=0: orthogonalize(matrix.unsqueeze(0) if matrix.dim() == 2 else matrix, epsilon)


def quantize(group, bucket):
    """quantization_pertensor_hook with futures that work without NCCL."""
    tensor = bucket.buffer()
    observer = torch.ao.quantization.MinMaxObserver()
    observer(tensor)
    facts = torch.FloatTensor([*observer.calculate_qparams()])
    message = quantization_hooks._quantize_per_tensor_backend(tensor, *facts)
    all_facts, messages = ([torch.empty_like(t) for _ in range(WORLD_SIZE)] for t in (facts, message))
    dist.all_gather(all_facts, facts, group)
    dist.all_gather(messages, message, group)
    total = torch.zeros_like(tensor)
    for values, of_rank in zip(messages, all_facts):
        total += quantization_hooks._dequantize_per_tensor_backend(values, *of_rank)
    done = torch.futures.Future()
    done.set_result(total / WORLD_SIZE)
    return done


def part(tensors, prefix):
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)
}

def run_rank(rank, tensors, meeting, result_path):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=WORLD_SIZE)
    group = dist.group.WORLD
    powerSGD_hook._orthogonalize = take_single_matrices(powerSGD_hook._orthogonalize)
    cases = {
        "fp16": lambda model: (group, default_hooks.fp16_compress_hook),
        "bf16": lambda model: (group, default_hooks.bf16_compress_hook),
        "quantize": lambda model: (group, quantize),
        "power_sgd_2": lambda model: (None, power_sgd(model, part(tensors, "q."), 2)),
        "power_sgd_4": lambda model: (None, power_sgd(model, part(tensors, "q."), 4)),
        "batched_2": lambda model: (None, batched_power_sgd(model, tensors["batched.2"])),
        "batched_4": lambda model: (None, batched_power_sgd(model, tensors["batched.4"])),
    }
    result = {}
    for case, hook in cases.items():
        model = Given({
name: tensor.shape for name, tensor in reversed(part(tensors, "gradient.0.0.").items())})
        ddp = DistributedDataParallel(model)
        ddp.register_comm_hook(*hook(model))
        step = 0
        while gradients := part(tensors, f"gradient.{step}.{rank}."):
            ddp.zero_grad()
            ddp(gradients).backward()
            result |= {f"{case}.{step}.{name}": p.grad.clone() for name, p in model.named_parameters()
}
            step += 1
    if rank == 0:
        write_safetensors(result_path, result)
    dist.destroy_process_group()


def main():
    torch.set_num_threads(1)  # a fork after an OpenMP region would hang in the next one
    importlib.import_module("torch._dynamo")  # DDP asks for it, and it is slow: once, before the fork
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.start_processes(
            run_rank, (read_safetensors(sys.argv[1]), os.path.join(folder, "meeting"), sys.argv[2]), WORLD_SIZE,
            start_method="fork")


if __name__ == "__main__":
    main()
