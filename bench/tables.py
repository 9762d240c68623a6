"""Writes the results of the last benchmarks into README.md and docs/performance.md.

A table between the lines `<!-- bench: NAME -->` and `<!-- bench: end -->` is made of build/bench/NAME.json, if that file
is there, has all comparisons, and was measured with the settings that the text around the table names: those of SETTINGS,
otherwise the default ones. The table of the README, `<!-- bench: summary -->`, has a row of each of several results.
`./dev bench all` runs all benchmarks before. The picture of `bench scale` is copied into the docs.
"""
import contextlib
import json
import math
import pathlib
import re
import shutil
import statistics

ROOT = pathlib.Path(__file__).resolve().parent.parent
PICTURE = ROOT / "build" / "bench" / "scale.svg"
PAGES = [ROOT / "README.md", ROOT / "docs" / "performance.md"]
SUMMARY = {  # what the README compares: a benchmark, and one of its comparisons
    "launcher to first optimizer step": ("start", "python"),
    "step, batch 8, 64 tokens": ("step", "gpt-nano B=8 W=2 best"),
    "resident memory of a rank at idle": ("memory", "idle"),
}
SETTINGS = {
    "gpt2": {"device": "cuda", "precisions": "bf16,bf16_params", "peers": "eager,compile,fsdp"},
    "gpt2_mini": {"pairs": 1, "device": "cuda", "model": "gpt-mini", "precisions": "bf16", "peers": "eager,reduce-overhead"},
}
TABLE = re.compile(r"(<!-- bench: (\w+) -->\n).*?(<!-- bench: end -->)", re.DOTALL)


def median(comparison, side):
    """The median of a side's values, in three digits, with its unit."""
    return f"{statistics.median(pair[side]['value'] for pair in comparison['pairs']):.3g} {comparison.get('unit', '')}"


def heading(result):
    """The line above a table: the machine, the versions of the programs, and the comparisons of ours with itself."""
    versions = result["versions"]
    noise = [f"A/A {found['ratio']:.3f}" for name, found in result["comparisons"].items() if name.startswith("A/A")]
    return ", ".join([str(versions["cpu"]), f"{versions['cores']} cores", f"torch {versions['torch']}",
                      str(versions["compiler"]), f"ddpxx {versions['ddpxx']}", *noise])


def verdict(comparison):
    """The goal, and whether it was reached; empty for a comparison without a goal."""
    if comparison["goal"] == 0:
        return ""
    return f"{comparison['goal']:.3g}x, {reached(comparison)}"


def reached(comparison):
    """Whether the goal is reached, or why that is not known."""
    found = comparison["verdict"]
    return "machine not quiet" if "not quiet" in found else found.replace("NOT", "not")


def products(comparison):
    """A cell with the time of the matrix products alone, and their share of our step."""
    if "products" not in comparison:
        return " |"
    ours = statistics.median(pair[0]["value"] for pair in comparison["pairs"])
    return f" {comparison['products']:.3g}, {100 * comparison['products'] / ours:.0f} % |"


def pairs(comparison):
    """The number of pairs, that of those which were not quiet, and whether other work slowed the programs down."""
    return f"{len(comparison['pairs'])}, {comparison['dropped']}{', contended' if comparison['contended'] else ''}"


def table(result):
    has_products = any("products" in found for found in result["comparisons"].values())
    lines = [heading(result), "",
             f"| compared | ours | theirs | ratio | pairs, of them not quiet | goal |{' products alone |' * has_products}",
             f"|---|---|---|---|---|---|{'---|' * has_products}"]
    for name, found in result["comparisons"].items():
        if "goal" not in found:
            continue
        lines.append(f"| {name} | {median(found, 0)} | {median(found, 1)} | "
                     f"{found['ratio']:.2f}x [{found['low']:.2f}, {found['high']:.2f}] | "
                     f"{pairs(found)} | {verdict(found)} |{products(found) * has_products}")
    return "\n".join(lines) + "\n"


