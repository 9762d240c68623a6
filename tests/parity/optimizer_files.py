"""The Python side of the tests of optimizers in .pt files: prints their groups, and resumes a run from a file.

    python3 optimizer_files.py groups              the keys and values of param_groups, a line for each optimizer
    python3 optimizer_files.py resume NAME FILE    resumes with torch.optim.NAME, prints the next losses
"""
import sys

import torch

SETTINGS = {
    "AdamW": {"lr": 0.01, "betas": (0.9, 0.95), "eps": 1e-7, "weight_decay": 0.25},
    "Adam": {"lr": 0.01, "betas": (0.9, 0.95), "eps": 1e-7, "weight_decay": 0.25},
    "SGD": {"lr": 0.01, "momentum": 0.5, "dampening": 0.125, "weight_decay": 0.25},
}


def make(name, parameters):
    return getattr(torch.optim, name)(parameters, **SETTINGS[name])


def main():
    torch.set_num_threads(1)
    task, *more = sys.argv[1:]
    if task == "groups":
        for name in SETTINGS:
            group = make(name, [torch.zeros(2)]).state_dict()["param_groups"][0]
            print(name, *(f"{key}={value}".replace(" ", "") for key, value in group.items()))
        return
    name, path = more
    run = torch.load(path)
    weight, bias = (torch.nn.Parameter(run["model_state"][key]) for key in ("weight", "bias"))
    groups = [{"params": [weight]}, {"params": [bias], "weight_decay": 0.0}]
    optimizer = make(name, groups)
    optimizer.load_state_dict(run["optimizer_state"])
    for _ in range(3):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(run["x"] @ weight + bias, run["y"])
        loss.backward()
        optimizer.step()
        print(loss.item())


main()
