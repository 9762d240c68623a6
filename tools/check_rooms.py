#!/usr/bin/env python3
"""Checks the #include lines and the namespaces of the headers against docs/architecture.md.

    tools/check_rooms.py [ROOT]    ROOT is the source tree; by default that of this script

Prints `file:line: rule` for each line that breaks a rule, and exits with 1 if there is one.
"""

import pathlib
import re
import sys

# The libraries that the table in docs/architecture.md names, each with the pattern of the headers that it allows.
LIBRARIES = {
    "ATen": r"ATen/(?!ATen\.h)|c10/",
    "Boost.PFR": r"boost/pfr",
    "MPI": r"mpi\.h",
    "PCRE2": r"pcre2\.h",
    "autograd": r"torch/csrc/autograd/",
    "c10d": r"torch/csrc/distributed/c10d/",
    "caffe2": r"caffe2/serialize/",
    "nlohmann-json": r"nlohmann/",
    "parallel loops": r"ATen/(CPUGeneratorImpl|Parallel)\.h",
    "profiler": r"torch/csrc/(profiler/|autograd/profiler_kineto\.h)",
    "range-v3": r"range/v3/",
    "tensors": r"ATen/(core/Tensor|TensorOperators)\.h|ATen/ops/\w+\.h|c10/",
    "torch::nn::Module": r"torch/nn/(?!module_holder)\w+(/\w+)*\.h",
    "torch::optim": r"torch/optim/\w+\.h",
    "yaml-cpp": r"yaml-cpp/",
}
# The training loop may include only the doors of these rooms, not a policy that a user chooses. One header includes the
# default policies.
DOORS_ONLY = {"train": {"parallel", "precision"}}
NAMES_POLICIES = {"train/default_types.hpp"}
# These headers include all rooms for the user.
EXEMPT = {"ddpxx.hpp", "testing.hpp", "version.hpp"}
A_LIBRARY = re.compile(r"(torch|ATen|c10|caffe2|boost|yaml-cpp|range/|nlohmann|gtest|gmock|gloo|nccl\.h|cuda|mpi\.h|pcre2\.h)")
ROW = re.compile(r"\| `(\w+)/` \|[^|]*\|([^|]*)\|$")
# The sentence of the page that lists the rooms whose sub-rooms keep their names in ddpxx::detail.
DETAIL_ONLY = re.compile(r"In the\s+sub-rooms\s+of\s+(.*?)\s+all\s+names\s+are\s+in\s+`ddpxx::detail`", re.DOTALL)
OPENS_NAMESPACE = re.compile(r"\s*(?:inline\s+)?namespace\s+ddpxx\b(?!\s*::\s*detail\b)[^=;]*\{")
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')


def read_table(page):
    """For each room: the rooms and the patterns of the libraries whose headers it may include. Its own headers and the
    standard library are always allowed."""
    rows = [match.groups() for line in page.read_text().splitlines() if (match := ROW.match(line))]
    rooms = {}
    for room, cell in rows:
        names = [name.strip() for name in cell.split(",") if name.strip()]
        unknown = [name for name in names if name not in LIBRARIES and name not in dict(rows)]
        if unknown:
            sys.exit(f"{page}: {room}/ names {', '.join(unknown)}, which is neither a room nor a library of {__file__}")
        rooms[room] = ([name for name in names if name not in LIBRARIES],
                       [LIBRARIES[name] for name in names if name in LIBRARIES])
    if not rooms:
        sys.exit(f"{page}: no table of rooms found")
    return rooms


def read_detail_only(page):
    """Returns the rooms whose sub-rooms keep their names in ddpxx::detail."""
    sentence = DETAIL_ONLY.search(page.read_text())
    if sentence is None:
        sys.exit(f"{page}: no sentence `In the sub-rooms of ... all names are in ddpxx::detail` found")
    return set(re.findall(r"`(\w+)/`", sentence[1]))


def broken_rule(rooms, header, form, target):
    """Returns the sentence of the rule that including `target` from `header`, a path below ddpxx/, breaks, or None."""
    room = header.parts[0]
    if target == "torch/torch.h":
        return "no header includes torch/torch.h: name the pieces"
    if form == '"':
        return "headers include each other as <ddpxx/room/noun.hpp>"
    allowed, libraries = rooms[room]
    if target.startswith("ddpxx/"):
        other, *rest = target.split("/")[1:]
        if other not in rooms:
            return f"{target} gathers rooms, a room cannot include it" if other in EXEMPT - {"version.hpp"} else None
        if other == room:
            return None
        if other not in allowed:
            return f"{room}/ may include {', '.join(allowed) or 'no other room'}, not {other}/"
        if other in DOORS_ONLY.get(room, ()) and str(header) not in NAMES_POLICIES and target != f"ddpxx/{other}/concept.hpp":
            return f"{room}/ sees {other}/ through its door, {other}/concept.hpp"
        if len(rest) > 1:
            return f"{other}/{rest[0]}/ is a sub-room: other rooms include only headers that lie in {other}/ itself"
        return None
    if A_LIBRARY.match(target) and not any(re.match(library, target) for library in libraries):
        return f"{room}/ may not include {target}"
    return None


def check(root):
    problems = []
    page = root / "docs" / "architecture.md"
    rooms, detail_only = read_table(page), read_detail_only(page)
    base = root / "include" / "ddpxx"
    for header in sorted(base.rglob("*.hpp")):
        path = header.relative_to(base)
        if len(path.parts) == 1:
            if path.name not in EXEMPT:
                problems.append(f"{header.relative_to(root)}:1: a header lies in a room, or is named in {__file__}")
            continue
        if path.parts[0] not in rooms:
            problems.append(f"{header.relative_to(root)}:1: there is no room {path.parts[0]}/ in the table")
            continue
        for number, line in enumerate(header.read_text().splitlines(), 1):
            if (found := INCLUDE.match(line)) and (rule := broken_rule(rooms, path, *found.groups())):
                problems.append(f"{header.relative_to(root)}:{number}: {rule}")
            if len(path.parts) > 2 and path.parts[0] in detail_only and OPENS_NAMESPACE.match(line):
                problems.append(f"{header.relative_to(root)}:{number}: {'/'.join(path.parts[:2])}/ is a sub-room: its names "
                                "are in ddpxx::detail")
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