def collectives_table(result):
    """The collectives over both backends, and the time of a copy of the bytes that a rank receives."""
    lines = [heading(result), "",
             "| collective | shared memory | Gloo | ratio | goal | a copy |", "|---|---|---|---|---|---|"]
    for name, found in result["comparisons"].items():
        ours, theirs, copy = (statistics.median(pair[side] for pair in found["pairs"]) for side in (0, 1, 2))
        lines.append(f"| {name} B | {ours:.3g} ms | {theirs:.3g} ms | {found['ratio']:.1f}x [{found['low']:.1f}, "
                     f"{found['high']:.1f}] | {verdict(found)} | {copy:.2g} ms, {100 * copy / ours:.0f} % |")
    return "\n".join(lines) + "\n"


def scale_table(result):
    """The plans of `bench scale` beside the runs."""
    versions = result["versions"]
    lines = [f"{versions['cpu']}, {versions['cores']} cores, ddpxx {versions['ddpxx']}, links of {' and '.join(result['link'])}",
             "", "| run | planned | measured | error |", "|---|---|---|---|"]
    for name, case in result["cases"].items():
        planned, measured = case["planned"], case["measured"]
        lines.append(f"| {name} | {planned:.3g} ms | {measured:.3g} ms | {100 * abs(planned / measured - 1):.0f} % |")
    lines.append(f"| mean (goal: at most 20 %) | | | {100 * result['mean_error']:.0f} % |")
    return "\n".join(lines) + "\n"


def strategies_table(result):
    """Time and memory of each strategy, beside DDP under the same load of the machine."""

    def fact(found, side, name):
        return statistics.median(pair[side][name] for pair in found["pairs"]) / 1e6

    lines = [heading(result), "", "| strategy | step | times the step of ddp | state of a rank | times that of ddp | peak resident memory |",
             "|---|---|---|---|---|---|"]
    for name, found in result["comparisons"].items():
        if "goal" not in found:
            continue
        ours, ddp = (fact(found, side, "state_bytes") for side in (0, 1))
        low, ratio, high = (1 / end if end else math.inf for end in (found["high"], found["ratio"], found["low"]))
        lines.append(f"| {name} | {median(found, 0)} | {ratio:.2f} [{low:.2f}, {high:.2f}] | {ours:.1f} MB | {ours / ddp:.2f} | "
                     f"{fact(found, 0, 'peak_memory_bytes'):.0f} MB |")
    return "\n".join(lines) + "\n"


def launcher_table(result):
    """The memory of the launchers of `bench restart`, and the time in which they start many ranks."""
    found = result["launcher"]
    lines = [heading(result), "", "| launcher | ddpxx-run | torchrun |", "|---|---|---|"]
    for what, key, unit in (("peak resident memory while two ranks write 200 MB", "peak MB", "MB"),
                            ("time until 64 ranks of a shell have started", "64 ranks s", "s")):
        lines.append(f"| {what} | {found[f'ddpxx {key}']:.3g} {unit} | {found[f'torchrun {key}']:.3g} {unit} |")
    return "\n".join(lines) + "\n"


def instructions_table(result):
    """The counts of `bench instructions`, and how they grow."""
    lines = [heading(result), "", "| doubled | million instructions of a step | growth by a doubling | goal |", "|---|---|---|---|"]
    for name, curve in result["curves"].items():
        counts = ", ".join(f"{count / 1e6:.2f}" for count in curve["counts"])
        growth = ", ".join(f"{ratio:.3f}" for ratio in curve["growth"])
        lines.append(f"| {name} | {counts} | {growth} | {'reached' if curve['reached'] else 'not reached'} |")
    return "\n".join(lines) + "\n"


