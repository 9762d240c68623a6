"""The Python side of the tests of .pt files: writes, describes and resumes from them, and computes GPT-2's logits.

    python3 pt_files.py write FILE        writes values of all kinds that torch.save takes; prints their description
    python3 pt_files.py describe FILE...  describes what torch.load reads with its defaults
    python3 pt_files.py train FILE        trains a small model, saves it as minGPT-ddp does, prints the next losses
    python3 pt_files.py resume FILE       resumes from such a snapshot, prints the next losses
    python3 pt_files.py guide FILE NAME   resumes from the guide's layout with torch.optim.NAME, prints the next losses
    python3 pt_files.py gpt2 FILE FILE    writes a small GPT-2: its weights (safetensors), and ids and logits (.pt)
"""
import collections
import math
import struct
import sys

import torch
from torch import nn
from torch.nn import functional as F

from reference import write_safetensors


def describe(value):
    """A text that differs for different values; floats and tensors are shown by their bits."""
    if isinstance(value, torch.Tensor):
        bits = value.detach().contiguous().reshape(-1).view(torch.uint8).tolist() if value.numel() else []
        sizes, strides = ",".join(map(str, value.shape)), ",".join(map(str, value.stride()))
        return f"<{str(value.dtype)[6:]} [{sizes}] [{strides}] {bytes(bits).hex()}>"
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return "f" + struct.pack(">d", value).hex()
    if isinstance(value, str):
        return f"'{value}'"
    if isinstance(value, (list, tuple)):
        front, back = "[]" if isinstance(value, list) else "()"
        return front + "".join(describe(item) + ", " for item in value) + back
    if isinstance(value, dict):
        return "{" + "".join(f"{describe(key)}: {describe(item)}, " for key, item in value.items()) + "}"
    raise TypeError(type(value))


def everything():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4])
    for _ in range(3):
        model(torch.randn(4, 2)).sum().backward()
        optimizer.step()
        schedule.step()
    x = torch.randn(4, 6)
    types = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
             torch.uint8, torch.int8, torch.bool]
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": {key: value for key, value in schedule.state_dict().items() if not callable(value)},
        "types": {str(dtype): (x * 100).abs().to(dtype) for dtype in types},
        "views": [x, x.t(), x[1:3, ::2], x[0, 1], x[:, :0], torch.empty(0), torch.tensor(2.5)],
        "parameter": nn.Parameter(x),
        "integers": (0, 1, -1, 255, 256, 65536, -(2**31), 2**31, 2**62, -(2**63)),
        "others": (0.1, -0.0, math.inf, True, False, None),
        "texts": ["", "é€😀", "a" * 300],
        "nested": {"size": x.shape, "ordered": collections.OrderedDict(b=1, a=2), 7: [[]], "empty": ({}, [], ())},
    }


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.second(F.gelu(self.first(x)))


def small_run():
    """minGPT's two groups, each sorted by name: parameters with weight decay, and parameters without."""
    torch.manual_seed(5)
    model = Small()
    named = dict(model.named_parameters())
    optimizer = torch.optim.AdamW(
        [{"params": [named[name] for name in sorted(named) if name.endswith("weight")], "weight_decay": 0.1},
         {"params": [named[name] for name in sorted(named) if not name.endswith("weight")], "weight_decay": 0.0}],
        lr=1e-2, betas=(0.9, 0.95))
    return model, optimizer


def losses(model, optimizer, data, steps=3):
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.mse_loss(model(data["x"]), data["y"])
        loss.backward()
        optimizer.step()
        yield loss.item()


class Conv1D(nn.Module):
    """GPT-2's linear layer: y = x W + b."""

    def __init__(self, width, out):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(width, out) * 0.1), nn.Parameter(torch.randn(out) * 0.1)

    def forward(self, x):
        return x @ self.weight + self.bias


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.ModuleDict({"c_attn": Conv1D(width, 3 * width), "c_proj": Conv1D(width, width)})
        self.mlp = nn.ModuleDict({"c_fc": Conv1D(width, 4 * width), "c_proj": Conv1D(4 * width, width)})

    def forward(self, x):
        B, T, C = x.shape
        parts = self.attn.c_attn(self.ln_1(x)).split(C, 2)
        q, k, v = (part.view(B, T, self.heads, -1).transpose(1, 2) for part in parts)
        scores = q @ k.transpose(2, 3) / math.sqrt(C // self.heads)
        scores = scores.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -math.inf)
        x = x + self.attn.c_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, C))
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, layers=2, heads=2, width=8, vocabulary=11, positions=16):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.t()


def main():
    torch.set_num_threads(1)
    task, path, *more = sys.argv[1:]
    if task == "write":
        torch.save(everything(), path)
        print(describe(everything()))
    elif task == "describe":
        for file in (path, *more):
            print(describe(torch.load(file)))
    elif task == "train":
        model, optimizer = small_run()
        data = {"x": torch.randn(16, 3), "y": torch.randn(16, 2)}
        list(losses(model, optimizer, data))
        torch.save({"model_state": {"module." + name: x for name, x in model.state_dict().items()},
                    "optimizer_state": optimizer.state_dict(), "finished_epoch": 3, **data}, path)
        print(*losses(model, optimizer, data))
    elif task == "resume":
        model, optimizer = small_run()
        snapshot = torch.load(path)
        assert snapshot["finished_epoch"] == 3
        model.load_state_dict(snapshot["model_state"])
        optimizer.load_state_dict(snapshot["optimizer_state"])
        print(*losses(model, optimizer, snapshot))
    elif task == "guide":
        model = Small()
        optimizer = getattr(torch.optim, more[0])(model.parameters())
        checkpoint = torch.load(path)
        assert list(checkpoint) == ["model_state_dict", "optimizer_state_dict", "epoch"] and checkpoint["epoch"] == 3
        model.load_state_dict(checkpoint["model_state_dict"])
        optimizer.load_state_dict(checkpoint["optimizer_state_dict"])
        data = {"x": torch.arange(48).view(16, 3) / 48, "y": torch.arange(32).view(16, 2) / 32}
        print(*losses(model, optimizer, data))
    elif task == "gpt2":
        torch.manual_seed(7)
        model, ids = GPT2(), torch.randint(11, (3, 16))
        # The attention mask that old files contain.
        weights = {**model.state_dict(), "h.0.attn.bias": torch.ones(1, 1, 16, 16)}
        write_safetensors(path, weights)
        with torch.no_grad():
            torch.save({"ids": ids, "logits": model(ids)}, more[0])


main()
