"""Writes the state_dict() of a network in evaluation mode, and what the network computes: state_dict.py FOLDER."""
import sys
from pathlib import Path

import torch
from torch import nn

folder = Path(sys.argv[1])
torch.manual_seed(4)
net = nn.Sequential()
net.add_module("conv", nn.Conv2d(1, 2, 3))
net.add_module("norm", nn.BatchNorm2d(2))
net.add_module("flatten", nn.Flatten())
net.add_module("head", nn.Linear(32, 3))
for _ in range(3):
    net(torch.randn(5, 1, 6, 6) + 1)  # running statistics other than the first
net.eval()
inputs = torch.randn(4, 1, 6, 6)
torch.save(net.state_dict(), folder / "net.pt")
with torch.no_grad():
    torch.save({"inputs": inputs, "outputs": net(inputs)}, folder / "computed.pt")
print("{}")
