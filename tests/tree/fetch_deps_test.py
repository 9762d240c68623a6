#!/usr/bin/env python3
"""Checks that tools/fetch_deps.py refuses a folder of another use, before it removes anything or asks a network."""
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def refusal(folder, kind):
    """What fetch_deps writes to stderr. An ordinary call would go on to download packages."""
    done = subprocess.run([sys.executable, ROOT / "tools/fetch_deps.py", folder, kind], capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode == 1, done
    return done.stderr


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        package = folder / "done" / "torch.whl"
        package.parent.mkdir()
        package.write_text("")
        for use, kinds in (("slim, cuda, s3 or full", ["docs", "torch==2.12.0"]), ("docs", ["slim", "torch==2.12.0"]),
                           ("torch==2.12.0", ["full", "docs", "torch==2.13.0"])):
            (folder / "used-for").write_text(use + "\n")
            for kind in kinds:
                assert f"was made for {use}, and {kind} would remove its packages" in refusal(folder, kind)
                assert package.exists() and (folder / "used-for").read_text() == use + "\n"
    print("a folder keeps its use")


main()
