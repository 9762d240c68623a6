"""Time and memory of each strategy, compared with DDP: gpt-micro, batch 8, 128 tokens, W=2 over shared memory
(single, dp: one process, twice the batch). Blocks are not fused, which is the default of `model.fused`."""
import json
import os
import statistics
import tempfile

import protocol

WARM_UP, STEPS = 10, 40
SETTINGS = ["data.path=/usr/include/c++", "data.max_bytes=1000000", "data.batch_size=8", "data.block_size=128",
            "model.model_type=gpt-micro", "model.dropout=0", f"training.max_steps={WARM_UP + STEPS}"]
CASES = {
    "single": ["strategy=single", "data.batch_size=16"],
    "dp": ["strategy=dp", "strategy.replicas=2", "data.batch_size=16"],
    "zero1": ["strategy=zero1"],
    "zero2": ["strategy=zero2"],
    "fsdp": ["strategy=fsdp"],
    "fsdp no reshard": ["strategy=fsdp", "strategy.reshard_after_forward=false"],
    "hsdp 1x2": ["strategy=hsdp", "strategy.shard_size=1"],
    "ddp recompute": ["strategy=ddp", "recompute=all"],
    "ddp selective": ["strategy=ddp", "recompute=selective"],
    "fsdp recompute": ["strategy=fsdp", "recompute=all"],
    "ddp bf16": ["strategy=ddp", "precision=bf16"],
    "ddp bf16_params": ["strategy=ddp", "precision=bf16_params"],
}


def measure(settings):
    """A run with the median time of the steps after the warm-up as value, and memory as facts."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = os.path.join(folder, "metrics.jsonl")
        arguments = [*SETTINGS, *settings, f"training.metrics={metrics}"]
        alone = any(setting in ("strategy=single", "strategy=dp") for setting in settings)
        command = [str(protocol.BIN / "mingpt"), *arguments] if alone else protocol.ours(arguments, protocol.pinned)
        run = protocol.run(command)
        with open(metrics) as file:
            rows = [row for row in map(json.loads, file) if "loss" in row]
    run.value = statistics.median(row["step_ms"] for row in rows[WARM_UP:])
    run.facts = {"state_bytes": rows[-1]["state_bytes"], "peak_memory_bytes": rows[-1]["peak_memory_bytes"]}
    return run


bench = protocol.Bench(__doc__, fewest=6)
bench.check_noise(lambda: measure(["strategy=ddp"]))
for name, settings in CASES.items():
    result = bench.compare(name, lambda: measure(settings), lambda: measure(["strategy=ddp"]), "ms", 0.0)
    ours, ddp = (result.side(i)[0].facts for i in (0, 1))
    print(f"  {name}: state {ours['state_bytes'] / 1e6:.2f} MB against {ddp['state_bytes'] / 1e6:.2f} MB, "
          f"peak resident {ours['peak_memory_bytes'] / 1e6:.0f} MB against {ddp['peak_memory_bytes'] / 1e6:.0f} MB")
bench.end()
