"""A step of GPT-2 with a tied head, against Python's eager mode, torch.compile, DDP and FSDP2.

On a GPU it is GPT-2 with 124M parameters, a vocabulary of 50304 and 1024 tokens a sample, or gpt-mini, whose step is
bound by the time in which the host starts kernels; on a CPU gpt-nano, which only shows that both sides do the same work.
The data are random tokens, in one file for both sides.

In each round every program runs once, in the opposite order of the round before, and ours a second time. On one GPU
ours fuses kernels, computes the loss in chunks, and captures its step in a CUDA graph, with strategy single. A start is
the time of a run without that of its steps behind the tenth; that of torch.compile is given for a filled cache. A goal is
reached if each round reaches it, because an interval would need six rounds.

MFU = tokens/s x (6 N + 12 L C T) / peak, with N parameters without those of the positions, L layers, width C, T tokens
a sample, and the device's peak in FLOP/s for dense products of 16-bit numbers (nanoGPT's formula, from PaLM).
"""
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

import protocol

WARM_UP, STEPS = 10, 40
MODELS = {"gpt2": {"layers": 12, "width": 768, "tokens": 1024, "vocabulary": 50304, "batch": 16},
          "gpt-mini": {"layers": 6, "width": 192, "tokens": 128, "vocabulary": 512, "batch": 8},
          "gpt-nano": {"layers": 3, "width": 48, "tokens": 64, "vocabulary": 512, "batch": 4}}
GOALS = {"eager": 1.25, "compile": 1.0, "reduce-overhead": 1.0, "ddp": 1.0, "fsdp": 1.0}
GOALS_OF_MINI = {**GOALS, "eager": 2.0}
SHARDED = ("ddp", "fsdp")  # modes of Python that have the name of a strategy of ours
FSDP_COST = 1 / 1.03  # FSDP on one rank may take 3 % longer than a single device
TOLERANCES = {"fp32": 1e-4, "bf16": 1e-2, "bf16_params": 2e-2}  # of the loss of step 10

bench = protocol.Bench(__doc__, fewest=2, options=[
    ("device", "cpu", "cpu or cuda"),
    ("model", "", "one of " + ",".join(MODELS) + "; empty is gpt2 on a GPU, gpt-nano on a CPU"),
    ("batch", 0, "samples a rank; 0 is 16 for gpt2, 8 for gpt-mini, 4 for gpt-nano"),
    ("precisions", "fp32", "of ddpxx: fp32, or some of bf16,bf16_params, beside Python's autocast to bf16"),
    ("peers", "eager,ddp,fsdp", "some of " + ",".join(GOALS)),
    ("settings", "", "more settings of mingpt, with spaces between"),
    ("peak", 989.0, "peak of the device in TFLOP/s, for the MFU")])
options = bench.options
if options.add:
    raise SystemExit("--add: the programs of a round are measured together; measure all of them anew")
on_gpu = options.device == "cuda"
model = options.model or ("gpt2" if on_gpu else "gpt-nano")
if model not in MODELS:
    raise SystemExit(f"--model {model}: choose one of {', '.join(MODELS)}")
bench.name = {"gpt2": "gpt2", "gpt-mini": "gpt2_mini", "gpt-nano": "gpt2_nano"}[model]  # of the file of results
sizes = MODELS[model]
batch = options.batch or sizes["batch"]
goals = GOALS_OF_MINI if model == "gpt-mini" else GOALS
precisions, peers = options.precisions.split(","), options.peers.split(",")
if precisions != ["fp32"] and not set(precisions) <= {"bf16", "bf16_params"}:
    raise SystemExit(f"--precisions {options.precisions}: give fp32, or some of bf16,bf16_params")
if not set(peers) <= set(GOALS):
    raise SystemExit(f"--peers {options.peers}: choose some of {', '.join(GOALS)}")
if on_gpu:
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    bench.result["versions"]["gpu"] = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
protocol.RANKS[-1] = "1"


def write_tokens(path):
    draw = random.Random(0)
    with open(path, "wb") as file:
        for _ in range(200 * sizes["tokens"]):  # rare and frequent ones, so that the losses depend on the samples
            file.write(int(sizes["vocabulary"] * draw.random() ** 4).to_bytes(2, "little"))


def mfu(milliseconds):
    layers, width, tokens = sizes["layers"], sizes["width"], sizes["tokens"]
    parameters = sizes["vocabulary"] * width + layers * (12 * width + 13) * width + 2 * width
    work = 6 * parameters + 12 * layers * width * tokens
    return batch * tokens / (milliseconds / 1e3) * work / (options.peak * 1e12)


