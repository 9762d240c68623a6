#!/usr/bin/env python3
"""./dev takes the paths of its arguments from the folder in which it is called, refuses arguments that it does not know before
it installs or builds anything, and says why tests are skipped; the preset dev links in a clone whose path has spaces, and the
commands of tests quote their paths.

    dev_test.py CMAKE
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

CMAKE = sys.argv[1]
ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = """#!/bin/sh
echo "in $(pwd): $*"
"""
CTEST = """#!/bin/sh
mkdir -p build/dev/Testing/Temporary
cat >build/dev/Testing/Temporary/LastTest.log <<end
1/2 Testing: core_test
Running main() from ./googletest/src/gtest_main.cc
/tree/tests/core/heap_test.cpp:87: Skipped
the kernel has no huge pages
/tree/tests/core/heap_test.cpp:87: Skipped
the kernel has no huge pages
[  SKIPPED ] 2 tests.
2/2 Testing: install.deb
skipped: dpkg-deb is not installed
end
exit $CODE
"""
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(clone LANGUAGES CXX)
add_executable(program main.cpp)
"""


def program(path, text=PROGRAM):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def run(*command, cwd, code=0, **variables):
    done = subprocess.run(command, cwd=cwd, env=os.environ | variables, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def tree_with_dev(folder):
    """A tree in which ./dev fetches and builds nothing."""
    tree = folder / "tree"
    (tree / "tools").mkdir(parents=True)
    shutil.copy(ROOT / "dev", tree)
    (tree / "tools/fetch_deps.py").write_text(f"open({str(folder / 'began')!r}, 'w').close()")
    program(folder / "path/cmake", "#!/bin/sh\n")
    return tree


def test_skipped_tests_are_shown_with_their_reasons(folder):
    tree = tree_with_dev(folder)
    program(folder / "path/ctest", CTEST)
    program(folder / "path/apt-get", "#!/bin/sh\n")  # installs nothing
    program(folder / "path/id", "#!/bin/sh\necho 0\n")
    path = f"{folder}/path:{os.environ['PATH']}"
    for code in (0, 8):
        lines = run("./dev", "test", cwd=tree, code=code, PATH=path, CODE=str(code)).splitlines()
        assert [line for line in lines if line.startswith("skipped: ")] == [
            "skipped: /tree/tests/core/heap_test.cpp:87: the kernel has no huge pages",
            "skipped: install.deb: dpkg-deb is not installed"], lines


def test_paths_begin_where_dev_is_called(folder):
    tree, elsewhere = tree_with_dev(folder), folder / "elsewhere"
    elsewhere.mkdir()
    for name in ("ddpxx-run", "mingpt"):
        program(tree / "build/bin" / name)
    (tree / "build/gpu-check").mkdir()
    (tree / "build/gpu-check/gpu_check.py").write_text("import sys; print(*sys.argv[1:-1], 'report in', sys.argv[-1])")
    path = f"{folder}/path:{os.environ['PATH']}"
    for caller, dev, named in ((elsewhere, "../tree/dev", f"{tree}/"), (tree, "./dev", "")):
        said = run(dev, "train", "data.path=book.txt", cwd=caller, PATH=path)
        assert f"in {caller}: --standalone --nproc-per-node 2 {tree}/build/bin/mingpt " in said, said
        assert " data.path=book.txt" in said, said
        assert f"to sample:    {named}build/bin/mingpt generate --from runs/train" in said, said
        said = run(dev, "gpu-check", "--packed", "out", cwd=caller, PATH=path)
        assert f"report in {caller}/out" in said, said
    subprocess.run([sys.executable, "-m", "tarfile", "-c", "gpu-check.tar.xz", "gpu-check"], cwd=tree / "build", check=True)
    shutil.rmtree(tree / "build/gpu-check")
    said = run("./dev", "gpu-check", "--packed", "--tests", "A.b:C*", "--budget", "9", "out", cwd=tree, PATH=path)
    assert f"--tests A.b:C* --budget 9 report in {tree}/out" in said, "the archive was not unpacked: " + said
    (tree / "build/gpu-check/gpu_check.py").write_text("print('of an older build')")
    os.utime(tree / "build/gpu-check", (0, 0))
    said = run("./dev", "gpu-check", "--packed", "out", cwd=tree, PATH=path)
    assert f"report in {tree}/out" in said, "an archive newer than the folder was not unpacked: " + said


def test_arguments_are_checked_before_anything_begins(folder):
    tree = tree_with_dev(folder)
    program(folder / "path/ctest")
    for name in ("bench/step.py", "bench/tables.py", "tests/fuzz/yaml.cpp"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).touch()
    # Packages for tests may be missing on this machine, and are not needed here.
    text = (tree / "dev").read_text()
    (tree / "dev").write_text(re.sub(r"^packages_to_\w+\(\) {\n(  need .*\n)*", r"\g<0>  missing=()\n", text, flags=re.MULTILINE))
    path = f"{folder}/path:{os.environ['PATH']}"
    for words in ("test name", "test --lnog", "test -Rname", "test -R", "test -j -R name", "test --tests-regex=name", "test -R a b",
                  "setup slim x", "build --cuda -x", "bench all x", "bench tables x", "bench stp", "gpu-check", "gpu-check --pack x",
                  "gpu-check --packed", "gpu-check a b", "gpu-check --only a", "gpu-check --budget 1 --tests a", "libtorch", "fuzz no", "fuzz yaml soon",
                  "format --chek", "format --check x", "lint x", "docs x"):
        done = subprocess.run(["./dev", *words.split()], cwd=tree, env=os.environ | {"PATH": path}, capture_output=True,
                              text=True, check=False)
        assert done.returncode == 2 and done.stderr, (words, done)
        assert not (folder / "began").exists(), words
    for words in ("test --help", "test --long -h", "gpu-check --help", "lint --help"):
        assert "the commands for developers" in run("./dev", *words.split(), cwd=tree, PATH=path), words
    assert not (folder / "began").exists()
    for words, short in (("-R a --long -j 2 -VV", False), ("--long -LE slow", False), ("-R --long -j8", True), ("", True)):
        said = run("./dev", "test", *words.split(), cwd=tree, PATH=path)
        assert (" --label-exclude ^long$" in said) == short, said
        passed = words if short else words.replace("--long ", "")
        assert said.strip().endswith(f" {passed}".rstrip()), said
    assert (folder / "began").exists()


def test_paths_in_commands_of_tests_are_quoted(_):
    commands = [(file, command) for file in (ROOT / "tests").glob("*/CMakeLists.txt")
                for command in re.findall(r'sh -e?c "((?:[^"\\]|\\.)*)"', file.read_text())]
    assert commands
    for file, command in commands:
        assert not re.search(r"\$[<{]", re.sub("'[^']*'", "", command)), (file, command)


def test_the_preset_links_in_a_folder_with_spaces(folder):
    clone = folder / "a clone"
    (clone / "cmake").mkdir(parents=True)
    shutil.copy(ROOT / "CMakePresets.json", clone)
    shutil.copy(ROOT / "cmake/own_functions.map", clone / "cmake")
    (clone / "CMakeLists.txt").write_text(PROJECT)
    (clone / "main.cpp").write_text("int main() {}\n")
    run(CMAKE, "--preset", "dev", cwd=clone)
    run(CMAKE, "--build", "build/dev", cwd=clone)
    run(clone / "build/dev/program", cwd=clone)


def main():
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            with tempfile.TemporaryDirectory() as folder:
                test(pathlib.Path(folder).resolve())
            print(name)


main()
