"""Writes the files of other programs: foreign_files.py FOLDER. The names, keys and groups are those of the programs."""
import json
import struct
import sys
from pathlib import Path

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, bias):
        super().__init__()
        self.c_attn = nn.Linear(width, 3 * width, bias=bias)
        self.c_proj = nn.Linear(width, width, bias=bias)


class Mlp(nn.Module):
    def __init__(self, width, bias):
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width, bias=bias)
        self.c_proj = nn.Linear(4 * width, width, bias=bias)


class Block(nn.Module):
    def __init__(self, width, bias):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, bias=bias)
        self.attn = Attention(width, bias)
        self.ln_2 = nn.LayerNorm(width, bias=bias)
        self.mlp = Mlp(width, bias)


class GPT(nn.Module):
    """nanoGPT's modules; the head and the token embedding share their weights."""

    def __init__(self, layers, width, characters, length, bias=True):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(characters, width), "wpe": nn.Embedding(length, width),
            "h": nn.ModuleList([Block(width, bias) for _ in range(layers)]), "ln_f": nn.LayerNorm(width, bias=bias)})
        self.lm_head = nn.Linear(width, characters, bias=False)
        self.transformer.wte.weight = self.lm_head.weight


def train(model, optimizer, steps):
    for _ in range(steps):
        loss = sum((p ** 2).sum() for p in model.parameters())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def nanogpt(path, characters, bias):
    model = GPT(2, 16, characters, 8, bias)
    parameters = [p for _, p in model.named_parameters()]
    groups = [{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95))
    train(model, optimizer, 3)
    state = {"_orig_mod." + name: tensor for name, tensor in model.state_dict().items()}
    arguments = dict(n_layer=2, n_head=2, n_embd=16, block_size=8, bias=bias, vocab_size=characters, dropout=0.0)
    torch.save({"model": state, "optimizer": optimizer.state_dict(), "model_args": arguments, "iter_num": 3,
                "best_val_loss": torch.tensor(2.5), "config": dict(arguments, device="cpu", compile=True)}, path)


def lightning(path, optimizer_of, steps, processed=2, optimizers=1, model=None):
    """Writes a checkpoint as Lightning does, which counts an epoch as processed before it counts it as completed."""
    model = model or nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    optimizer = optimizer_of(model.parameters())
    train(model, optimizer, steps)
    current = {"completed": 2, "processed": processed}
    torch.save({"epoch": 2, "global_step": steps, "pytorch-lightning_version": "2.5.0",
                "state_dict": {"model." + name: tensor for name, tensor in model.state_dict().items()},
                "loops": {"fit_loop": {"state_dict": {}, "epoch_progress": {"current": current}}},
                "callbacks": {}, "optimizer_states": [optimizer.state_dict()] * optimizers, "lr_schedulers": []}, path)


def equal_layers(folder):
    """Twelve layers of one shape, whose order by number differs from that by name, in two groups."""
    def groups(model, names):
        def entry(item):
            return item if names else item[1]
        items = [("model." + name, p) for name, p in model.named_parameters()]
        return [{"params": [entry(item) for item in items if item[1].dim() == dim], "weight_decay": decay}
                for dim, decay in ((2, 0.1), (1, 0.0))]
    for file, names, order in (("unnamed", False, 1), ("named", True, 1), ("turned", True, -1)):
        model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(12)])
        lightning(folder / f"{file}.ckpt", lambda _: torch.optim.AdamW(groups(model, names)[::order]), 2, model=model)
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(12)])
    lightning(folder / "stateless.ckpt", lambda _: torch.optim.SGD(groups(model, False), lr=0.1), 2, model=model)
    model = nn.Sequential(*[nn.Linear(n + 1, n + 2) for n in range(12)])
    lightning(folder / "shapes.ckpt", lambda _: torch.optim.AdamW(groups(model, False)), 2, model=model)
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    model[0].weight.requires_grad_(False)
    lightning(folder / "frozen.ckpt", lambda parameters: torch.optim.AdamW(parameters), 2, model=model)


def safetensors(path, tensors):
    """Writes a safetensors file as Hugging Face's library does."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, tensor in tensors.items():
        values = tensor.detach().contiguous().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def gpt2(path):
    """GPT-2 as Hugging Face publishes it: names without a prefix, transposed linear layers, masks, no head."""
    state = GPT(2, 16, 11, 8).transformer.state_dict()
    linear = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")
    tensors = {name: tensor.t() if name.endswith(linear) else tensor for name, tensor in state.items()}
    tensors["h.0.attn.bias"] = torch.ones(1, 1, 8, 8).tril()
    safetensors(path, tensors)
    torch.save(tensors, path.with_suffix(".bin"))
    torch.save(state, path.with_suffix(".pt"))


folder = Path(sys.argv[1])
torch.manual_seed(0)
nanogpt(folder / "ckpt.pt", 11, True)
nanogpt(folder / "tokens.pt", 50304, False)
lightning(folder / "last.ckpt", lambda parameters: torch.optim.AdamW(parameters, lr=1e-3), 5, processed=3)
lightning(folder / "two.ckpt", lambda parameters: torch.optim.AdamW(parameters, lr=1e-3), 5, optimizers=2)
lightning(folder / "sgd.ckpt", lambda parameters: torch.optim.SGD(parameters, lr=1e-3, momentum=0.9), 4)
for name in ("RAdam", "NAdam", "RMSprop"):
    lightning(folder / f"{name}.ckpt", lambda parameters: getattr(torch.optim, name)(parameters, lr=1e-3), 2)
for option in ("amsgrad", "maximize"):
    lightning(folder / f"{option}.ckpt",
              lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, **{option: True}), 2)
equal_layers(folder)
gpt2(folder / "model.safetensors")
