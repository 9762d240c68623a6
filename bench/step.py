"""Step time: gpt-nano, B=8, T=64, W=2 over Gloo, AdamW fused; each rank on a core of its own."""
import protocol

GOAL = 1.0
WARM_UP, STEPS = 20, 200
SETTINGS = ["data.path=/usr/include/c++", "data.max_bytes=1000000", "data.batch_size=8", "data.block_size=64",
            "model.dropout=0", f"training.max_steps={WARM_UP + STEPS}"]
BEST = ["ddp.static_graph=true", "ddp.gradient_as_bucket_view=true"]


def step_time(side, settings=()):
    return protocol.step_time(side, [*SETTINGS, *settings], WARM_UP)


bench = protocol.Bench(__doc__, fewest=15)
bench.check_noise(lambda: step_time(protocol.ours))
for name, settings in {"python": [], "best": BEST}.items():
    protocol.check_same_work(bench.compare(name, lambda: step_time(protocol.ours),
                                           lambda: step_time(protocol.peer, settings), "ms", GOAL))
