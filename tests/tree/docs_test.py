#!/usr/bin/env python3
"""Checks the pages of the documentation.

    docs_test.py links       each link of a page leads to a file, and each page is in the site's table of contents, but for
                             the decisions, which have a page of their own there
    docs_test.py snippets    each text below `<!-- from: FILE -->` stands in that file, and all C++ is cut from a file, or
                             is a program that the tests cut from the page
    docs_test.py names       each setting, type, flag and command that docs/migration.md names exists, and each test that
                             docs/faults.md names
    docs_test.py sees        the checks above find what is wrong
    docs_test.py site        the site is built without a warning and without a dead link; skipped if the packages of
                             `./dev docs` are not there
"""
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from markdown_table import rows  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("tests/services/*.md"),
                *ROOT.glob("samples/**/*.md")])


def without_code(text):
    """The text of a page without its code, in which brackets are not links."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"^ {4}.*$|``.*?``|`[^`\n]*`", "", text, flags=re.MULTILINE)


def dead_links(page, text):
    """The links of a page to files that do not exist. Anchors are checked where the site is built."""
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(text)):
        path = link.split("#")[0]
        if path and not re.match(r"[a-z]+:", link) and not (page.parent / path).exists():
            yield f"{page.relative_to(ROOT)}: {link}"


def not_in_contents(pages, contents):
    listed = set(re.findall(r"[\w/.-]+\.md", contents))
    names = [str(page.relative_to(ROOT)) for page in pages if page.parent.name != "decisions"]
    return [name for name in names if name not in listed]


def wrong_snippets(page, text):
    for source, snippet in re.findall(r"^<!-- from: (\S+) -->\n```\w*\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
        file = ROOT / source
        if not file.is_file() or snippet not in file.read_text():
            yield f"{page.relative_to(ROOT)} differs from {source}:\n{snippet}"
    markers = re.findall(r"^<!-- from: .*\n(```)?", text, flags=re.MULTILINE)
    if not all(markers):
        yield f"{page.relative_to(ROOT)}: code has to follow each <!-- from: FILE -->"
    cut = len(re.findall(r"^<!-- (?:from|program): \S+ -->\n```cpp", text, flags=re.MULTILINE))
    first_program = page.name == "README.md" and page.parent == ROOT
    if text.count("```cpp") != cut + first_program:
        yield f"{page.relative_to(ROOT)}: C++ without <!-- from: FILE --> or <!-- program: NAME --> above it"


def unknown_names(text):
    """The names in the columns `here`, and those in the remarks that have the form of a setting, that do not exist."""
    def read(name):
        return (ROOT / name).read_text()

    settings = set(re.findall(r"^\| `([\w.]+)` \|", read("docs/config.md"), re.MULTILINE))
    groups = {setting.split(".")[0] for setting in settings}
    types = set(re.findall(r"`(\w+)`", read("docs/api.md"))) | {"ddpxx"}
    flags = set(re.findall(r"`(--[\w-]+)", read("docs/launch.md")))
    pages = ("docs/launch.md", "docs/slurm.md", "docs/snapshots.md", "docs/troubleshooting.md")
    commands = "".join(map(read, pages))
    for kind in ("here", "remarks"):
        for code in (code for _, cell in rows(text, kind) for code in re.findall("`([^`]+)`", cell)):
            setting = code.split("=")[0]
            known = setting in settings
            if re.fullmatch(r"(\w+\.)+\w+", setting):
                if kind == "remarks" and setting.split(".")[0] not in groups:
                    continue
            elif kind == "remarks":
                continue
            elif code.startswith("--"):
                known = code.split()[0] in flags
            elif re.fullmatch(r"(ddpxx::)?[A-Z]\w+", code) or code in types:
                known = code.removeprefix("ddpxx::") in types
            elif re.fullmatch("ddpxx[ -].*|mingpt .*|spawn=4", code):
                known = code.split("=")[0] in commands
            if not known:
                yield code


def tests_of_sources():
    """`Suite.Test` and `Suite` of all tests in C++, and the files of the tests."""
    names = {str(path.relative_to(ROOT / "tests")) for path in (ROOT / "tests").glob("*/*.*")}
    for path in (ROOT / "tests").glob("*/*_test.cpp"):
        text = path.read_text()
        for suite, name in re.findall(r"^(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", text, re.MULTILINE):
            names |= {suite, f"{suite}.{name}"}
    return names


def unknown_tests(text, known):
    """The names in the columns `tests` that no test has; `.Test` belongs to the suite before it."""
    for _, cell in rows(text, "tests"):
        suite = ""
        for name in re.findall("`([^`]+)`", cell):
            full = suite + name if name.startswith(".") else name
            suite = full.split(".")[0]
            if full not in known:
                yield full


def test_names():
    text = (ROOT / "docs/migration.md").read_text()
    assert len(list(rows(text, "here"))) > 100
    wrong = list(unknown_names(text))
    assert not wrong, f"docs/migration.md names what does not exist: {wrong}"
    faults = (ROOT / "docs/faults.md").read_text()
    assert len(list(rows(faults, "tests"))) > 10
    wrong = list(unknown_tests(faults, tests_of_sources()))
    assert not wrong, f"docs/faults.md names tests that do not exist: {wrong}"


def test_links():
    wrong = [line for page in PAGES for line in dead_links(page, page.read_text())]
    wrong += [f"mkdocs.yml does not list {name}" for name in not_in_contents(PAGES, (ROOT / "mkdocs.yml").read_text())]
    assert not wrong, "\n".join(wrong)


def test_snippets():
    wrong = [line for page in PAGES for line in wrong_snippets(page, page.read_text())]
    assert not wrong, "\n".join(wrong)
    assert any("<!-- from: " in page.read_text() for page in PAGES)


def test_sees():
    page = ROOT / "docs" / "page.md"
    assert list(dead_links(page, "[a](launch.md) [b](lanch.md#x) `[c](no.md)`\n\n    [d](no.md)\n")) == [
        "docs/page.md: lanch.md#x"]
    assert not_in_contents([page], "nav:\n  - docs/pages.md\n") == ["docs/page.md"]
    marker = "<!-- from: samples/tutorial/ddp.cpp -->\n"
    assert not list(wrong_snippets(page, marker + "```cpp\nint main(int argc, char** argv) {\n```\n"))
    assert list(wrong_snippets(page, marker + "```cpp\nint main(int argc) {\n```\n"))
    table = "| theirs | here | remarks |\n|---|---|---|\n"
    assert list(unknown_names(table + "| a | `training.max_step` | `training.max_steps`, `snapshot.x` |\n"
                              "| `no.setting` | `ddpxx::DDDP`, `--nnode` | `their.name` |\n\n`not.there`\n")) == [
        "training.max_step", "ddpxx::DDDP", "--nnode", "snapshot.x"]
    table = "| fault | tests |\n|---|---|\n"
    table += "| a | `Stop.EndsAll`, `.SavesNone`, `Start`, `launch/no.py` |\n| b | `.EndsAll` |\n"
    assert list(unknown_tests(table, {"Stop", "Stop.EndsAll"})) == [
        "Stop.SavesNone", "Start", "launch/no.py", ".EndsAll"]
    assert list(wrong_snippets(page, "```cpp\nint main(int argc, char** argv) {\n```\n"))
    assert list(wrong_snippets(page, marker + "\n```cpp\nint main(int argc, char** argv) {\n```\n"))


def test_site():
    if not (ROOT / ".deps/docs/site/mkdocs").exists() or not shutil.which("doxygen"):
        print("skipped: ./dev docs has not installed what builds the site")
        sys.exit(77)
    subprocess.run([sys.executable, "tools/build_docs.py"], cwd=ROOT, check=True)


globals()["test_" + sys.argv[1]]()
