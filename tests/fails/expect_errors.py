#!/usr/bin/env python3
"""Compiles a source that must not compile, as the build would, and looks for sentences in what the compiler says.

    expect_errors.py BUILD_DIRECTORY COMPILER SOURCE SENTENCES_FILE [OTHER_COMPILER]

The other compiler, if given, takes the build's place, without its precompiled header. The file holds a line `NAME: SENTENCE` for each case; a case that the compiler does not speak of is named.
"""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys


def command_of(build, compiler, source, other):
    """The build's own command for the source, without the launcher and without an object file."""
    entries = json.loads((pathlib.Path(build) / "compile_commands.json").read_text())
    words = next(shlex.split(entry["command"]) for entry in entries if entry["file"] == source)
    words = words[words.index(compiler):]
    output = words.index("-o")
    words = [*words[:output], *words[output + 2:], "-fsyntax-only"]
    if other == compiler:
        return words if "clang" not in compiler else [*words, "-ferror-limit=0"]
    return [other, *(word for before, word in zip(words, words[1:]) if "-Xclang" not in (before, word))]


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
