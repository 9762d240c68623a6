#!/usr/bin/env python3
"""Checks that a program built for CPUs loads libtorch_cpu, and only those two small CUDA libraries that it needs.

    loads_test.py PROGRAM...
"""

import re
import subprocess
import sys

ALLOWED = {"libcudart", "libcupti"}
CUDA = re.compile(r"(libtorch_cuda\w*|libc10_cuda|libcu[a-z]+\w*|libnccl|libnv\w+)\b")

for program in sys.argv[1:]:
    listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    names = [line.split()[0] for line in listing.splitlines()]
    assert any(name.startswith("libtorch_cpu.so") for name in names), f"{program} does not load LibTorch:\n{listing}"
    assert "not found" not in listing, f"{program}:\n{listing}"
    cuda = {match[1] for name in names if (match := CUDA.match(name))} - ALLOWED
    assert not cuda, f"{program} loads {', '.join(sorted(cuda))}"
