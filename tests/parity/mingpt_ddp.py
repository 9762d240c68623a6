"""Trains as minGPT-ddp's trainer does, from snapshot to snapshot, with the model and the data of reference.py.

    python3 mingpt_ddp.py epochs=2 load=FILE.pt save=FILE.pt data.path=FILE training.seed=5 ...

Resumes from `load` and trains until `epochs` epochs are done. Saves the first epoch that it completes to `save`, with
the names that DDP gives the weights, and prints a line with the losses of the steps for each epoch. Runs one process.
"""
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

from reference import GPT, load_data, parse_settings


def make_model(settings, vocab_size):
    model = GPT(settings, vocab_size)
    model.draw_weights(settings["training.seed"])
    length = settings["data.block_size"]
    for block in model.blocks:  # the causal mask, which minGPT-ddp's attention keeps in its files
        block.attn.register_buffer("mask", torch.ones(length, length).tril().view(1, 1, length, length))
    return model


def make_optimizer(settings, model):
    """An optimizer with two groups, each sorted by name: the weights of linear layers, and the rest."""
    named = dict(model.named_parameters())
    linear = {f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    decay = sorted(name for name in named if name in linear or name.endswith("in_proj_weight"))
    rest = sorted(named.keys() - set(decay))
    groups = [{"params": [named[name] for name in decay], "weight_decay": settings["optimizer.weight_decay"]},
              {"params": [named[name] for name in rest], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=settings["optimizer.learning_rate"], betas=(0.9, 0.95))


def run_epoch(settings, model, optimizer, loader, epoch):
    loader.sampler.set_epoch(epoch)
    for batch in loader:
        loss = model(*batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), settings["training.grad_norm_clip"])
        optimizer.step()
        yield loss.item()


def main():
    torch.set_num_threads(1)
    arguments = dict(word.split("=", 1) for word in sys.argv[1:])
    epochs, load, save = int(arguments.pop("epochs")), arguments.pop("load", ""), arguments.pop("save", "")
    settings = parse_settings(f"{key}={value}" for key, value in arguments.items())
    dataset, train_set = load_data(settings)
    model = make_model(settings, dataset.vocab_size)
    optimizer = make_optimizer(settings, model)
    finished = 0
    if load:
        snapshot = torch.load(load, map_location="cpu")
        model.load_state_dict(snapshot["model_state"])
        optimizer.load_state_dict(snapshot["optimizer_state"])
        finished = snapshot["finished_epoch"]
    sampler = DistributedSampler(train_set, num_replicas=1, rank=0, seed=settings["training.seed"])
    loader = DataLoader(train_set, settings["data.batch_size"], sampler=sampler)
    for epoch in range(finished, epochs):
        print(*run_epoch(settings, model, optimizer, loader, epoch))
        if save:
            state = {f"module.{name}": tensor for name, tensor in model.state_dict().items()}
            torch.save({"model_state": state, "optimizer_state": optimizer.state_dict(),
                        "finished_epoch": epoch + 1}, save)
            save = ""


main()
