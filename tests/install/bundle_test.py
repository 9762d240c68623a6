#!/usr/bin/env python3
"""Copies programs by `ddpxx bundle`, and runs the copies where LibTorch and the programs are hidden.

    bundle_test.py FOLDER_OF_PROGRAMS FOLDER_OF_LIBTORCH
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

BIN, LIBTORCH = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
TEXT = pathlib.Path(__file__).resolve()
SETTINGS = [f"data.path={TEXT}", "data.block_size=32", "model.n_layer=1", "model.n_head=2", "model.n_embd=16",
            "training.max_steps=2", "generate.tokens=0"]


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, timeout=300,
                          **options)


def bundle(*words):
    return run(BIN / "ddpxx", "bundle", *words)


def hidden(folder, *command):
    """Runs a command in a mount namespace where LibTorch, with the libraries around it, and `folder` are empty."""
    script = 'for place in "$1" "$2"; do mount -t tmpfs none "$place"; done; shift 2; exec "$@"'
    return run("unshare", "--mount", "--propagation", "private", "sh", "-ec", script, "sh", LIBTORCH.parent, folder,
               *command, cwd="/")


def on_small_disk(folder, *words):
    """Runs `ddpxx bundle` with `folder` on a disk of 1 MiB, and returns what that holds afterwards as stdout."""
    script = 'mount -t tmpfs -o size=1m none "$1"; place=$1; shift; code=0; "$@" >&2 || code=$?; ls -A "$place"; exit $code'
    return run("unshare", "--mount", "--propagation", "private", "sh", "-ec", script, "sh", folder, BIN / "ddpxx",
               "bundle", *words)


def check_refusals(folder):
    for words, sentence in (([], "needs programs and a folder"), ([BIN / "mingpt"], "needs programs and a folder"),
                            ([BIN / "mingp", f"to={folder}/a"], "there is no program"),
                            ([TEXT, f"to={folder}/a"], "is not a compiled program"),
                            ([BIN / "mingpt", folder / "other/mingpt", f"to={folder}/a"], "have one name"),
                            ([folder / ("x" * 300), f"to={folder}/a"], "there is no program"),
                            ([BIN / "mingpt", f"too={folder}/a"], 'argument 3: "too=')):
        done = bundle(*words)
        assert done.returncode == 2 and sentence in done.stderr and not (folder / "a").exists(), done
    if (BIN / "cuda_program").exists():  # where LibTorch has CUDA
        done = bundle(BIN / "cuda_program", f"to={folder}/a")
        assert done.returncode == 2 and "is built for GPUs" in done.stderr and not (folder / "a").exists(), done
    (folder / "disk").mkdir()
    for place in (folder / "disk/new", folder / "disk"):
        done = on_small_disk(folder / "disk", BIN / "ddpxx-run", f"to={place}")
        assert done.returncode == 4 and "cannot copy" in done.stderr and done.stdout == "", done
    (folder / "full").mkdir()
    (folder / "full" / "file").touch()
    done = bundle(BIN / "ddpxx-run", f"to={folder}/full")
    assert done.returncode == 2 and "has files already" in done.stderr, done


def check_library_by_path(folder):
    """A program that was linked to a library without a soname: it loads it by its path, which a copy has not."""
    program, library = folder / "by-path", folder / "libown.so"
    shutil.copy(BIN / "ddpxx-run", program)
    found = re.search(r"libstdc\+\+.so.6 => (\S+)", run("ldd", program).stdout)[1]
    shutil.copy(found, library)
    done = run("patchelf", "--replace-needed", "libstdc++.so.6", library, program)
    assert done.returncode == 0, done
    done = bundle(program, f"to={folder}/a")
    assert done.returncode == 2 and f"loads {library} by this path" in done.stderr, done
    assert not (folder / "a").exists()


def check_read_only(folder):
    """A program that its owner may not write to, as package managers install some, bundled without root's privilege."""
    program = folder / "lr=1/read-only"  # an argument with = is a setting, unless it is a path
    program.parent.mkdir()
    shutil.copy(BIN / "ddpxx-run", program)
    program.chmod(0o555)
    done = run("setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override", BIN / "ddpxx", "bundle", program,
               f"to={folder}/of read-only")
    assert done.returncode == 0 and (folder / "of read-only/bin/read-only").exists(), done


def check_other_ldd(folder):
    """An ldd that writes the dynamic linker as a path with an arrow, as on Arch Linux."""
    ldd = folder / "other/ldd"
    ldd.write_text(f"#!/bin/sh\n{shutil.which('ldd')} \"$@\" | sed -E 's,^\\t(/[^ ]*/ld-[^ ]*) ,\\t\\1 => \\1 ,'\n")
    ldd.chmod(0o755)
    lines = run(ldd, BIN / "ddpxx-run").stdout
    assert re.search(r"^\t/\S*/ld-\S* => /\S*/ld-", lines, re.MULTILINE), lines
    done = run(BIN / "ddpxx", "bundle", BIN / "ddpxx-run", f"to={folder}/with another ldd",
               env={**os.environ, "PATH": f"{ldd.parent}:{os.environ['PATH']}"})
    assert done.returncode == 0 and not list((folder / "with another ldd/lib").glob("ld-*")), done


def main():
    for program in ("patchelf", "unshare"):
        if not shutil.which(program):
            print(f"skipped: {program} is not installed")
            sys.exit(77)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        if os.geteuid() != 0 or run("unshare", "--mount", "true").returncode != 0:
            print("skipped: hiding LibTorch needs root and mount namespaces")
            sys.exit(77)
        (folder / "other").mkdir()
        shutil.copy(BIN / "mingpt", folder / "other/mingpt")
        check_refusals(folder)
        check_library_by_path(folder)
        check_read_only(folder)
        check_other_ldd(folder)
        done = bundle(BIN / "mingpt", "--to", folder / "all in one", BIN / "ddpxx-run")
        assert done.returncode == 0 and re.match(r"2 programs and \d+ libraries \(\d+ MB\) in ", done.stdout), done
        libraries = {path.name for path in (folder / "all in one/lib").iterdir()}
        assert {"libtorch_cpu.so", "libc10.so", "libstdc++.so.6"} <= libraries, libraries
        assert not {"libc.so.6", "libm.so.6"} & libraries, libraries
        whole = folder / "all in one/bin"
        plain = hidden(BIN, whole / "ddpxx-run", "--standalone", "--nproc-per-node=2", whole / "mingpt", *SETTINGS)
        assert plain.returncode == 0 and "2 steps" in plain.stdout, plain
        # The program itself does not start there, so that the test above shows something.
        shutil.copy(BIN / "mingpt", folder / "copy")
        broken = hidden(BIN, folder / "copy", *SETTINGS)
        assert broken.returncode == 127 and "libtorch_cpu.so" in broken.stderr, broken
    print("the copies run without LibTorch")


main()
