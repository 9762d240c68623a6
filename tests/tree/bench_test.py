#!/usr/bin/env python3
"""Checks what the benchmarks make of measured times, without a benchmark: intervals and verdicts, which results are kept, and
which are published."""
import contextlib
import io
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
sys.dont_write_bytecode = True
import protocol  # noqa: E402
import tables  # noqa: E402


def refusal(call, *arguments):
    """The message with which a call ends the program."""
    try:
        call(*arguments)
    except SystemExit as end:
        return str(end.code)
    raise AssertionError("the program did not end")


def bench_in(folder, *arguments, fewest=6, **more):
    """A benchmark that keeps its results in the folder."""
    protocol.BIN, protocol.RESULTS = folder / "bin", folder
    protocol.BIN.mkdir(exist_ok=True)
    (protocol.BIN / "mingpt").touch()
    sys.argv = ["some.py", *arguments]
    return protocol.Bench("some benchmark", fewest, **more)


def result_in(folder):
    return json.loads((folder / "some.json").read_text())


def runs(*values):
    """A function that returns a run with the next of these values, again and again."""
    number = iter(range(1000))
    return lambda: protocol.Run(1.0, 1.0, 0.0, [], values[next(number) % len(values)])


def test_intervals_contain_the_median(_):
    draw = random.Random(0)
    for distribution in (lambda: draw.gauss(0, 1), lambda: draw.expovariate(1) - math.log(2)):  # both with the median 0
        for pairs in (6, 7, 10, 15):
            trials, inside = 2000, 0
            for _ in range(trials):
                _, low, high = protocol.interval([distribution() for _ in range(pairs)])
                inside += low <= 1 <= high
            assert inside / trials > 0.945, (pairs, inside / trials)
    assert protocol.interval([0.0] * 5) == [1, 0, math.inf]
    ratio, low, high = protocol.interval([math.log(value) for value in (6, 1, 2, 3, 4, 5)])
    assert (round(ratio, 6), round(low, 6), round(high, 6)) == (round(math.sqrt(12), 6), 1, 6)


def test_a_value_below_the_noise_is_no_end_of_an_interval(_):
    pairs = [(runs(ours)(), runs(4.0)()) for ours in (1.0, 2.0, 1.0, 0.5, 1.0, 2.0)]
    for side, (low, high) in enumerate(((2, math.inf), (0, 8))):
        pairs[3][side].is_bound = True
        found = protocol.Comparison(pairs, quiet=True)
        assert [round(x, 6) if x < math.inf else x for x in (found.low, found.ratio, found.high)] == [low, 4, high], vars(found)
        pairs[3][side].is_bound = False


def test_verdicts(folder):
    bench = bench_in(folder, "--most", "6")
    for values, goal, verdict in (([3.0], 2.0, "reached"), ([3.0, 1.0], 2.0, "NOT reached")):
        bench.compare("a", runs(1.0), runs(*values), "ms", goal)
        assert result_in(folder)["comparisons"]["a"]["verdict"] == verdict
    bench = bench_in(folder, "--pairs", "5", "--most", "5")
    bench.compare("a", runs(1.0), runs(3.0), "ms", 2.0)
    assert result_in(folder)["comparisons"]["a"]["verdict"].startswith("no verdict")


def test_noise_needs_a_narrow_interval(folder):
    bench = bench_in(folder, "--most", "12")
    for value, is_void in ((1.01, False), (1.3, True)):  # each is once larger than the run beside it, and once smaller
        bench.check_noise(runs(1.0, value))
        assert bench.void == is_void, bench.result["comparisons"]
        assert abs(result_in(folder)["comparisons"]["A/A"]["ratio"] - 1) <= 0.02


def test_void_comparisons_are_not_kept(folder):
    bench_in(folder).compare("a", runs(1.0), runs(3.0), "ms", 2.0)
    bench = bench_in(folder)
    bench.result["comparisons"] = result_in(folder)["comparisons"]  # as --add does
    assert refusal(lambda: bench.compare("a", runs(1.0), runs(3.0), "ms", 2.0, check=lambda _: sys.exit("void"))) == "void"
    assert result_in(folder)["comparisons"] == {}
    with bench.case("b"):
        bench.compare("b", runs(1.0), runs(3.0), "ms", 2.0, check=lambda _: sys.exit("void"))
    assert "these comparisons failed: b" in refusal(bench.end)
    assert result_in(folder)["comparisons"] == {} and not result_in(folder)["complete"]


