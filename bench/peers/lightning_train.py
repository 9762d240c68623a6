"""The peer of mingpt in Lightning: the training of train.py by its Trainer, without logger, progress bar and checkpoints.

Started by torchrun; takes the keys of tests/parity/reference.py.
"""
import json
import os
import sys
import time
import warnings

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "tests", "parity"))
import reference  # noqa: E402

warnings.filterwarnings("ignore")
import pytorch_lightning as lightning  # noqa: E402
from pytorch_lightning.strategies import DDPStrategy  # noqa: E402
from torch.utils.data import DataLoader, DistributedSampler  # noqa: E402


class Module(lightning.LightningModule):
    """The model of the reference. It notes the loss and the time of each step."""

    def __init__(self, settings, model):
        super().__init__()
        self.settings, self.model = settings, model
        self.losses, self.times = [], []

    def training_step(self, batch, _):
        loss = self.model(*batch)
        self.losses.append(loss.detach())
        return loss

    def on_train_batch_end(self, *_):
        self.times.append(time.perf_counter())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.model.optimizer_groups(self.settings["optimizer.weight_decay"]),
                                 self.settings["optimizer.learning_rate"],
                                 betas=(0.9, self.settings["optimizer.beta2"]), eps=1e-8, fused=True)


settings = reference.parse_settings(sys.argv[1:])
torch.set_num_threads(1)
rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dataset, train_set = reference.load_data(settings)
module = Module(settings, reference.make_model(settings, dataset.vocab_size))
sampler = DistributedSampler(train_set, world_size, rank, seed=settings["training.seed"])
loader = DataLoader(train_set, settings["data.batch_size"], sampler=sampler)
ddp = DDPStrategy(process_group_backend="gloo", static_graph=settings["ddp.static_graph"],
                  gradient_as_bucket_view=settings["ddp.gradient_as_bucket_view"])
trainer = lightning.Trainer(accelerator="cpu", devices=world_size, strategy="auto" if world_size == 1 else ddp,
                            max_steps=settings["training.max_steps"], logger=False, enable_progress_bar=False,
                            enable_checkpointing=False, enable_model_summary=False, use_distributed_sampler=False,
                            gradient_clip_val=settings["training.grad_norm_clip"] or None)
torch.manual_seed(settings["training.seed"] + rank)
trainer.fit(module, loader)
losses = torch.stack(module.losses)
if world_size > 1:
    dist.all_reduce(losses)
    losses /= world_size
if rank == 0:
    times = [module.times[0], *module.times]  # the first step has no start
    with open(settings["training.metrics"] or os.devnull, "w") as metrics:
        for i, loss in enumerate(losses.tolist()):
            row = {"step": i + 1, "loss": loss, "step_ms": 1e3 * (times[i + 1] - times[i])}
            metrics.write(json.dumps(row) + "\n")
# A thread of Gloo sometimes aborts the process while the interpreter ends, after the training.
sys.stdout.flush()
os._exit(0)
