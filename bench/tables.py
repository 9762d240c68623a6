"""Writes the results of the last benchmarks into docs/performance.md.

A table between the lines `<!-- bench: NAME -->` and `<!-- bench: end -->` is made of build/bench/NAME.json, if that file
is there. `./dev bench all` runs all benchmarks before.
"""
import json
import pathlib
import re
import statistics

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
TABLE = re.compile(r"(<!-- bench: (\w+) -->\n).*?(<!-- bench: end -->)", re.DOTALL)


def median(comparison, side):
    """The median of a side's values, in three digits."""
    return f"{statistics.median(pair[side]['value'] for pair in comparison['pairs']):.3g}"


def verdict(comparison):
    if comparison["verdict"].startswith("no verdict"):
        return "machine not quiet"
    return "reached" if comparison["low"] >= comparison["goal"] else "not reached"


def table(result):
    versions = result["versions"]
    lines = [f"{versions['cpu']}, {versions['cores']} cores, torch {versions['torch']}, {versions['compiler']}, ddpxx "
             f"{versions['ddpxx']}; A/A {result['comparisons']['A/A']['ratio']:.3f}", "",
             "| compared | ours | theirs | ratio | pairs, of them not quiet | goal |", "|---|---|---|---|---|---|"]
    for name, found in result["comparisons"].items():
        if "goal" not in found:
            continue
        lines.append(f"| {name} | {median(found, 0)} | {median(found, 1)} | "
                     f"{found['ratio']:.2f}x [{found['low']:.2f}, {found['high']:.2f}] | "
                     f"{len(found['pairs'])}, {found['dropped']}{', contended' if found['contended'] else ''} | {found['goal']}x, {verdict(found)} |")
    return "\n".join(lines) + "\n"


def written(match):
    begin, name, end = match.groups()
    path = ROOT / "build" / "bench" / f"{name}.json"
    if not path.exists():
        print(f"  {name}: no result in {path.relative_to(ROOT)}; its table stays")
        return match[0]
    result = json.loads(path.read_text())
    if "--add" not in result["arguments"] and any(word.startswith(("--cells", "--peers")) for word in result["arguments"]):
        print(f"  {name}: only a part was measured, with {' '.join(result['arguments'])}; its table stays")
        return match[0]
    print(f"  {name}: {len(result['comparisons']) - 1} comparisons")
    return begin + table(result) + end


if __name__ == "__main__":
    print(f"Tables of {PAGE.relative_to(ROOT)}:")
    PAGE.write_text(TABLE.sub(written, PAGE.read_text()))