def test_add_needs_equal_settings_and_a_commit(folder):
    known = {"options": [("fused", "true", ""), ("cells", "", "")], "choices": ("cells",)}
    os.environ["DDPXX_COMMIT"] = "abc"
    bench = bench_in(folder, "--cells", "a", **known)
    bench.compare("a", runs(1.0), runs(3.0), "ms", 2.0)
    bench.end(["a", "b"])
    assert not result_in(folder)["complete"] and result_in(folder)["settings"] == {}
    assert "other settings: settings" in refusal(lambda: bench_in(folder, "--add", "--fused", "false", **known))
    assert "other settings: settings" in refusal(lambda: bench_in(folder, "--add", "--most", "9", **known))
    bench = bench_in(folder, "--add", "--cells", "b", **known)
    bench.compare("b", runs(1.0), runs(3.0), "ms", 2.0)
    bench.end(["b", "a"])
    assert list(result_in(folder)["comparisons"]) == ["b", "a"] and result_in(folder)["complete"]
    for commit in ("abc-dirty", "unknown"):
        os.environ["DDPXX_COMMIT"] = commit
        assert "commit" in refusal(lambda: bench_in(folder, "--add", **known))
    del os.environ["DDPXX_COMMIT"]


def test_the_commit_is_unknown_without_git_or_a_repository(folder):
    path, root = os.environ["PATH"], protocol.ROOT
    protocol.ROOT = folder
    try:
        assert protocol.versions()["ddpxx"] == "unknown"
        os.environ["PATH"] = str(folder)
        assert protocol.versions()["ddpxx"] == "unknown"
    finally:
        os.environ["PATH"], protocol.ROOT = path, root


def published(folder, name, result):
    """The table of a page after `./dev bench tables` with this result."""
    (folder / f"build/bench/{name}.json").write_text(json.dumps(result))
    return tables.TABLE.sub(tables.written, f"<!-- bench: {name} -->\nold\n<!-- bench: end -->")


def test_only_whole_results_with_the_settings_of_the_text_are_published(folder):
    (folder / "build/bench").mkdir(parents=True)
    tables.ROOT = folder
    bench = bench_in(folder)
    bench.compare("a row", runs(1.0), runs(3.0), "ms", 2.0)
    bench.end()
    result = result_in(folder)
    assert "| a row | 1 ms | 3 ms | 3.00x [3.00, 3.00] | 6, 0 | 2x, reached |" in published(folder, "step", result)
    for change in ({"complete": False}, {"settings": {"fused": "false"}}, {"settings": None}):
        assert "\nold\n" in published(folder, "step", result | change), change
    failed = {"settings": {}, "complete": False, "versions": result["versions"], "link": [],
              "cases": {"a": {"planned": 1, "measured": 2}}}
    assert "\nold\n" in published(folder, "scale", failed)
    assert "mean (goal" in published(folder, "scale", failed | {"complete": True, "mean_error": 0.1})
    assert "\nold\n" in published(folder, "gpt2", result)


def test_ranks_get_the_cores_that_this_process_may_use(_):
    cores, protocol.CORES = protocol.CORES, [int(core) for core in protocol.CORES[-1:]] + [protocol.CORES[0]]
    try:
        for rank, core in enumerate(protocol.CORES):
            said = subprocess.run(protocol.pinned(["sh", "-c", "taskset -pc $$; echo \"$@\"", "sh", "a b"]), text=True,
                                  capture_output=True, check=True, env=os.environ | {"LOCAL_RANK": str(rank)}).stdout
            assert said.split()[-3:] == [str(core), "a", "b"], said
    finally:
        protocol.CORES = cores


def test_peers_are_installed_in_a_moved_tree(folder):
    pip = folder / ".deps/pip/bin"
    pip.mkdir(parents=True)
    for name, text in (("python", f'#!/bin/sh\necho "$@" >{folder}/arguments\n'), ("pip", "#!/no/such/python\n")):
        (pip / name).write_text(text)
        (pip / name).chmod(0o755)
    root, protocol.ROOT = protocol.ROOT, folder
    try:
        for _ in range(2):  # the second call finds the peers
            (folder / "peers").mkdir(exist_ok=True)
            protocol.install(["a==1", "b==2"], folder / "peers")
            (pip / "python").unlink(missing_ok=True)
    finally:
        protocol.ROOT = root
    assert (folder / "arguments").read_text() == f"-m pip install --quiet --upgrade --target {folder}/peers a==1 b==2\n"


def test_flags_of_a_build_in_a_folder_with_spaces(folder):
    (folder / "build").mkdir()
    command = 'c++ -DA -DB=\\"b\\" "-I/a clone/include" -isystem "/a clone/torch" -O2 -c main.cpp'
    (folder / "build/compile_commands.json").write_text(json.dumps([{"command": command, "file": "/a clone/bench/programs/x.cpp"}]))
    root, protocol.ROOT = protocol.ROOT, folder
    try:
        assert protocol.compiler_flags("x.cpp", ("-I",)) == ["-I/a clone/include", "-isystem", "/a clone/torch"]
        assert protocol.compiler_flags("x.cpp", ("-D", "-I"))[:2] == ["-DA", '-DB="b"']
    finally:
        protocol.ROOT = root


def main():
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
                test(pathlib.Path(folder).resolve())
            print(name)


main()
