"""Runs scripts in copies of this process, so that only the first one waits until torch is imported.

    python3 python_server.py

Each line of standard input is a JSON list: a script and its arguments. Each is answered by a line of JSON with the exit
code of the script and what it has printed. What a script imports at its top is imported here, before the copy is made; only
imports run here, because a copy of a process with threads may hang.
"""
import ast
import contextlib
import importlib
import json
import os
import runpy
import sys


def imports(script):
    """The names of the modules that a script imports at its top."""
    with open(script, encoding="utf-8") as file:
        for node in ast.parse(file.read()).body:
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                yield node.module


def prepare(script):
    names = set(imports(script))
    if "torch.distributed" in names:
        names |= {"torch._dynamo", "torch.distributed.fsdp"}  # slow to import; DDP and FSDP ask for them when they start
    for name in sorted(names):
        with contextlib.suppress(ImportError):  # the script knows better where to find it
            importlib.import_module(name)


def main():
    for line in sys.stdin:
        words = json.loads(line)
        with contextlib.suppress(OSError, SyntaxError):  # the script itself will fail, and show it
            prepare(words[0])
        reader, writer = os.pipe()
        if (pid := os.fork()) == 0:
            os.dup2(writer, 1)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.closerange(3, writer + 1)
            return words
        os.close(writer)
        with open(reader, encoding="utf-8") as file:
            output = file.read()
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(json.dumps({"code": code, "output": output}), flush=True)
    return None


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(__doc__)
    if (script_and_arguments := main()) is not None:
        sys.argv = script_and_arguments
        sys.path[0] = os.path.dirname(sys.argv[0])
        runpy.run_path(sys.argv[0], run_name="__main__")
