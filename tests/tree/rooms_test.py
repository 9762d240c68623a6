#!/usr/bin/env python3
"""Checks that tools/check_rooms.py finds each breach in a tree that is wrong on purpose, and nothing else."""

import pathlib
import subprocess
import sys
import tempfile

CHECK = pathlib.Path(__file__).parents[2] / "tools" / "check_rooms.py"
WRONG = {
    "core/up.hpp": ("#include <ddpxx/comm/group.hpp>", "core/ may include no other room, not comm/"),
    "data/sideways.hpp": ("#include <ddpxx/nn/gpt.hpp>", "data/ may include core, storage, not nn/"),
    "core/tensor.hpp": ("#include <ATen/core/Tensor.h>", "core/ may not include ATen/core/Tensor.h"),
    "optim/json.hpp": ("#include <nlohmann/json.hpp>", "optim/ may not include nlohmann/json.hpp"),
    "parallel/network.hpp": ("#include <torch/csrc/distributed/c10d/Work.hpp>", "parallel/ may not include torch/csrc"),
    "launch/torch.hpp": ("#include <torch/nn/module.h>", "launch/ may not include torch/nn/module.h"),
    "nn/all.hpp": ("#include <torch/torch.h>", "no header includes torch/torch.h"),
    "flat/every_op.hpp": ("#include <ATen/ATen.h>", "flat/ may not include ATen/ATen.h"),
    "train/policy.hpp": ("  #  include <ddpxx/parallel/ddp.hpp>", "through its door, parallel/concept.hpp"),
    "comm/gather.hpp": ("#include <ddpxx/testing.hpp>", "a room cannot include it"),
    "nn/quoted.hpp": ('#include "gpt.hpp"', "as <ddpxx/room/noun.hpp>"),
    "snapshot/inside.hpp": ("#include <ddpxx/storage/s3/client.hpp>", "storage/s3/ is a sub-room"),
    "config/text/open.hpp": ("namespace ddpxx {", "config/text/ is a sub-room: its names are in ddpxx::detail"),
    "config/show/nested.hpp": ("namespace ddpxx::shown {", "its names are in ddpxx::detail"),
    "storage/s3/open.hpp": ("namespace ddpxx {", "storage/s3/ is a sub-room: its names are in ddpxx::detail"),
    "attic/box.hpp": ("", "there is no room attic/"),
    "loose.hpp": ("", "a header lies in a room"),
}
RIGHT = {
    "core/fine.hpp": "#include <vector>\n#include <sys/types.h>",
    "comm/fine.hpp": "#include <torch/csrc/distributed/c10d/Work.hpp>\n#include <ddpxx/core/fine.hpp>",
    "train/fine.hpp": "#include <ddpxx/parallel/concept.hpp>\n// #include <torch/torch.h>",
    "storage/s3/fine.hpp": "#include <ddpxx/storage/s3/client.hpp>\n#include <ddpxx/core/fine.hpp>",
    "config/text/fine.hpp": "namespace ddpxx::detail {\n}  // namespace ddpxx::detail",
    "config/fine.hpp": "namespace ddpxx {\n}",
    "parallel/hooks/fine.hpp": "namespace ddpxx {\n}",
    "testing.hpp": "#include <ddpxx/comm/fine.hpp>\n#include <torch/torch_version.h>",
}


def check(headers):
    with tempfile.TemporaryDirectory() as root:
        for name, text in headers.items():
            path = pathlib.Path(root) / "include" / "ddpxx" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"#pragma once\n{text}\n")
        page = pathlib.Path(root) / "docs" / "architecture.md"
        page.parent.mkdir()
        page.write_bytes((CHECK.parent.parent / "docs" / "architecture.md").read_bytes())
        return subprocess.run([sys.executable, CHECK, root], capture_output=True, text=True)


right = check(RIGHT)
assert right.returncode == 0, right.stdout

wrong = check(RIGHT | {name: text for name, (text, _) in WRONG.items()})
assert wrong.returncode == 1, wrong
for name, (text, rule) in WRONG.items():
    line = 2 if text else 1
    assert any(f"{name}:{line}: " in said and rule in said for said in wrong.stdout.splitlines()), (name, wrong.stdout)
assert len(wrong.stdout.splitlines()) == len(WRONG), wrong.stdout
