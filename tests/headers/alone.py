#!/usr/bin/env python3
"""Compiles every header by itself, which fails unless the header includes what it needs.

    alone.py BUILD_DIR HEADER...

The compiler's command is that of all.cpp in BUILD_DIR/compile_commands.json. Reading LibTorch's large headers takes most
of the time, so they are precompiled for those headers that include them, directly or through others. A header that has
compiled before is skipped until the header, a header that it includes, or the command changes.

A header that only declares functions (ddpxx/core/inline.hpp) is compiled as for a program that links ddpxx::core, which
takes less time; the header with the definitions is compiled as for a header-only program, and includes the other one.
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import typing

MODULE, BACKEND = "torch/nn/module.h", "torch/csrc/distributed/c10d/Backend.hpp"


class Prefix(typing.NamedTuple):
    """Large headers that are precompiled, on top of those of another prefix, for the headers that include them all."""

    name: str
    headers: tuple
    below: str = ""

    def is_in(self, included):
        """Whether a header that includes `included` includes all that this prefix and those below it precompile."""
        if self.name == "operation":  # the header of each operation includes the headers of this prefix
            return any(each.startswith("ATen/ops/") for each in included)
        return included.issuperset(self.headers)


PREFIXES = [  # the larger ones last: a header takes the last one that it includes
    Prefix("tensor", ("ATen/core/Tensor.h",)),
    Prefix("operation", ("ATen/Context.h", "ATen/DeviceGuard.h", "ATen/TensorUtils.h", "ATen/TracerMode.h",
                         "ATen/core/Generator.h"), below="tensor"),
    Prefix("operators", ("ATen/TensorOperators.h",), below="operation"),
    Prefix("aten", ("ATen/ATen.h",), below="operators"),
    Prefix("backend", (BACKEND,), below="aten"),
    Prefix("module", (MODULE,), below="aten"),
    Prefix("strategy", (MODULE, BACKEND), below="aten"),
]
INCLUDE = re.compile(r"^\s*#\s*include\s*<([^>]+)>", re.MULTILINE)


def compile_command(build):
    """The words of the command that compiles a file of the project, without the names of the file and of the output."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if pathlib.Path(entry["file"]).name == "all.cpp" and "headers_all" in entry.get("output", entry["command"]):
            words = shlex.split(entry["command"])
            if pathlib.Path(words[0]).name == "ccache":
                words = words[1:]
            return words[: words.index("-o")]
    sys.exit("alone.py: compile_commands.json does not tell how headers_all is compiled")


def closure(header, root, known):
    """The header and all headers that it includes, directly or through headers below `root`."""
    if header not in known:
        known[header] = {header}  # ends the recursion where headers include each other
        file = root / header
        if file.is_file():
            for included in INCLUDE.findall(file.read_text()):
                known[header] |= closure(included, root, known)
    return known[header]


def compiled(command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


def main():
    build, *headers = sys.argv[1:]
    build = pathlib.Path(build)
    work = build / "tests" / "headers" / "alone"
    work.mkdir(parents=True, exist_ok=True)
    command = compile_command(build)
    root = pathlib.Path(headers[0].rsplit("/include/ddpxx/", 1)[0]) / "include"

    known, jobs = {}, []
    for header in headers:
        name = str(pathlib.Path(header).relative_to(root))
        inside = closure(name, root, known)
        own = [root / each for each in sorted(inside) if (root / each).is_file()]
        facts = hashlib.sha256(" ".join(command).encode())
        for each in own:
            facts.update(each.read_bytes())
        stamp = work / name.replace("/", "-")
        if not stamp.is_file() or stamp.read_text() != facts.hexdigest():
            prefix = next((each.name for each in reversed(PREFIXES) if each.is_in(inside)), "")
            jobs.append((name, prefix, stamp, facts.hexdigest()))

    # Clang instantiates the templates of the precompiled headers once, while it precompiles them. Its precompiled headers
    # build on each other. g++ reads those below as text. Clang 16 crashes with "strategy" on top of "module".
    instantiated = ["-fpch-instantiate-templates"] if "clang" in command[0] else []

    def after(prefix):
        return ["-include", str(work / f"{prefix}.h")] if prefix else []

    wanted = {job[1] for job in jobs}
    for prefix in reversed(PREFIXES):
        if prefix.name in wanted:
            wanted.add(prefix.below)
    for prefix in PREFIXES:
        if prefix.name in wanted:
            file = work / f"{prefix.name}.h"
            file.write_text("".join(f"#include <{each}>\n" for each in prefix.headers))
            result = compiled([*command, *after(prefix.below), "-x", "c++-header", *instantiated, file, "-o", f"{file}.gch"])
            if result.returncode != 0:
                sys.exit(result.stdout)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        def compile_alone(job):
            name, prefix, stamp, facts = job
            source = stamp.with_suffix(".cpp")
            source.write_text(f"#include <{name}>\n")
            core = [] if name.endswith("_inl.hpp") else ["-DDDPXX_CORE"]
            result = compiled([*command, *core, *after(prefix), "-fsyntax-only", str(source)])
            source.unlink()
            if result.returncode == 0:
                stamp.write_text(facts)
            return name, result

        failed = [(name, result) for name, result in pool.map(compile_alone, jobs) if result.returncode != 0]
    for file in work.glob("*.gch"):
        file.unlink()
    for name, result in failed:
        print(f"{name} does not compile alone:\n{result.stdout}")
    print(f"{len(headers)} headers, {len(jobs)} compiled, {len(failed)} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
