"""Runs nn.BatchNorm2d on whole batches: python3 sync_batch_norm.py GIVEN.safetensors RESULT.safetensors

GIVEN has the batch of step S as `input.S`, the gradient of the loss in its output as `gradient.S`, and the weight and
bias. RESULT has the outputs, the gradients of input, weight and bias, and the buffers after each step, and as `evaluated`
the output for the first batch in evaluation mode at the end.
"""
import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "parity"))
from reference import read_safetensors, write_safetensors  # noqa: E402

given = read_safetensors(sys.argv[1])
norm = torch.nn.BatchNorm2d(given["weight"].numel(), eps=1e-3, momentum=0.3)
with torch.no_grad():
    norm.weight.copy_(given["weight"])
    norm.bias.copy_(given["bias"])
result = {}
step = 0
while f"input.{step}" in given:
    x = given[f"input.{step}"].requires_grad_()
    norm.zero_grad()
    y = norm(x)
    y.backward(given[f"gradient.{step}"])
    tensors = {"output": y, "of_input": x.grad, "of_weight": norm.weight.grad, "of_bias": norm.bias.grad,
               "running_mean": norm.running_mean, "running_var": norm.running_var,
               "num_batches_tracked": norm.num_batches_tracked}
    result |= {f"{name}.{step}": tensor.detach().clone() for name, tensor in tensors.items()}
    step += 1
result["evaluated"] = norm.eval()(given["input.0"]).detach()
write_safetensors(sys.argv[2], result)
