"""Step time of GPTs against PyTorch: fused AdamW, each rank on a core of its own; ours computes blocks in one operation, and
clips gradients in the optimizer's pass.

The peers: `best` is DDP with static_graph and gradient_as_bucket_view, or a plain loop on one rank; `default` is DDP with its
default settings; `compile` is `best` with torch.compile; `lightning` is Lightning's Trainer without its logger and progress
bar; `fp32` is ours in float32, for a cell in bfloat16. Such a cell is
left out on a processor without instructions for bfloat16. Beside each cell stands the time of the step's matrix products
alone, by the functions of LibTorch that both sides call.
"""
import dataclasses
import functools
import subprocess

import protocol


@dataclasses.dataclass
class Cell:
    model: str
    batch: int
    block: int  # tokens of a sample
    ranks: int
    steps: int
    goals: dict  # the goal against each peer
    precision: str = "fp32"

    @property
    def name(self):
        return f"{self.model} B={self.batch} W={self.ranks}" + (" bf16" if self.precision == "bf16" else "")


CELLS = [
    Cell("gpt-nano", 1, 64, 1, 600, {"best": 2.5, "lightning": 3.0}),
    Cell("gpt-nano", 1, 64, 2, 600, {"best": 2.5, "lightning": 3.0}),
    Cell("gpt-nano", 8, 64, 1, 300, {"best": 1.0, "compile": 1.4}),
    Cell("gpt-nano", 8, 64, 2, 300, {"best": 1.0, "default": 1.0, "compile": 1.8}),
    Cell("gpt-micro", 8, 128, 1, 60, {"best": 1.2, "compile": 1.15}),
    Cell("gpt-micro", 8, 128, 2, 60, {"best": 1.2, "compile": 1.15}),
    Cell("gpt-micro", 8, 128, 1, 60, {"best": 1.3, "fp32": 1.5}, "bf16"),
    Cell("gpt-mini", 4, 128, 1, 60, {"best": 1.2, "compile": 1.15}),
    Cell("gpt-mini", 4, 128, 2, 60, {"best": 1.2, "compile": 1.15}),
    Cell("baby", 4, 256, 1, 14, {"best": 1.15, "compile": 1.1}),
    Cell("baby", 4, 256, 2, 14, {"best": 1.15, "compile": 1.1}),
]
WARM_UP = 0.2  # of the steps
TOLERANCES = {"fp32": protocol.SAME_WORK, "bf16": {"loss_10": 1e-3, "loss_last": 1e-2}}
PEERS = {"best": ["ddp.static_graph=true", "ddp.gradient_as_bucket_view=true"], "default": [],
         "lightning": ["ddp.static_graph=true", "ddp.gradient_as_bucket_view=true"],
         "compile": ["ddp.static_graph=true", "ddp.gradient_as_bucket_view=true", "compile=true"]}
BABY = ["model.n_layer=6", "model.n_head=6", "model.n_embd=384"]  # nanoGPT's config/train_shakespeare_char.py
SIZES = {"gpt-nano": (3, 48), "gpt-micro": (4, 128), "gpt-mini": (6, 192), "baby": (6, 384)}  # layers, width
VOCABULARY = 98  # about as many characters are in the text


def step_time(cell, side, settings):
    strategy = "single" if cell.ranks == 1 else "ddp"
    equal = ["data.path=/usr/include/c++", "data.max_bytes=1000000", f"data.batch_size={cell.batch}",
             f"data.block_size={cell.block}", "model.dropout=0", f"training.max_steps={cell.steps}", f"strategy={strategy}"]
    if cell.precision == "bf16":
        equal.append("precision=bf16")
    return protocol.step_time(lambda all_settings, wrap: side(all_settings, wrap, ranks=cell.ranks),
                              [*equal, *settings], int(WARM_UP * cell.steps))


def ours(cell, fused):
    sizes = BABY if cell.model == "baby" else [f"model.model_type={cell.model}"]
    return step_time(cell, protocol.ours, [*sizes, *(protocol.FASTEST if fused == "true" else [])])


def peer(cell, name):
    if name == "fp32":
        return ours(dataclasses.replace(cell, precision="fp32"), bench.options.fused)
    program = "lightning_train.py" if name == "lightning" else "train.py"
    return step_time(cell, functools.partial(protocol.peer, program=program),
                     [f"model.model_type={cell.model}", *PEERS[name]])


def products(cell):
    """The median time of the products of a step, in ms; all ranks compute them at the same time."""
    layers, width = SIZES[cell.model]
    numbers = [layers, width, VOCABULARY, cell.batch * cell.block, cell.precision, cell.steps]
    program = protocol.pinned([str(protocol.BIN / "product_times"), *map(str, numbers)])
    ranks = [subprocess.Popen(program, env=protocol.environment() | {"LOCAL_RANK": str(rank)}, text=True,
                              stdout=subprocess.PIPE) for rank in range(cell.ranks)]
    times = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise SystemExit("product_times failed")
    return max(map(float, times))


bench = protocol.Bench(__doc__, fewest=15, options=[
    ("cells", "", "compare only cells whose names contain this text, such as 'nano B=8' (default: all)"),
    ("fused", "true", "false for the default blocks and clip of ours (default: %(default)s)"),
    ("peers", "", "compare only with these peers, separated by commas (default: all)")], choices=("cells", "peers"))
cells = CELLS
if not any("avx512_bf16" in line.split() for line in open("/proc/cpuinfo") if line.startswith("flags")):
    print("  the cells in bfloat16 are left out: this processor has no instructions for it")
    cells = [cell for cell in CELLS if cell.precision != "bf16"]
chosen = [cell for cell in cells if bench.options.cells in cell.name]
if not chosen:
    raise SystemExit(f"no cell contains {bench.options.cells!r}; there are: {', '.join(cell.name for cell in cells)}")
bench.check_noise(lambda: ours(chosen[0], bench.options.fused))
for cell in chosen:
    for name, goal in cell.goals.items():
        if bench.options.peers and name not in bench.options.peers.split(","):
            continue
        print(f"  {cell.name}, {name}")
        row = f"{cell.name} {name}"
        with bench.case(row):
            before = products(cell)
            bench.compare(row, lambda: ours(cell, bench.options.fused), lambda: peer(cell, name), "ms", goal,
                          check=lambda result: protocol.check_same_work(result, TOLERANCES[cell.precision]))
            bench.note(row, "products", min(before, products(cell)), "ms")
bench.end(["A/A", *(f"{cell.name} {name}" for cell in cells for name in cell.goals)])
