"""The peer of first_all_reduce.cpp: joins the run of torchrun and sums one number over its ranks."""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
if dist.get_rank() == 0:
    print("sum", total.item(), flush=True)
dist.destroy_process_group()
