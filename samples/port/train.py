"""train.py — a training script in PyTorch: DDP, torchrun, a checkpoint.

torchrun --standalone --nproc-per-node 2 train.py --epochs 10 --batch-size 32
"""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Spirals(Dataset):
    def __init__(self, size):
        generator = torch.Generator().manual_seed(0)
        self.labels = torch.arange(size) % 3
        radius = torch.rand(size, generator=generator)
        angle = 4 * radius + 2.1 * self.labels + 0.3 * torch.rand(size, generator=generator)
        self.points = torch.stack([radius * angle.cos(), radius * angle.sin()], 1)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.points[i], self.labels[i]


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc1 = nn.Linear(2, width)
        self.fc2 = nn.Linear(width, 3)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--lr", type=float, default=1e-2)
parser.add_argument("--width", type=int, default=64)
args = parser.parse_args()

dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")

torch.manual_seed(1337)
model = DDP(Net(args.width).to(device))
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
data = Spirals(4096)
sampler = DistributedSampler(data, seed=1337)
loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)

first_epoch = 0
if os.path.exists("checkpoint.pt"):
    checkpoint = torch.load("checkpoint.pt", map_location=device)
    model.module.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    first_epoch = checkpoint["epoch"] + 1

for epoch in range(first_epoch, args.epochs):
    sampler.set_epoch(epoch)
    total = torch.zeros(1, device=device)
    for points, labels in loader:
        loss = F.cross_entropy(model(points.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.detach()
    dist.all_reduce(total)
    if rank == 0:
        print(f"epoch {epoch} loss {total.item() / len(loader) / dist.get_world_size():.6f}", flush=True)
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch},
                   "checkpoint.pt")

dist.destroy_process_group()
