#!/usr/bin/env python3
"""Which Boost.PFR a project gets by Boost_ROOT, also where that is a relative folder.

    find_pfr_test.py CMAKE GENERATOR
"""
import os
import pathlib
import sys
import tempfile

from finding_project import FindingProject

CMAKE, GENERATOR = sys.argv[1:]
CALLS = """find_package(PFR 1.84 REQUIRED)
message(STATUS "the project has Boost ${PFR_VERSION}")
"""


def make_boost(folder, version):
    """A folder with the files by which Boost.PFR is found."""
    (folder / "include/boost/pfr").mkdir(parents=True)
    (folder / "include/boost/pfr/core_name.hpp").touch()
    (folder / "include/boost/version.hpp").write_text(f'#define BOOST_LIB_VERSION "{version}"\n')
    return folder


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        project = FindingProject(CMAKE, GENERATOR, folder, "FindPFR.cmake", CALLS)
        absolute = make_boost(folder / "absolute", "1_85")
        make_boost(folder / "called_from/mine", "1_86")
        make_boost(folder / "in_project", "1_87")
        make_boost(folder / "old", "1_83")
        environment = {name: value for name, value in os.environ.items() if name != "Boost_ROOT"}

        def configure(*definitions, **variables):
            done = project.configure(definitions, environment | variables)
            return done.returncode, done.stdout + done.stderr

        for expected, (code, text) in {"1.85": configure(f"-DBoost_ROOT={absolute}"),
                                       "1.86": configure("-DBoost_ROOT=mine"),
                                       "1.87": configure(Boost_ROOT="in_project")}.items():
            assert code == 0 and f"the project has Boost {expected}\n" in text, (expected, text)
        code, text = configure(f"-DBoost_ROOT={folder}/old")
        assert code != 0 and "Boost 1.84 or later is needed" in text, text
    print("Boost_ROOT names Boost.PFR by an absolute and by a relative folder")


main()
