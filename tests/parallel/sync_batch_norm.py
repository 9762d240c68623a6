"""Runs nn.BatchNorm2d on whole batches: python3 sync_batch_norm.py GIVEN.safetensors RESULT.safetensors [plain]

GIVEN has the batch of step S as `input.S`, the gradient of the loss in its output as `gradient.S`, and the weight and
bias. RESULT has the outputs, the gradients of input, weight and bias, and the buffers after each step, and as `evaluated`
the output for the first batch in evaluation mode at the end. With `plain` the layer has no weight and bias, and its
running statistics are the means over all batches.
"""
import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "parity"))
from reference import read_safetensors, write_safetensors  # noqa: E402

given = read_safetensors(sys.argv[1])
plain = sys.argv[3:] == ["plain"]
norm = torch.nn.BatchNorm2d(given["weight"].numel(), eps=1e-3, momentum=None if plain else 0.3, affine=not plain)
with torch.no_grad():
    for name, parameter in norm.named_parameters():
        parameter.copy_(given[name])
result = {}
step = 0
while f"input.{step}" in given:
    x = given[f"input.{step}"].requires_grad_()
    norm.zero_grad()
    y = norm(x)
    y.backward(given[f"gradient.{step}"])
    tensors = {"output": y, "of_input": x.grad, **dict(norm.named_buffers())}
    tensors |= {f"of_{name}": parameter.grad for name, parameter in norm.named_parameters()}
    result |= {f"{name}.{step}": tensor.detach().clone() for name, tensor in tensors.items()}
    step += 1
result["evaluated"] = norm.eval()(given["input.0"]).detach()
write_safetensors(sys.argv[2], result)
