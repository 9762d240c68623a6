#!/usr/bin/env python3
"""Compiles a source that must not compile with the build's command, and looks for sentences in the compiler's errors.

    expect_errors.py BUILD_DIRECTORY COMPILER SOURCE SENTENCES_FILE [OTHER_COMPILER]

If OTHER_COMPILER is given, it is used instead of COMPILER, without the precompiled header, and as for a program that links
ddpxx::core: the functions that are not templates are not compiled, which takes half of the time. SENTENCES_FILE has a line
`NAME: SENTENCE` for each case; the script fails and names each case whose sentence is missing.
"""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys


def command_of(build, compiler, source, other):
    """The command by which the build compiles the source, without the compiler launcher and the object file."""
    entries = json.loads((pathlib.Path(build) / "compile_commands.json").read_text())
    words = next(shlex.split(entry["command"]) for entry in entries if entry["file"] == source)
    words = words[words.index(compiler):]
    output = words.index("-o")
    words = [*words[:output], *words[output + 2:], "-fsyntax-only"]
    if other == compiler:
        return words if "clang" not in compiler else [*words, "-ferror-limit=0"]
    return [other, "-DDDPXX_CORE", *(word for before, word in zip(words, words[1:])
                                     if "-Xclang" not in (before, word) and word != "-DDDPXX_FAILPOINTS")]


def main():
    build, compiler, source, sentences, *other = sys.argv[1:]
    cases = [line.split(": ", 1) for line in pathlib.Path(sentences).read_text().splitlines()]
    compiled = subprocess.run(command_of(build, compiler, source, (*other, compiler)[0]), cwd=build, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, "LC_ALL": "C"})
    errors = [line for line in compiled.stderr.splitlines() if re.search(r"\b(error|note): ", line)]
    if compiled.returncode == 0:
        sys.exit(f"{source} compiles, but must not")
    silent = [f"{name}: no error says: {sentence}" for name, sentence in cases
              if not any(sentence in line for line in errors)]
    if silent or not cases:
        sys.exit("\n".join([compiled.stderr, *silent]))


if __name__ == "__main__":
    main()
