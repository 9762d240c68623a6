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

LARGE = ["torch/nn/module.h", "torch/csrc/distributed/c10d/Backend.hpp"]  # both include all headers of the lists below
TENSOR = "ATen/core/Tensor.h"
OPERATION = "ATen/ops/"  # the header of each operation includes these large headers:
OF_OPERATIONS = ["ATen/Context.h", "ATen/DeviceGuard.h", "ATen/TensorUtils.h", "ATen/TracerMode.h",
                 "ATen/core/Generator.h", TENSOR]
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
            large = [each for each in LARGE if each in inside]
            if not large and any(each.startswith(OPERATION) for each in inside):
                large = OF_OPERATIONS
            if not large and TENSOR in inside:
                large = [TENSOR]
            jobs.append((name, tuple(large), stamp, facts.hexdigest()))

    # Clang instantiates the templates of the precompiled headers once, while it precompiles them.
    instantiated = ["-fpch-instantiate-templates"] if "clang" in command[0] else []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        prefixes = {}
        for large in {job[1] for job in jobs} - {()}:
            prefix = work / ("-".join(pathlib.Path(each).stem for each in large) + ".h")
            prefix.write_text("".join(f"#include <{each}>\n" for each in large))
            prefixes[large] = prefix
        for result in pool.map(lambda p: compiled([*command, "-x", "c++-header", *instantiated, p, "-o", f"{p}.gch"]),
                               prefixes.values()):
            if result.returncode != 0:
                sys.exit(result.stdout)

        def compile_alone(job):
            name, large, stamp, facts = job
            source = stamp.with_suffix(".cpp")
            source.write_text(f"#include <{name}>\n")
            prefix = ["-include", str(prefixes[large])] if large else []
            core = [] if name.endswith("_inl.hpp") else ["-DDDPXX_CORE"]
            result = compiled([*command, *core, *prefix, "-fsyntax-only", str(source)])
            source.unlink()
            if result.returncode == 0:
                stamp.write_text(facts)
            return name, result

        failed = [(name, result) for name, result in pool.map(compile_alone, jobs) if result.returncode != 0]
    for prefix in prefixes.values():
        pathlib.Path(f"{prefix}.gch").unlink()
    for name, result in failed:
        print(f"{name} does not compile alone:\n{result.stdout}")
    print(f"{len(headers)} headers, {len(jobs)} compiled, {len(failed)} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
