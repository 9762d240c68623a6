#!/usr/bin/env python3
"""Every failpoint of the library is named in a test: a new step that can be interrupted needs a test that does it."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).parents[2]
POINT = re.compile(r'\bfailpoint(?:_fails)?\(\s*"([^"]+)"')


def texts(folder, pattern):
    return [file.read_text() for file in (ROOT / folder).rglob(pattern)]


points = {point for text in texts("include", "*.hpp") for point in POINT.findall(text)}
tests = "".join(texts("tests", "*_test.cpp"))
untested = sorted(point for point in points if not re.search(rf'"{re.escape(point)}[":@]', tests))
for point in untested:
    print(f"no test interrupts {point}")
print(f"{len(points)} failpoints, {len(untested)} without a test")
sys.exit(1 if untested or not points else 0)
