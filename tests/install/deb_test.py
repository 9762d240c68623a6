#!/usr/bin/env python3
"""Makes the Debian package of a build, and installs it into an empty folder.

    deb_test.py BUILD_FOLDER VERSION FOLDER_OF_LIBTORCH
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

BUILD, VERSION, LIBTORCH = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3]).resolve()


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def check_with_moved_libtorch(program, folder):
    """Runs the program where LibTorch, with the libraries around it, lies in another folder than the package says.
    Returns whether this user may do that."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], check=False).returncode != 0:
        return False
    folder.mkdir()
    move = 'mount --bind "$1" "$2"; mount -t tmpfs none "$1"; shift 2; exec "$@"'
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", move, "sh", LIBTORCH.parent, folder]
    plain = subprocess.run([*command, program, "--version"], capture_output=True, text=True, check=False, cwd="/")
    assert plain.returncode == 127 and "libtorch_cpu.so" in plain.stderr, plain
    named = f"LD_LIBRARY_PATH={folder / LIBTORCH.name / 'lib'}"  # as docs/packaging.md says
    assert run(*command, "env", named, program, "--version") == f"ddpxx {VERSION}\n"
    return True


def main():
    if not shutil.which("dpkg-deb"):
        print("skipped: dpkg-deb is not installed")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        run("cpack", "--config", BUILD / "CPackConfig.cmake", "-B", folder)
        package, = pathlib.Path(folder).glob("*.deb")
        assert package.name == f"libddpxx-dev_{VERSION}_{run('dpkg', '--print-architecture').strip()}.deb", package
        depends = run("dpkg-deb", "--field", package, "Depends")
        for name in ("libyaml-cpp-dev (>= ", "libyaml-cpp-dev (<< ", "librange-v3-dev", "libpcre2-dev (>= 10.40)"):
            assert name in depends, depends
        root = pathlib.Path(folder) / "root"
        run("dpkg-deb", "--extract", package, root)
        lines = run("dpkg-deb", "--contents", package).splitlines()
        assert all(" root/root " in line for line in lines), lines
        for name in ("bin/ddpxx", "bin/ddpxx-run", "include/ddpxx/ddpxx.hpp", "include/ddpxx/comm/nccl.hpp",
                     "lib/libddpxx_core.a", "lib/cmake/ddpxx/ddpxxConfig.cmake", "lib/pkgconfig/ddpxx.pc"):
            assert (root / "usr" / name).is_file(), f"{name} is missing:\n" + "\n".join(lines)
        for name in ("ddpxx", "ddpxx-run"):
            assert run(root / "usr/bin" / name, "--version") == f"ddpxx {VERSION}\n"
        is_checked_in_full = check_with_moved_libtorch(root / "usr/bin/ddpxx", pathlib.Path(folder) / "moved")
        config = (root / "usr/lib/cmake/ddpxx/ddpxxConfig.cmake").read_text()
        assert folder not in config, "the package names the folder in which it was made"
    print("the package installs")
    if not is_checked_in_full:
        print("skipped: the program with a LibTorch elsewhere needs root and mount namespaces")
        sys.exit(77)


main()
