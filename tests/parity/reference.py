"""The training of the mingpt program in Python: the reference for the results and the speed of ddpxx.

    python3 reference.py world_size=2 data.path=FILE weights=FILE training.max_steps=50 training.metrics=FILE

The keys are those of the mingpt program and some more (DEFAULTS). Every tensor operation is the one that ddpxx calls,
so that results can be compared bit for bit. Needs no package but torch.
"""
import codecs
import contextlib
import ctypes
import importlib
import json
import math
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, DistributedSampler, random_split

DEFAULTS = {
    "data.path": "",
    "data.block_size": 64,
    "data.truncate": 1.0,
    "data.max_bytes": 0,
    "data.train_split": 0.9,
    "data.batch_size": 8,
    "model.model_type": "gpt-nano",  # or baby, nanoGPT's config/train_shakespeare_char.py
    "model.layout": "gpt2",
    "model.dropout": 0.1,
    "model.bias": True,  # of the linear layers in blocks and of all norms; nanoGPT's default is false
    "model.gelu": "",  # tanh or exact; "" is the layout's own: tanh for gpt2, exact for mingpt_ddp
    "model.tied_head": False,  # the head shares the weight of the token embedding, as in nanoGPT
    "optimizer.learning_rate": 3e-4,
    "optimizer.weight_decay": 0.1,
    "optimizer.beta2": 0.95,
    "optimizer.warmup_steps": 0,
    "optimizer.decay_steps": 0,  # a cosine down to final_learning_rate; 0 keeps learning_rate
    "optimizer.final_learning_rate": 0.0,
    "training.max_steps": 1,
    "training.seed": 1337,
    "training.grad_norm_clip": 1.0,  # 0 turns clipping off
    "training.metrics": "",
    "world_size": 1,
    "device": "cpu",  # or cuda: all ranks compute on one GPU, and communicate over Gloo
    "weights": "",  # safetensors file of the initial weights, named model.NAME; otherwise they are drawn from the seed
    "final": "",  # safetensors file for the trained weights, named as in `weights`
    "probe": "",  # safetensors file to write instead of training: see probe()
    "strategy": "ddp",  # or fsdp: fully_shard of every block and of the rest; or single: one process
    "ddp.static_graph": False,
    "ddp.gradient_as_bucket_view": False,
    "fsdp.reshard_after_forward": True,
    "fsdp.param_dtype": "",  # bf16, fp16 or fp32; "" keeps float32
    "fsdp.reduce_dtype": "",  # "" uses param_dtype
    "compile": False,  # torch.compile of the model, for benchmarks
    "recompute": False,  # torch.utils.checkpoint around every block
    "precision": "float32",  # or bf16, fp16: autocast, for fp16 with a GradScaler
    "scaler.initial_scale": 65536.0,
    "scaler.growth_interval": 2000,
    "scaler.inf_at": "",  # steps, as in 3,7, in which the gradient of rank 0's loss is multiplied by inf
}
FORMATS = {"": None, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
PRESETS = {"gpt2": (12, 12, 768), "gpt-mini": (6, 6, 192), "gpt-micro": (4, 4, 128), "gpt-nano": (3, 3, 48),
           "baby": (6, 6, 384)}


def parse_settings(arguments):
    settings = dict(DEFAULTS)
    for argument in arguments:
        key, _, value = argument.partition("=")
        kind = type(settings[key])
        settings[key] = value == "true" if kind is bool else kind(value)
    return settings


# --- files ------------------------------------------------------------------------------------------------------

DTYPES = {"F32": torch.float32, "I64": torch.int64}


def read_safetensors(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = bytearray(file.read())
    header.pop("__metadata__", None)
    return {
        name: torch.frombuffer(data, dtype=DTYPES[entry["dtype"]], offset=entry["data_offsets"][0],
                               count=math.prod(entry["shape"])).view(entry["shape"])
        for name, entry in header.items()
    }


def write_safetensors(path, tensors):
    names = {dtype: name for name, dtype in DTYPES.items()}
    header, end = {}, 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.nbytes
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            tensor = tensor.detach().cpu().contiguous()
            file.write(ctypes.string_at(tensor.data_ptr(), tensor.nbytes))


# --- data -------------------------------------------------------------------------------------------------------


def read_text(path, max_bytes):
    files = [path]
    if os.path.isdir(path):
        files = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
        files = sorted(filter(os.path.isfile, files), key=os.fsencode)
    data = b""
    for file in files:
        with open(file, "rb") as stream:
            data += stream.read(max_bytes - len(data) if max_bytes else -1)
        if max_bytes and len(data) == max_bytes:
            break
    cut = bool(max_bytes) and len(data) == max_bytes  # removes a character that the limit has cut in two
    return codecs.getincrementaldecoder("utf-8")("replace").decode(data, final=not cut)


class CharDataset(Dataset):
    """minGPT's dataset: sample i has the characters from i on as input, those from i + 1 on as targets."""

    def __init__(self, text, block_size):
        vocabulary = sorted(set(text))
        id_of = {character: i for i, character in enumerate(vocabulary)}
        self.ids = torch.tensor([id_of[character] for character in text])
        self.vocab_size = len(vocabulary)
        self.block_size = block_size

    def __len__(self):
        return len(self.ids) - self.block_size

    def __getitem__(self, i):
        return self.ids[i:i + self.block_size], self.ids[i + 1:i + 1 + self.block_size]


def load_data(settings):
    """The dataset, and the part of it that is used for training."""
    text = read_text(settings["data.path"], settings["data.max_bytes"])
    dataset = CharDataset(text[:int(len(text) * settings["data.truncate"])], settings["data.block_size"])
    num_train = int(len(dataset) * settings["data.train_split"])
    generator = torch.Generator().manual_seed(settings["training.seed"])
    return dataset, random_split(dataset, [num_train, len(dataset) - num_train], generator)[0]


# --- model ------------------------------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self, gpt2, width, heads, dropout, bias):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        if gpt2:
            self.c_attn = nn.Linear(width, 3 * width, bias=bias)
        else:
            # Holds the parameters; forward computes the attention itself.
            self.attn = nn.MultiheadAttention(width, heads, bias=bias)
        self.c_proj = nn.Linear(width, width, bias=bias)

    def forward(self, x):
        batch, length, width = x.shape
        whole = getattr(self, "attn", None)
        qkv = F.linear(x, whole.in_proj_weight, whole.in_proj_bias) if whole else self.c_attn(x)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in qkv.split(width, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=True)
        y = y.transpose(1, 2).contiguous().view(batch, length, width)
        if whole:
            y = whole.out_proj(y)
        return F.dropout(self.c_proj(y), self.dropout, self.training)


class FeedForward(nn.Module):
    def __init__(self, gpt2, width, dropout, bias, gelu):
        super().__init__()
        self.gelu, self.dropout = "none" if gelu == "exact" else "tanh", dropout
        self.parts = nn.Linear(width, 4 * width, bias=bias), nn.Linear(4 * width, width, bias=bias)
        for name, part in zip(("c_fc", "c_proj") if gpt2 else ("0", "2"), self.parts):
            self.add_module(name, part)

    def forward(self, x):
        widen, narrow = self.parts
        return F.dropout(narrow(F.gelu(widen(x), approximate=self.gelu)), self.dropout, self.training)


class Block(nn.Module):
    def __init__(self, settings, width, heads):
        super().__init__()
        self.recompute = settings["recompute"]
        gpt2, dropout, bias = settings["model.layout"] == "gpt2", settings["model.dropout"], settings["model.bias"]
        gelu = settings["model.gelu"] or ("tanh" if gpt2 else "exact")
        self.parts = (nn.LayerNorm(width, bias=bias), Attention(gpt2, width, heads, dropout, bias),
                      nn.LayerNorm(width, bias=bias), FeedForward(gpt2, width, dropout, bias, gelu))
        for name, part in zip(("ln_1", "attn", "ln_2", "mlp") if gpt2 else ("ln1", "attn", "ln2", "mlp"), self.parts):
            self.add_module(name, part)

    def forward(self, x):
        return checkpoint(self.compute, x, use_reentrant=False) if self.recompute else self.compute(x)

    def compute(self, x):
        norm_1, attention, norm_2, feed_forward = self.parts
        x = x + attention(norm_1(x))
        return x + feed_forward(norm_2(x))


class GPT(nn.Module):
    def __init__(self, settings, vocab_size):
        super().__init__()
        layers, heads, width = PRESETS[settings["model.model_type"]]
        gpt2, length = settings["model.layout"] == "gpt2", settings["data.block_size"]
        self.dropout = settings["model.dropout"]
        tokens, norm = nn.Embedding(vocab_size, width), nn.LayerNorm(width, bias=settings["model.bias"])
        blocks = nn.ModuleList(Block(settings, width, heads) for _ in range(layers))
        head = nn.Linear(width, vocab_size, bias=False)
        if settings["model.tied_head"]:
            head.weight = tokens.weight
        if gpt2:
            self.transformer = nn.ModuleDict(
                {"wte": tokens, "wpe": nn.Embedding(length, width), "h": blocks, "ln_f": norm})
            self.lm_head = head
        else:
            self.emb_stem = nn.Module()
            self.emb_stem.pos_emb = nn.Parameter(torch.zeros(1, length, width))
            self.emb_stem.tok_emb = tokens
            self.blocks, self.ln_f, self.head = blocks, norm, head
        self.parts = tokens, blocks, norm, head

    def positions(self, length):
        if hasattr(self, "emb_stem"):
            return self.emb_stem.pos_emb.narrow(1, 0, length)
        return self.transformer.wpe(torch.arange(length, device=self.transformer.wpe.weight.device))

    def logits(self, ids):
        tokens, blocks, norm, head = self.parts
        x = F.dropout(tokens(ids) + self.positions(ids.size(1)), self.dropout, self.training)
        for block in blocks:
            x = block(x)
        return head(norm(x))

    def forward(self, ids, targets):
        logits = self.logits(ids)
        return F.cross_entropy(logits.view(-1, logits.size(-1)).float(), targets.view(-1), ignore_index=-1)

    def draw_weights(self, seed):
        """minGPT's initialisation, drawn in the order in which ddpxx draws it."""
        torch.manual_seed(seed)
        scaled = 0.02 / math.sqrt(2 * len(self.parts[1]))
        for name, parameter in self.named_parameters():
            if name.endswith("in_proj_weight"):
                nn.init.xavier_uniform_(parameter)
            elif parameter.dim() == 2:
                nn.init.normal_(parameter, std=scaled if name.endswith("c_proj.weight") else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def optimizer_groups(self, weight_decay):
        def decays(name, parameter):
            return parameter.dim() == 2 and not name.endswith(("wte.weight", "wpe.weight", "tok_emb.weight"))

        named = list(self.named_parameters())
        return [{"params": [p for n, p in named if decays(n, p)], "weight_decay": weight_decay},
                {"params": [p for n, p in named if not decays(n, p)], "weight_decay": 0.0}]


def make_model(settings, vocab_size):
    model = GPT(settings, vocab_size)
    if settings["weights"]:
        prefix = "model."
        weights = read_safetensors(settings["weights"]).items()
        model.load_state_dict({name.removeprefix(prefix): w for name, w in weights if name.startswith(prefix)},
                              strict=not settings["model.tied_head"])  # a tied head has one name in the file
    else:
        model.draw_weights(settings["training.seed"])
    return model


# --- training ---------------------------------------------------------------------------------------------------


def probe(settings, model, ddp, batch):
    """Writes the results of one step: this rank's inputs and logits, and the gradients before DDP averages them
    (`local.RANK.NAME`, of every rank) and after (`gradient.NAME`)."""
    found = {"inputs": batch[0], "logits": model.logits(batch[0])}
    model(*batch).backward()
    for name, parameter in model.named_parameters():
        every = [torch.empty_like(parameter) for _ in range(dist.get_world_size())]
        dist.all_gather(every, parameter.grad)
        found |= {f"local.{rank}.{name}": gradient for rank, gradient in enumerate(every)}
        parameter.grad = None
    ddp(*batch).backward()
    found |= {f"gradient.{name}": parameter.grad for name, parameter in model.named_parameters()}
    if dist.get_rank() == 0:
        write_safetensors(settings["probe"], found)


def batches(settings, train_set):
    """This rank's batches of all epochs, on its device."""
    sampler = DistributedSampler(train_set, seed=settings["training.seed"])
    own = torch.Generator()  # otherwise the loader draws a number for each epoch from dropout's generator
    loader = DataLoader(train_set, settings["data.batch_size"], sampler=sampler, generator=own)
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        yield from ([part.to(settings["device"]) for part in batch] for batch in loader)
        epoch += 1


def wrap(settings, model):
    """The model wrapped for the strategy."""
    if settings["strategy"] == "single":
        return model
    if settings["strategy"] == "ddp":
        return DistributedDataParallel(model, static_graph=settings["ddp.static_graph"],
                                       gradient_as_bucket_view=settings["ddp.gradient_as_bucket_view"])
    # Imported late, because it is slow and DDP does not need it.
    fsdp = importlib.import_module("torch.distributed.fsdp")
    mesh = dist.init_device_mesh(settings["device"], (dist.get_world_size(),))
    policy = fsdp.MixedPrecisionPolicy(param_dtype=FORMATS[settings["fsdp.param_dtype"]],
                                       reduce_dtype=FORMATS[settings["fsdp.reduce_dtype"]])
    for block in model.parts[1]:
        fsdp.fully_shard(block, mesh=mesh, mp_policy=policy,
                         reshard_after_forward=settings["fsdp.reshard_after_forward"])
    return fsdp.fully_shard(model, mesh=mesh, mp_policy=policy)


def gathered(tensor):
    """The whole tensor, gathered if FSDP holds shards of it."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def learning_rate(settings, step):
    """nanoGPT's get_lr; `step` counts from 0."""
    peak, end = settings["optimizer.learning_rate"], settings["optimizer.final_learning_rate"]
    rise, fall = settings["optimizer.warmup_steps"], settings["optimizer.decay_steps"]
    if step < rise:
        return peak * (step + 1) / (rise + 1)
    if not fall:
        return peak
    return end + (peak - end) * 0.5 * (1 + math.cos(math.pi * min(1, (step - rise) / (fall - rise))))


def state_bytes(model, optimizer):
    """Bytes of the parameters, gradients and optimizer state of this rank, without the strategy's own buffers."""
    tensors = [t for p in model.parameters() for t in (p, p.grad, *optimizer.state[p].values())]
    return sum((t.to_local() if hasattr(t, "to_local") else t).nbytes for t in tensors)


def train(settings):
    """Trains on this rank of the default group; rank 0 writes a row for each step."""
    torch.set_num_threads(1)
    dataset, train_set = load_data(settings)
    device = settings["device"]
    model = make_model(settings, dataset.vocab_size).to(device)
    if settings["compile"]:
        model.compile()
    wrapped = wrap(settings, model)
    if settings["probe"]:
        return probe(settings, model, wrapped, next(batches(settings, train_set)))
    optimizer = torch.optim.AdamW(model.optimizer_groups(settings["optimizer.weight_decay"]),
                                  settings["optimizer.learning_rate"], betas=(0.9, settings["optimizer.beta2"]),
                                  eps=1e-8, fused=True)
    precision = settings["precision"]
    autocast = contextlib.nullcontext() if precision == "float32" else torch.autocast(device, FORMATS[precision])
    scaler = torch.amp.GradScaler(device, settings["scaler.initial_scale"], enabled=precision == "fp16",
                                  growth_interval=settings["scaler.growth_interval"])
    max_norm = settings["training.grad_norm_clip"] or math.inf
    inf_at = [int(step) for step in settings["scaler.inf_at"].split(",") if step]
    first = dist.get_rank() == 0
    metrics = open(settings["training.metrics"] or os.devnull, "w") if first else None
    torch.manual_seed(settings["training.seed"] + dist.get_rank())  # seeds dropout as ddpxx does

    losses, norms, scales, times = [], [], [scaler.get_scale()], [time.perf_counter()]
    for step, batch in enumerate(batches(settings, train_set), 1):
        with autocast:
            loss = wrapped(*batch)
        if first and step in inf_at:
            loss.register_hook(lambda gradient: gradient * math.inf)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), max_norm))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(settings, step - 1)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
        scales.append(scaler.get_scale())
        times.append(time.perf_counter())
        if step == 1 and first:
            print("step 1", flush=True)
        if step == settings["training.max_steps"]:
            break

    norms = [gathered(norm) for norm in norms]  # every rank must call gathered()
    if settings["final"]:
        found = {f"model.{name}": gathered(parameter) for name, parameter in model.named_parameters()}
        if first:
            write_safetensors(settings["final"], found)
    mean_losses = torch.stack(losses)
    dist.all_reduce(mean_losses)
    mean_losses /= dist.get_world_size()
    if first:
        with metrics:
            for i, (loss, norm) in enumerate(zip(mean_losses.tolist(), norms)):
                left_out = scales[i + 1] < scales[i]
                row = {"step": i + 1, "loss": loss, "grad_norm": 0.0 if left_out else norm.item(),
                       "scale": scales[i + 1], "step_ms": 1e3 * (times[i + 1] - times[i]),
                       "state_bytes": state_bytes(model, optimizer)}
                metrics.write(json.dumps(row) + "\n")


def run_rank(rank, settings, meeting):
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=settings["world_size"])
    train(settings)
    dist.destroy_process_group()


def main():
    settings = parse_settings(sys.argv[1:])
    torch.set_num_threads(1)  # a fork after an OpenMP region would hang in the next one
    slow = {"single": "torch", "ddp": "torch._dynamo", "fsdp": "torch.distributed.fsdp"}
    # The strategy imports this slow module: do it once, before the fork.
    importlib.import_module(slow[settings["strategy"]])
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.start_processes(run_rank, (settings, os.path.join(folder, "meeting")),
                                              settings["world_size"], start_method="fork")


if __name__ == "__main__":
    main()
