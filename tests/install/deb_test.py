#!/usr/bin/env python3
"""Makes the Debian package of a build, and installs it into an empty folder.

    deb_test.py BUILD_FOLDER VERSION
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

BUILD, VERSION = pathlib.Path(sys.argv[1]), sys.argv[2]


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def main():
    if not shutil.which("dpkg-deb"):
        print("skipped: dpkg-deb is not installed")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        run("cpack", "--config", BUILD / "CPackConfig.cmake", "-B", folder)
        package, = pathlib.Path(folder).glob("*.deb")
        assert package.name == f"libddpxx-dev_{VERSION}_{run('dpkg', '--print-architecture').strip()}.deb", package
        depends = run("dpkg-deb", "--field", package, "Depends")
        assert "libyaml-cpp-dev" in depends and "librange-v3-dev" in depends, depends
        root = pathlib.Path(folder) / "root"
        run("dpkg-deb", "--extract", package, root)
        lines = run("dpkg-deb", "--contents", package).splitlines()
        assert all(" root/root " in line for line in lines), lines
        for name in ("bin/ddpxx", "bin/ddpxx-run", "include/ddpxx/ddpxx.hpp", "include/ddpxx/comm/nccl.hpp",
                     "lib/libddpxx_core.a", "lib/cmake/ddpxx/ddpxxConfig.cmake", "lib/pkgconfig/ddpxx.pc"):
            assert (root / "usr" / name).is_file(), f"{name} is missing:\n" + "\n".join(lines)
        for name in ("ddpxx", "ddpxx-run"):
            assert run(root / "usr/bin" / name, "--version") == f"ddpxx {VERSION}\n"
        config = (root / "usr/lib/cmake/ddpxx/ddpxxConfig.cmake").read_text()
        assert folder not in config, "the package names the folder in which it was made"
    print("the package installs")


main()
