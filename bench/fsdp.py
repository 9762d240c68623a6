"""FSDP: a step of gpt-nano and gpt-micro, W=2, against Python's FSDP2 over Gloo and against the DDP of ddpxx.

Ours computes blocks in one operation, and clips gradients in the optimizer's pass.
"""
import protocol

WARM_UP, STEPS = 10, 60
SETTINGS = ["data.path=/usr/include/c++", "data.max_bytes=1000000", "data.batch_size=8", "model.dropout=0",
            f"training.max_steps={WARM_UP + STEPS}"]
MODELS = {"gpt-nano": (64, 6.0, 1 / 1.25), "gpt-micro": (128, 1.6, 1 / 1.1)}  # tokens, goals against Python and our DDP


def step_time(side, settings):
    fastest = protocol.FASTEST if side is protocol.ours else []
    return protocol.step_time(side, [*SETTINGS, *fastest, *settings], WARM_UP)


bench = protocol.Bench(__doc__, fewest=15)
bench.check_noise(lambda: step_time(protocol.ours, ["strategy=fsdp", "data.block_size=64"]))
for model, (tokens, goal, ddp_goal) in MODELS.items():
    print(f"{model}, batch 8, {tokens} tokens")
    settings = [f"model.model_type={model}", f"data.block_size={tokens}"]
    fsdp = [*settings, "strategy=fsdp"]
    with bench.case(f"fsdp2 {model}"):
        bench.compare(f"fsdp2 {model}", lambda: step_time(protocol.ours, fsdp), lambda: step_time(protocol.peer, fsdp), "ms",
                      goal, check=protocol.check_same_work)
    bench.compare(f"own ddp {model}", lambda: step_time(protocol.ours, fsdp),
                  lambda: step_time(protocol.ours, settings), "ms", ddp_goal)
bench.end()
