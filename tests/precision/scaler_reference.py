"""Drives torch.amp.GradScaler on the CPU: python3 scaler_reference.py CASES

CASES is JSON, a list of {"options": keyword arguments of GradScaler, "bad": {step: "inf" or "nan"}, "steps": count}.
Prints JSON: for each case a list of steps with the bits of scale, growth_tracker, found_inf, and of the gradient before
and after unscale_. The model is sum(w * coefficients(step)); in a bad step one element of the gradient is overwritten.
"""
import json
import sys

import torch

COEFFICIENTS = torch.tensor([1.0, -3.0, 1e-30, 7e-5, 0.1, -1e-42, 0.0, 12345.678])


def bits(tensor):
    return tensor.detach().to(torch.float32).reshape(-1).view(torch.int32).tolist()


def run(case):
    weight = torch.nn.Parameter(torch.ones(8))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", **case["options"])
    rows = []
    for step in range(case["steps"]):
        weight.grad = None
        scaler.scale((weight * (COEFFICIENTS * (step + 1))).sum()).backward()
        if str(step) in case["bad"]:
            weight.grad[3] = float(case["bad"][str(step)])
        row = {"scaled": bits(weight.grad)}
        scaler.unscale_(optimizer)
        (found_inf,) = scaler._found_inf_per_device(optimizer).values()
        scaler.update()
        row |= {"unscaled": bits(weight.grad), "found_inf": bits(found_inf), "scale": bits(scaler._scale),
                "growth_tracker": [int(scaler._growth_tracker)]}
        rows.append(row)
    return rows


print(json.dumps([run(case) for case in json.loads(sys.argv[1])]))
