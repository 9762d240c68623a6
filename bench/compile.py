"""Compile time: what ddpxx.hpp costs beside torch/torch.h, and the README's first program, by g++ at -O0.

What is compared is the user + system time of the compiler, without the compiler cache and without precompiled headers.
"With the core" is for a program that links ddpxx::core, which defines DDPXX_CORE.
"""
import dataclasses
import os
import pathlib
import shutil
import tempfile

import protocol

MOST_OF_TORCH = 1.25  # times the cost of torch/torch.h
MOST_SECONDS = 15.0  # of the first program
FIRST_PROGRAM = protocol.ROOT / "tests" / "install" / "project" / "main.cpp"


def flags():
    """The definitions and include folders of the build's own programs."""
    found = protocol.compiler_flags("snapshot_times.cpp", ("-D", "-I"))
    return [word for word in found if word != "-DDDPXX_CORE"]


def cost(source, *more):
    """A run of the compiler; its user + system seconds as the value."""
    run = protocol.run([shutil.which("g++"), "-std=c++20", "-O0", *flags(), *more, "-c", str(source), "-o", os.devnull])
    return dataclasses.replace(run, value=run.cpu)


bench = protocol.Bench(__doc__, fewest=6)
with tempfile.TemporaryDirectory() as folder:

    def including(header):
        file = pathlib.Path(folder) / (header.replace("/", "_") + ".cpp")
        file.write_text(f"#include <{header}>\n")
        return file

    torch, ddpxx = including("torch/torch.h"), including("ddpxx/ddpxx.hpp")
    bench.check_noise(lambda: cost(ddpxx, "-DDDPXX_CORE"))
    for name, more in (("header-only", []), ("with the core", ["-DDDPXX_CORE"])):
        print(name, flush=True)
        bench.compare(f"torch.h, {name}", lambda: cost(ddpxx, *more), lambda: cost(torch), "s", 1 / MOST_OF_TORCH)
        result = bench.compare(f"first program, {name}", lambda: cost(FIRST_PROGRAM, *more), lambda: cost(torch), "s", 0.0)
        seconds = sorted(run.value for run in result.side(0))[len(result.side(0)) // 2]
        print(f"  the first program takes {seconds:.1f} s, goal at most {MOST_SECONDS:g}: "
              f"{'reached' if seconds <= MOST_SECONDS else 'NOT reached'}", flush=True)
bench.end()
