#!/usr/bin/env python3
"""Checks the pages of the documentation.

    docs_test.py links       each link of a page leads to a file, and each page of docs/ is in the site's table of contents
    docs_test.py snippets    each text below `<!-- from: FILE -->` stands in that file
    docs_test.py sees        the checks above find what is wrong
    docs_test.py site        the site is built without a warning and without a dead link; skipped if the packages of
                             `./dev docs` are not there
"""
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("tests/services/*.md")])


def without_code(text):
    """The text of a page without its code, in which brackets are no links."""
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
    return [str(name) for name in (page.relative_to(ROOT) for page in pages) if str(name) not in listed]


def wrong_snippets(page, text):
    for source, snippet in re.findall(r"^<!-- from: (\S+) -->\n```\w*\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
        file = ROOT / source
        if not file.is_file() or snippet not in file.read_text():
            yield f"{page.relative_to(ROOT)} differs from {source}:\n{snippet}"
    markers = re.findall(r"^<!-- from: .*\n(```)?", text, flags=re.MULTILINE)
    if not all(markers):
        yield f"{page.relative_to(ROOT)}: code has to follow each <!-- from: FILE -->"


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
    assert list(wrong_snippets(page, marker + "\n```cpp\nint main(int argc, char** argv) {\n```\n"))


def test_site():
    if not (ROOT / ".deps/docs/site/mkdocs").exists() or not shutil.which("doxygen"):
        print("skipped: ./dev docs has not installed what builds the site")
        sys.exit(77)
    subprocess.run([sys.executable, "tools/build_docs.py"], cwd=ROOT, check=True)


globals()["test_" + sys.argv[1]]()
