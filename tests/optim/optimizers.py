"""Steps torch.optim's fused optimizers, and Lion and LAMB as their papers write them: python3 optimizers.py CASES.json TENSORS.safetensors RESULT.safetensors

TENSORS has the parameters as `value.I` and the gradients of step S as `gradient.S.I`; parameter 0 has weight decay,
the others have none, unless the case has `groups`, the options of one group for each parameter, and `factors`, those of
LambdaLR in each step. RESULT has the values after the last step of each case as `CASE.I`.
"""
import json
import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "parity"))
from reference import read_safetensors, write_safetensors  # noqa: E402

with open(sys.argv[1]) as file:
    cases = json.load(file)
tensors = read_safetensors(sys.argv[2])


class LAMB(torch.optim.Optimizer):
    """Algorithm 2 of arXiv:1904.00962, phi(z) = z."""

    def __init__(self, groups, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01, fused=True):
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for value in group["params"]:
                state = self.state[value]
                step = state["step"] = state.get("step", 0) + 1
                mean = state.setdefault("mean", torch.zeros_like(value))
                square = state.setdefault("square", torch.zeros_like(value))
                mean.mul_(beta1).add_(value.grad, alpha=1 - beta1)
                square.mul_(beta2).add_(value.grad ** 2, alpha=1 - beta2)
                direction = mean / (1 - beta1 ** step) / ((square / (1 - beta2 ** step)).sqrt() + group["eps"])
                direction += group["weight_decay"] * value
                norms = value.norm(), direction.norm()
                value -= group["lr"] * (norms[0] / norms[1] if min(norms) > 0 else 1) * direction


class Muon(torch.optim.Muon):
    def __init__(self, groups, fused=True, **options):
        super().__init__(groups, **options)


class Lion(torch.optim.Optimizer):
    """Algorithm 2 of arXiv:2302.06675."""

    def __init__(self, groups, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0, fused=True):
        super().__init__(groups, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for value in group["params"]:
                state = self.state[value]
                momentum = state.setdefault("momentum", torch.zeros_like(value))
                update = (beta1 * momentum + (1 - beta1) * value.grad).sign()
                value -= group["lr"] * (update + group["weight_decay"] * value)
                momentum.mul_(beta2).add_(value.grad, alpha=1 - beta2)


count = sum(name.startswith("value.") for name in tensors)
steps = sum(name.startswith("gradient.") for name in tensors) // count
result = {}
for case in cases:
    values = [tensors[f"value.{i}"].clone() for i in range(count)]
    groups = [{"params": values[:1]}, {"params": values[1:], "weight_decay": 0.0}]
    if "groups" in case:
        groups = [{"params": [value], **options} for value, options in zip(values, case["groups"])]
    optimizer = {"Lion": Lion, "LAMB": LAMB, "Muon": Muon}.get(case["kind"], getattr(torch.optim, case["kind"], None))(groups, fused=True, **case["options"])
    factors = case.get("factors", [1.0] * steps)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: factors[min(step, steps - 1)])
    for step in range(steps):
        for i, value in enumerate(values):
            value.grad = tensors[f"gradient.{step}.{i}"]
        optimizer.step()
        scheduler.step()
    result |= {f"{case['name']}.{i}": value for i, value in enumerate(values)}
write_safetensors(sys.argv[3], result)
