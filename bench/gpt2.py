"""A step of GPT-2 with a tied head, against Python's eager mode, torch.compile, DDP and FSDP2.

Against reduce-overhead, which uses CUDA graphs, ddpxx captures its step in one on a GPU (training.cuda_graph).
On a GPU it is GPT-2 with 124M parameters, a vocabulary of 50304 and 1024 tokens a sample, or gpt-mini, whose step is
bound by the time in which the host starts kernels; on a CPU gpt-nano, which only shows that both sides do the same work.
The data are random tokens, in one file for both sides.

MFU = tokens/s x (6 N + 12 L C T) / peak, with N parameters without those of the positions, L layers, width C, T tokens
a sample, and the device's peak in FLOP/s for dense products of 16-bit numbers (nanoGPT's formula, from PaLM).
"""
import os
import random
import statistics
import tempfile

import protocol

WARM_UP, STEPS = 10, 40
MODELS = {"gpt2": {"layers": 12, "width": 768, "tokens": 1024, "vocabulary": 50304, "batch": 16},
          "gpt-mini": {"layers": 6, "width": 192, "tokens": 128, "vocabulary": 512, "batch": 8},
          "gpt-nano": {"layers": 3, "width": 48, "tokens": 64, "vocabulary": 512, "batch": 4}}
STRATEGIES = {"eager": "single", "compile": "single", "reduce-overhead": "single", "ddp": "ddp", "fsdp": "fsdp"}
GOALS = {"eager": 1.25, "compile": 1.0, "reduce-overhead": 1.0, "ddp": 1.0, "fsdp": 1.0}
GOALS_OF_MINI = {**GOALS, "eager": 2.0}
TOLERANCES = {"fp32": 1e-4, "bf16": 1e-2, "bf16_params": 2e-2}  # of the loss of step 10

bench = protocol.Bench(__doc__, fewest=5, options=[
    ("device", "cpu", "cpu or cuda"), ("ranks", 1, "ranks of ddp and fsdp"),
    ("model", "", "one of " + ",".join(MODELS) + "; empty is gpt2 on a GPU, gpt-nano on a CPU"),
    ("batch", 0, "samples a rank; 0 is 16 for gpt2, 8 for gpt-mini, 4 for gpt-nano"),
    ("precision", "fp32", "of ddpxx: fp32, bf16 or bf16_params; Python's is autocast to bf16 for the last two"),
    ("peers", "eager,ddp,fsdp", "some of " + ",".join(STRATEGIES)),
    ("settings", "", "more settings of mingpt, with spaces between"),
    ("peak", 989.0, "peak of the device in TFLOP/s, for the MFU")])
options = bench.options
model = options.model or ("gpt2" if options.device == "cuda" else "gpt-nano")
if model not in MODELS:
    raise SystemExit(f"--model {model}: choose one of {', '.join(MODELS)}")
sizes = MODELS[model]
batch = options.batch or sizes["batch"]
goals = GOALS_OF_MINI if model == "gpt-mini" else GOALS


def write_tokens(path):
    draw = random.Random(0)
    with open(path, "wb") as file:
        for _ in range(200 * sizes["tokens"]):
            file.write(draw.randrange(sizes["vocabulary"]).to_bytes(2, "little"))


def mfu(milliseconds):
    layers, width, tokens = sizes["layers"], sizes["width"], sizes["tokens"]
    parameters = sizes["vocabulary"] * width + layers * (12 * width + 13) * width + 2 * width
    work = 6 * parameters + 12 * layers * width * tokens
    return batch * tokens / (milliseconds / 1e3) * work / (options.peak * 1e12)


def step_time(side, *settings):
    return protocol.step_time(side, [f"data.path={data}", f"data.block_size={sizes['tokens']}",
                                     f"data.vocab_size={sizes['vocabulary']}", f"data.batch_size={batch}",
                                     f"model.model_type={model}", "model.tied_head=true", "model.dropout=0",
                                     "optimizer.learning_rate=6e-4", f"training.max_steps={WARM_UP + STEPS}",
                                     *settings], WARM_UP)


def ours(name):
    graph = name == "reduce-overhead" and options.device == "cuda"
    return step_time(protocol.ours, "data.format=tokens", f"strategy={STRATEGIES[name]}",
                     f"training.device={options.device}", f"precision={options.precision}",
                     "optimizer.weight_decay=0.1", "optimizer.beta2=0.95", "training.grad_norm_clip=1",
                     "training.save_dir=", f"training.cuda_graph={'true' if graph else 'false'}",
                     *options.settings.split())


def peer(name):
    return step_time(lambda settings, wrap: protocol.peer(settings, wrap, "gpt2.py"), f"mode={name}",
                     f"device={options.device}", f"precision={'fp32' if options.precision == 'fp32' else 'bf16'}")


def check_same_loss(result):
    ours_loss, theirs_loss = (run.facts["loss_10"] for run in result.pairs[0])
    if abs(ours_loss / theirs_loss - 1) > TOLERANCES[options.precision]:
        raise SystemExit(f"  void: the loss of step 10 is {ours_loss} and {theirs_loss}: the sides do different work")


with tempfile.TemporaryDirectory() as folder:
    data = os.path.join(folder, "train.bin")
    write_tokens(data)
    protocol.RANKS[-1] = "1"
    bench.check_noise(lambda: ours("eager"))
    for name in options.peers.split(","):
        protocol.RANKS[-1] = str(options.ranks if name in ("ddp", "fsdp") else 1)
        found = bench.compare(name, lambda: ours(name), lambda: peer(name), "ms", goals[name])
        check_same_loss(found)
        if options.device == "cuda":
            print("  MFU      " + ", ".join(f"{side} {mfu(statistics.median(run.value for run in found.side(i))):.1%}"
                                            for i, side in enumerate(("ddpxx", name))))
