"""The peer of bench/programs/snapshot_times.cpp: Python's torch saves and loads the same tensors.

    snapshot_times.py background FOLDER   dcp.async_save by default: until it returns, and until the files are written
    snapshot_times.py foreground FOLDER   dcp.save
    snapshot_times.py torch_save FOLDER   torch.save to a temporary file, fsync, rename
    snapshot_times.py write FOLDER        dcp.save of tensors cut over the ranks, for `load`
    snapshot_times.py load FOLDER         dcp.load of them, on any number of ranks; the slowest rank's time

dcp's writer calls fsync for every file unless told otherwise. async_save allocates memory for its copy each time.
Keeping that memory needs a GPU's driver (a writer with cache_staged_state_dict) or fails the second time
(DefaultStager, in torch 2.11).
"""
import json
import math
import os
import shutil
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

LAYERS = 10
WIDTH = 456
SHAPES = [(3 * WIDTH, WIDTH), (WIDTH, WIDTH), (4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (WIDTH,)]
REPETITIONS = 5  # after one for warm-up


def parameters():
    """50 tensors, 99.8 MB; the values of each count up from its number."""
    shapes = LAYERS * SHAPES
    return {f"tensor_{i}": torch.arange(i, i + math.prod(shape), dtype=torch.float32).view(shape)
            for i, shape in enumerate(shapes)}


def step(state):
    """Changes all values, so that they have just been written, as after an optimizer step."""
    for tensor in state.values():
        tensor.add_(1)


def milliseconds_since(begin):
    return 1e3 * (time.perf_counter() - begin)


def emit(state, **times):
    print(json.dumps(times | {"tensors": len(state), "bytes": sum(4 * tensor.numel() for tensor in state.values())}),
          flush=True)


# --- one process ------------------------------------------------------------------------------------------------


def repeat(folder, save):
    """Prints the times that `save(state, path)` returns, for each repetition."""
    state = parameters()
    for i in range(REPETITIONS + 1):
        path = os.path.join(folder, str(i))
        step(state)
        times = save(state, path)
        if i > 0:
            emit(state, **times)
        if os.path.isdir(path):
            shutil.rmtree(path)


def background(folder):
    def save(state, path):
        begin = time.perf_counter()
        written = dcp.async_save(state, checkpoint_id=path)
        blocked = milliseconds_since(begin)
        written.result()
        return {"blocked_ms": blocked, "published_ms": milliseconds_since(begin)}

    repeat(folder, save)


def foreground(folder):
    def save(state, path):
        begin = time.perf_counter()
        dcp.save(state, checkpoint_id=path)
        return {"saved_ms": milliseconds_since(begin)}

    repeat(folder, save)


def torch_save(folder):
    def save(state, path):
        begin = time.perf_counter()
        with open(path + ".part", "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(path + ".part", path)
        saved = milliseconds_since(begin)
        os.remove(path)
        return {"saved_ms": saved}

    repeat(folder, save)


# --- ranks ------------------------------------------------------------------------------------------------------


def cut_over_ranks():
    """The piece of every tensor that a rank holds under FSDP."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return {name: DTensor.from_local(tensor.chunk(mesh.size())[mesh.get_rank()].clone(), mesh, [Shard(0)])
            for name, tensor in parameters().items()}


def write(folder):
    dcp.save({"model": cut_over_ranks()}, checkpoint_id=folder)


def load(folder):
    state = cut_over_ranks()
    expected = {name: tensor.to_local().clone() for name, tensor in state.items()}
    for i in range(REPETITIONS + 1):
        for tensor in state.values():
            tensor.to_local().zero_()
        dist.barrier()
        begin = time.perf_counter()
        dcp.load({"model": state}, checkpoint_id=folder)
        loaded = torch.tensor([milliseconds_since(begin)])
        dist.all_reduce(loaded, dist.ReduceOp.MAX)
        for name, tensor in state.items():
            if not torch.equal(tensor.to_local(), expected[name]):
                sys.exit(f"{name} is not what was saved")
        if i > 0 and dist.get_rank() == 0:
            emit(state, loaded_ms=loaded.item())


ALONE = {"background": background, "foreground": foreground, "torch_save": torch_save}
BY_RANKS = {"write": write, "load": load}

operation, place = sys.argv[1:]
torch.set_num_threads(1)
if operation in ALONE:
    ALONE[operation](place)
else:
    dist.init_process_group("gloo")
    BY_RANKS[operation](place)
    dist.destroy_process_group()
