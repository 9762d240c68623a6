#!/usr/bin/env python3
"""Checks that a test kills a process at every failpoint of the library, and that every call that changes or opens files
is beside a failpoint, so that each new step that can be interrupted gets a test that interrupts it."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).parents[2]
POINT = re.compile(r'\bfailpoint(?:_fails)?\(\s*"([^"]+)"')
CALL = re.compile(r"(?:(?:(?<!\w)|\bstd)::(?:open|unlink|rmdir|rename|link|mkdir|ftruncate|pwrite)|\bclient_?\.send"
                  r"|\bfilesystem::(?:remove|remove_all|rename|create_director\w+))\(")
NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)
NO_FUNCTION = re.compile(r"\b(?:namespace|class|struct|union|enum)\b(?![^{]*\))|\bextern\s*$|=\s*$")

# Calls that need no failpoint, each with the reason. A key names a header, whose definitions may lie in its _inl.hpp, or
# a function in it.
ALLOWED = {
    "train/run_folder.hpp make_exclusively": "it makes an empty folder, and the next start makes another one",
    "launch/": "logs and tables of a launcher, which no run reads",
    "observe/row_file.hpp": "rows; the next start removes the incomplete row that a kill leaves",
    "observe/tensorboard.hpp": "a folder, which the next start makes if it is missing",
    "train/step_profiler.hpp": "a folder, and a profile that no run reads and a later one replaces",
    "core/file.hpp ~TemporaryFile": "it leaves a file with a temporary name, which a later start removes",
    "core/file.hpp unlink_if_left": "it leaves a file with a temporary name, which a later start removes",
    "core/file.hpp open_to_append": "a log, a lock or the name of an owner, on which no snapshot depends",
    "comm/job_store_server.hpp handle": "it sends an answer to a client, and nothing of a run is kept there",
    "comm/shared_segment.hpp": "memory without a name, which the system frees with the last process that has it",
    "comm/store_requests.hpp reply": "it sends an answer to a client, and nothing of a run is kept there",
    "storage/folder_lock.hpp lock_folder": "an empty file, whose lock ends with the process",
    "storage/folder_lock.hpp remove_shared_owner": "an owner's name, which the same start writes again",
    "storage/s3/objects.hpp put": "S3Storage::write, its caller, has failpoints",
    "storage/s3/objects.hpp put_new": "a request that arrives or not; the tests with a proxy cover both",
    "storage/s3/objects.hpp remove": "S3Storage::remove has failpoints; the object of a probe is in no list",
    "storage/s3/objects.hpp abort_upload": "the next start aborts the uploads that are left",
    "storage/s3/objects.hpp get": "reads",
    "storage/s3/objects.hpp head": "reads",
    "storage/s3/objects.hpp each_page": "reads",
    "storage/folder.hpp prepare": "a probe, which has a temporary name",
}


def functions(text):
    """The name and the text of each function."""
    code = NO_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)
    around, begin, head = [], 0, 0
    for at, letter in enumerate(code):
        if letter in ";{}" and all(kind == "room" for kind in around):
            before, head = code[head:at], at + 1
            if letter == "{":
                begin = at - len(before)
                around.append("room" if NO_FUNCTION.search(before.strip()) else "function")
            elif letter == "}" and around:
                around.pop()
        elif letter == "{":
            around.append("block")
        elif letter == "}" and around.pop() == "function":
            head = at + 1
            yield re.findall(r"(~?\w+)\s*\(", code[begin:at])[0:1] or [""], code[begin:at], text[begin:at]


def is_allowed(file, name):
    return any(file == place or file.startswith(place) and place.endswith("/") or place == f"{file} {name}"
               for place in ALLOWED)


headers = sorted((ROOT / "include/ddpxx").rglob("*.hpp"))
tests = "".join(file.read_text() for file in (ROOT / "tests").rglob("*_test.cpp"))
points = {point for file in headers for point in POINT.findall(file.read_text())}
untested = sorted(point for point in points if f'"{point}:kill' not in tests)
for point in untested:
    print(f"no test kills at {point}")

calls, bare = 0, []
for header in headers:
    file = header.relative_to(ROOT / "include/ddpxx").as_posix().replace("_inl.hpp", ".hpp")
    for (name, *_), code, text in functions(header.read_text()):
        found = CALL.findall(code)
        calls += len(found)
        if found and not POINT.search(text) and not is_allowed(file, name):
            bare.append(f"{file}: {name} calls {found[0]}...) and has no failpoint: add one, or a reason to ALLOWED")
for line in bare:
    print(line)
print(f"{len(points)} failpoints, {len(untested)} without a test; {calls} calls, {len(bare)} functions without one")
sys.exit(1 if untested or bare or not points or not calls else 0)