def gpt2_table(result):
    """The programs of `bench gpt2`, and their comparisons."""
    versions = result["versions"]
    noise = result["comparisons"]["A/A"]["ratio"]
    lines = [f"{versions['gpu']}, {versions['cpu']}, torch {versions['torch']}, ddpxx {versions['ddpxx']}, A/A {noise:.3f}",
             "", "| program | step | tokens a second | MFU | peak memory | start to step 10 |", "|---|---|---|---|---|---|"]
    for name, facts in result["programs"].items():
        lines.append(f"| {name} | {facts['step_ms']:.4g} ms | {facts['tokens_per_s']:.3g} | {100 * facts['mfu']:.1f} % | "
                     f"{facts['peak_gib']:.2f} GiB | {facts['start_s']:.1f} s |")
    lines += ["", "| compared | ratio of each round | goal |", "|---|---|---|"]
    for name, found in result["comparisons"].items():
        if found["goal"]:
            rounds = sorted(them["value"] / us["value"] for us, them in found["pairs"])
            lines.append(f"| {name} | {', '.join(f'{ratio:.3f}x' for ratio in rounds)} | {verdict(found)} |")
    return "\n".join(lines) + "\n"


TABLES = {  # the tables that are not like the others: their file and their function
    "collectives": ("collectives", collectives_table),
    "gpt2": ("gpt2", gpt2_table),
    "gpt2_mini": ("gpt2_mini", gpt2_table),
    "instructions": ("instructions", instructions_table),
    "launcher": ("restart", launcher_table),
    "scale": ("scale", scale_table),
    "strategies": ("strategies", strategies_table),
}


class Unfit(Exception):
    """Why a result is not published."""


def result_of(name):
    """The last result of a benchmark."""
    path = ROOT / "build" / "bench" / f"{name}.json"
    if not path.exists():
        raise Unfit(f"there is no result of {name} in build/bench")
    result, expected = json.loads(path.read_text()), SETTINGS.get(name, {})
    if result.get("settings") != expected:
        raise Unfit(f"{name} was measured with the settings {result.get('settings')}, and the text describes {expected}")
    if not result["complete"]:
        raise Unfit(f"{name} lacks comparisons: some have failed, or only a part was measured")
    return result


def summary_table():
    """The README's rows, which must be of one machine."""
    results = {name: result_of(name) for name, _ in SUMMARY.values()}
    if len({(result["versions"]["cpuinfo_sha256"], result["versions"]["torch"]) for result in results.values()}) > 1:
        raise Unfit("the results are of several machines or versions of torch")
    versions = results["step"]["versions"]
    commits = " and ".join(sorted({result["versions"]["ddpxx"] for result in results.values()}))
    lines = [f"{versions['cpu']}, {versions['cores']} cores, torch {versions['torch']}, ddpxx {commits}:", "",
             "| gpt-nano, two ranks on a CPU | ddpxx | PyTorch | ratio [95 %] | pairs, of them not quiet | goal |",
             "|---|---|---|---|---|---|"]
    for what, (name, comparison) in SUMMARY.items():
        found = results[name]["comparisons"][comparison]
        lines.append(f"| {what} (`{name}`) | {median(found, 0)} | {median(found, 1)} | {found['ratio']:.2f}x "
                     f"[{found['low']:.2f}, {found['high']:.2f}] | {pairs(found)} | {verdict(found)} |")
    return "\n".join(lines) + "\n"


def written(match):
    begin, name, end = match.groups()
    try:
        if name == "summary":
            rows = summary_table()
        else:
            file, make = TABLES.get(name, (name, table))
            rows = make(result_of(file))
    except Unfit as reason:
        print(f"  {name}: its table stays: {reason}")
        return match[0]
    print(f"  {name}: written")
    return begin + rows + end


if __name__ == "__main__":
    for page in PAGES:
        print(f"Tables of {page.relative_to(ROOT)}:")
        page.write_text(TABLE.sub(written, page.read_text()))
    with contextlib.suppress(Unfit):
        result_of("scale")
        shutil.copy(PICTURE, ROOT / "docs" / "pictures")