def step_time(side, *settings):
    """A run; its facts are losses, the time of its start, and the peak of its memory on a GPU."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = os.path.join(folder, "metrics.jsonl")
        result = protocol.run(side([
            f"data.path={data}", f"data.block_size={sizes['tokens']}", f"data.vocab_size={sizes['vocabulary']}",
            f"data.batch_size={batch}", f"model.model_type={model}", "model.tied_head=true", "model.dropout=0",
            "optimizer.learning_rate=6e-4", f"training.max_steps={WARM_UP + STEPS}", f"training.metrics={metrics}",
            *settings], protocol.pinned))
        with open(metrics) as file:
            rows = [row for row in map(json.loads, file) if "loss" in row]
    later = [row["step_ms"] for row in rows[WARM_UP:]]
    result.value = statistics.median(later)
    result.facts = {"loss_10": rows[9]["loss"], "start": result.wall - sum(later) / 1e3,
                    "peak_bytes": max(row.get("gpu_peak_bytes", 0) for row in rows)}
    return result


def ours(strategy, precision, graph=False):
    fast = [*protocol.FASTEST, f"model.loss_chunk={batch * sizes['tokens']}"] if on_gpu else []
    return step_time(protocol.ours, "data.format=tokens", f"strategy={strategy}", f"training.device={options.device}",
                     f"precision={precision}", "optimizer.weight_decay=0.1", "optimizer.beta2=0.95",
                     "training.grad_norm_clip=1", "training.save_dir=", "generate.tokens=0",
                     f"training.cuda_graph={'true' if graph else 'false'}", *fast, *options.settings.split())


def peer(name):
    """Python as the only rank of its group, without a launcher: torchrun would take seconds of its start."""
    alone = ["env", "RANK=0", "LOCAL_RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=127.0.0.1",
             f"MASTER_PORT={random.SystemRandom().randrange(20000, 30000)}"]
    program = [sys.executable, str(protocol.ROOT / "bench" / "peers" / "gpt2.py")]
    return step_time(lambda settings, wrap: alone + wrap(program + settings), f"mode={name}",
                     f"device={options.device}", f"precision={'fp32' if precisions == ['fp32'] else 'bf16'}")


def report(name, us, them, goal, precision):
    """Compares the runs of two programs, round by round."""
    found = protocol.Comparison(list(zip(us, them)), quiet=not on_gpu)
    losses = [side[0].facts["loss_10"] for side in (us, them)]
    if not goal and abs(found.ratio - 1) > protocol.AA_TOLERANCE:
        bench.void = True
    rounds = sorted(theirs.value / ours.value for ours, theirs in found.used)
    verdict = ("reached" if rounds[0] >= goal else "NOT reached") if goal else "no goal"
    if bench.void or found.dropped > len(found.pairs) / 2:
        verdict = "no verdict: the machine was not quiet"
    if abs(losses[0] / losses[1] - 1) > TOLERANCES[precision]:
        verdict = f"no verdict: the losses of step 10 are {losses[0]} and {losses[1]}: the sides do different work"
        different.append(name)
    wanted = f"goal >= {goal:.3g}x: " if goal else ""
    print(f"  {name:32} {', '.join(f'{ratio:.3f}x' for ratio in rounds)}; {wanted}{verdict}")
    bench.keep(name, found, unit="ms", goal=goal, verdict=verdict)


def describe(name, runs):
    """Prints the facts of a program that are not compared, and keeps them in the result."""
    time = statistics.median(run.value for run in runs)
    facts = {"step_ms": time, "start_s": min(run.facts["start"] for run in runs),
             "tokens_per_s": batch * sizes["tokens"] / (time / 1e3)}
    if on_gpu:
        facts |= {"mfu": mfu(time), "peak_gib": max(run.facts["peak_bytes"] for run in runs) / 2**30}
    bench.result.setdefault("programs", {})[name] = facts
    bench.write()
    print(f"  {name:32} " + ", ".join(f"{fact} {value:.4g}" for fact, value in facts.items()), flush=True)


programs = {f"single {precision}": lambda precision=precision: ours("single", precision, graph=on_gpu)
            for precision in precisions}
for strategy in SHARDED:
    if strategy in peers:
        programs[f"{strategy} {precisions[0]}"] = lambda strategy=strategy: ours(strategy, precisions[0])
if "fsdp" in peers and on_gpu:
    programs["single without a graph"] = lambda: ours("single", precisions[0])
programs |= {name: lambda name=name: peer(name) for name in peers}
first = next(iter(programs))
again = f"{first}, again"

with tempfile.TemporaryDirectory() as folder:
    data = os.path.join(folder, "train.bin")
    write_tokens(data)
    runs = {name: [] for name in [*programs, again]}
    for number in range(bench.fewest):
        for name in [*programs, again] if number % 2 == 0 else [again, *reversed(programs)]:
            runs[name].append(programs[first if name == again else name]())
            print(f"  {name}: {runs[name][-1].value:.4g} ms", flush=True)

different = []  # comparisons of sides that do different work
for name in programs:
    describe(name, runs[name])
report("A/A", runs[first], runs[again], 0, precisions[0])
for name in peers:
    if name in SHARDED:
        own = f"{name} {precisions[0]}"
        report(f"{own}, {name}", runs[own], runs[name], goals[name], precisions[0])
        continue
    for precision in precisions:
        report(f"single {precision}, {name}", runs[f"single {precision}"], runs[name], goals[name], precision)
if "fsdp" in peers and on_gpu:
    report("fsdp, single without a graph", runs[f"fsdp {precisions[0]}"], runs["single without a graph"], FSDP_COST,
           precisions[0])
if different:
    raise SystemExit(f"  void: {', '.join(different)}")
bench.end()
