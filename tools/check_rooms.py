#!/usr/bin/env python3
"""Holds the #include lines of the headers against the table of rooms in docs/architecture.md.

    tools/check_rooms.py [ROOT]    ROOT is the source tree; without it, the one that this script lies in

Prints `file:line: rule` for each include that breaks a rule, and exits 1 when there is one.
"""

import pathlib
import re
import sys

C10D = r"torch/csrc/distributed/c10d/"
TENSOR = r"ATen/(core/Tensor|TensorOperators)\.h|ATen/ops/\w+\.h|c10/"
ATEN = r"ATen/(?!ATen\.h)|c10/"
AUTOGRAD = r"torch/csrc/autograd/"
MODULE = r"torch/nn/(?!module_holder)\w+(/\w+)*\.h"

# Room: the rooms and the libraries whose headers it may include. Its own room and the standard library go without
# saying; what a room may see, its header may include directly.
ROOMS = {
    "core": ([], []),
    "config": (["core"], [r"boost/pfr", r"yaml-cpp/", r"nlohmann/"]),
    "comm": (["core"], [C10D, ATEN]),
    "data": (["core", "storage"], [r"range/v3/", TENSOR, r"ATen/(CPUGeneratorImpl|Parallel)\.h"]),
    "flat": (["core"], [ATEN, AUTOGRAD, MODULE]),
    "nn": (["core", "flat"], [ATEN, AUTOGRAD, MODULE]),
    "optim": (["core", "flat"], [TENSOR]),
    "precision": (["core", "flat"], [ATEN]),
    "parallel": (["core", "comm", "flat"], [ATEN, AUTOGRAD, MODULE]),
    "storage": (["core"], []),
    "snapshot": (["core", "storage", "flat", "comm"],
                 [ATEN, MODULE, r"torch/optim/\w+\.h", r"nlohmann/", r"caffe2/serialize/"]),
    "observe": (["core"], [r"nlohmann/", r"torch/csrc/profiler/"]),
    "train": (["core", "config", "comm", "flat", "data", "nn", "optim", "precision", "parallel", "storage", "snapshot", "observe"],
              [ATEN, MODULE]),
    "launch": (["core", "comm"], []),
}
# Of the policies the loop sees the doors, never one that a user chose.
DOORS_ONLY = {"train": {"parallel", "precision"}}
# These gather rooms for the user.
EXEMPT = {"ddpxx.hpp", "testing.hpp", "version.hpp"}
LIBRARIES = re.compile(r"(torch|ATen|c10|caffe2|boost|yaml-cpp|range|nlohmann|gtest|gmock|gloo|nccl\.h|cuda)")
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')


def broken_rule(room, form, target):
    """The sentence of the rule that including `target` from `room` breaks; none if there is none."""
    if target == "torch/torch.h":
        return "no header includes torch/torch.h: name the pieces"
    if form == '"':
        return "headers include each other as <ddpxx/room/noun.hpp>"
    rooms, libraries = ROOMS[room]
    if target.startswith("ddpxx/"):
        other = target.split("/")[1]
        if other not in ROOMS:
            return f"{target} gathers rooms, a room cannot include it" if other in EXEMPT - {"version.hpp"} else None
        if other == room:
            return None
        if other not in rooms:
            return f"{room}/ may include {', '.join(rooms) or 'no other room'}, not {other}/"
        if other in DOORS_ONLY.get(room, ()) and target != f"ddpxx/{other}/concept.hpp":
            return f"{room}/ sees {other}/ through its door, {other}/concept.hpp"
        return None
    if LIBRARIES.match(target) and not any(re.match(library, target) for library in libraries):
        return f"{room}/ may not include {target}"
    return None


def check(root):
    problems = []
    base = root / "include" / "ddpxx"
    for header in sorted(base.rglob("*.hpp")):
        path = header.relative_to(base)
        if len(path.parts) == 1:
            if path.name not in EXEMPT:
                problems.append(f"{header.relative_to(root)}:1: a header lies in a room, or is named in {__file__}")
            continue
        if path.parts[0] not in ROOMS:
            problems.append(f"{header.relative_to(root)}:1: there is no room {path.parts[0]}/ in the table")
            continue
        for number, line in enumerate(header.read_text().splitlines(), 1):
            if (found := INCLUDE.match(line)) and (rule := broken_rule(path.parts[0], *found.groups())):
                problems.append(f"{header.relative_to(root)}:{number}: {rule}")
    return problems


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    if not (root / "include" / "ddpxx").is_dir():
        sys.exit(f"{root} has no include/ddpxx")
    problems = check(root)
    print("\n".join(problems) if problems else "every header keeps to its rooms")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
