"""The time of a step on more ranks: `mingpt plan --time` against real runs on this machine, and drawn further.

The links are measured by `ddpxx net` between two ranks that share memory, the steps of one rank by the plan. A plan runs on
each core that a rank has, all at the same time, since cores slow each other down; their mean counts. With more ranks than
cores, everything takes as many times longer as ranks share a core. Ranks on one machine move the bytes of their collectives
by their own cores, so these do not overlap with the computation. Each side is the shortest of several runs, which other
programs disturb least. The curves are simulated: the same plan with the figures of faster links.
"""
import json
import os
import re
import statistics
import tempfile

import protocol

TEXT = ["data.path=/usr/include/c++", "data.max_bytes=1000000", "data.split=random", "model.dropout=0", "model.fused=true"]
CASES = {
    "gpt-nano B=8, ddp": ["model.model_type=gpt-nano", "data.batch_size=8", "data.block_size=64", "strategy=ddp"],
    "gpt-micro B=4, ddp": ["model.model_type=gpt-micro", "data.batch_size=4", "data.block_size=128", "strategy=ddp"],
    "gpt-micro B=4, fsdp": ["model.model_type=gpt-micro", "data.batch_size=4", "data.block_size=128", "strategy=fsdp"],
}
RANKS = [2, 4, 8, 16]
GOAL = 0.20  # the mean error
RUNS, STEPS, WARM_UP = 3, 20, 5
LINKS = {  # nominal rates of the networks, and usual latencies of a message
    "10 Gbit/s, 30 us": ["link.bandwidth=1.25GB", "link.latency=0.03ms"],
    "100 Gbit/s, 10 us": ["link.bandwidth=12.5GB", "link.latency=0.01ms"],
    "400 Gbit/s, 5 us": ["link.bandwidth=50GB", "link.latency=0.005ms"],
}
MAX_RANKS = 1024
DRAWN = ["model.model_type=gpt-micro", "data.batch_size=8", "data.block_size=128"]
PICTURE = protocol.RESULTS / "scale.svg"  # `./dev bench tables` puts it into the docs


def wrap(ranks):
    return protocol.pinned if ranks <= len(protocol.CORES) else list


def links():
    """The settings of the links between two ranks, as `ddpxx net` prints them."""
    command = protocol.pinned([str(protocol.BIN / "ddpxx"), "net", "max_bytes=16MiB"])
    run = protocol.run([str(protocol.BIN / "ddpxx-run"), *protocol.launched(2), *command])
    text = "\n".join(text for _, text in run.lines)
    found = re.search(r"link\.latency=\S+ link\.bandwidth=\S+", text)
    if not found:
        raise SystemExit(f"ddpxx net does not tell the speed of the links:\n{text}")
    return found[0].split()


def plans(settings, ranks, more):
    """The last rows of plans that run on as many cores as there are ranks: ranks, step, computing; the times in ms."""
    words = [str(protocol.BIN / "mingpt"), "plan", "--time", f"world_size={ranks}", *TEXT, *settings, *more]
    processes = [protocol.start(["taskset", "-c", str(core), *words]) for core in protocol.CORES[:ranks]]
    texts = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit(texts[0])
    return [[tuple(map(float, row)) for row in re.findall(r"^ *(\d+) +([\d.]+) ms +([\d.]+) ms", text, re.MULTILINE)]
            for text in texts]


def planned_step(settings, ranks, more):
    """The step on so many ranks, in milliseconds."""
    return statistics.mean(rows[-1][1] for rows in plans(settings, ranks, more))


def step(settings, ranks):
    """The median step of a run, in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = os.path.join(folder, "metrics.jsonl")
        words = [*TEXT, *settings, f"training.max_steps={WARM_UP + STEPS}", f"training.metrics={metrics}"]
        protocol.run(protocol.ours(words, wrap(ranks), ranks))
        with open(metrics) as file:
            rows = [row for row in map(json.loads, file) if "loss" in row]
    return statistics.median(row["step_ms"] for row in rows[WARM_UP:])


def draw(curves):
    """Writes the curves {name: {ranks: efficiency}} as a picture."""
    width, height, left, top, right, bottom = 640, 300, 52, 16, 150, 44
    ranks = sorted(next(iter(curves.values())))

    def point(i, efficiency):
        x = left + (width - left - right) * i / (len(ranks) - 1)
        return f"{x:.1f},{top + (height - top - bottom) * (1 - efficiency):.1f}"

    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
             'font-family="sans-serif" font-size="12" fill="#777" role="img">',
             "<title>Simulated efficiency of a step of gpt-micro from 1 to 1024 ranks over three networks</title>"]
    for percent in (0, 25, 50, 75, 100):
        x, y = point(0, percent / 100).split(",")
        end = point(len(ranks) - 1, 0).split(",")[0]
        lines.append(f'<path d="M{x},{y}H{end}" stroke="#777" stroke-opacity="0.3"/>'
                     f'<text x="{left - 6}" y="{float(y) + 4:.1f}" text-anchor="end">{percent} %</text>')
    for i, rank in enumerate(ranks):
        x, y = point(i, 0).split(",")
        lines.append(f'<text x="{x}" y="{float(y) + 16:.1f}" text-anchor="middle">{rank}</text>')
    x = point((len(ranks) - 1) / 2, 0).split(",")[0]
    lines.append(f'<text x="{x}" y="{height - 8}" text-anchor="middle">ranks (simulated)</text>')
    for (name, curve), color in zip(curves.items(), ("#c2185b", "#1976d2", "#388e3c")):
        points = [point(i, curve[rank]) for i, rank in enumerate(ranks)]
        x, y = points[-1].split(",")
        lines.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{color}" stroke-width="2"/>'
                     f'<text x="{float(x) + 8:.1f}" y="{float(y) + 4:.1f}" fill="{color}">{name}</text>')
    PICTURE.write_text("\n".join([*lines, "</svg>", ""]))


bench = protocol.Bench(__doc__, fewest=1)
link = links()
print(f"  links of two ranks: {' '.join(link)}")
bench.result |= {"link": link, "cases": {}, "curves": {}}
errors = []
for name, settings in CASES.items():
    for ranks in RANKS:
        shared = [*link, f"ranks_per_core={max(1, ranks / len(protocol.CORES))}", "overlaps=false"]
        planned = min(planned_step(settings, ranks, shared) for _ in range(RUNS))
        measured = min(step(settings, ranks) for _ in range(RUNS))
        errors.append(abs(planned / measured - 1))
        print(f"  {name}, {ranks} ranks: planned {planned:.4g} ms, measured {measured:.4g} ms, error {errors[-1]:.0%}", flush=True)
        bench.result["cases"][f"{name}, {ranks} ranks"] = {"planned": planned, "measured": measured}
        bench.write()
mean = statistics.mean(errors)
print(f"  mean error {mean:.0%}; goal <= {GOAL:.0%}: {'reached' if mean <= GOAL else 'NOT reached'}")
for name, figures in LINKS.items():
    rows = plans([*DRAWN, "strategy=ddp"], MAX_RANKS, figures)[0]
    bench.result["curves"][name] = {int(ranks): computing / step for ranks, step, computing in rows}
    print(f"  simulated, {name}: " + ", ".join(f"{ranks:.0f}: {step:.4g} ms" for ranks, step, _ in rows))
bench.result["mean_error"] = mean
draw(bench.result["curves"])
bench.end()
