#!/usr/bin/env python3
"""Builds the site of the documentation into build/docs; `./dev docs` runs it from the root of the source tree.

    tools/build_docs.py [FOLDER_OF_MKDOCS]    the folder that has mkdocs-material [.deps/docs/site]

Doxygen writes the reference of the headers, mkdocs the pages. A warning of either is an error, and so is a link to a file
or an anchor that the site does not have. Of Doxygen's pages only the files are checked, because their lists name anchors
of private classes, which they do not show.
"""

import html.parser
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

SOURCE = pathlib.Path("build/docs-source")
SITE = pathlib.Path("build/docs")
# The pages, and the files to which they have links.
PAGES = ["README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs", "tests/services/README.md", "include",
         "samples"]


def link_pages():
    """Makes the folder that mkdocs reads. Its files lie as in the source tree, so that links are equal in both."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    for page in PAGES:
        link = SOURCE / page
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(page, link.parent))


def list_decisions():
    """Writes a page with a link to each decision."""
    titles = {path: path.read_text().splitlines()[0].removeprefix("# ")
              for path in sorted(pathlib.Path("docs/decisions").glob("*.md"))}
    lines = [f"- [{title}]({path})" for path, title in titles.items()]
    (SOURCE / "decisions.md").write_text("# Decisions\n\n" + "\n".join(lines) + "\n")


def on_page_content(content, **_):
    """mkdocs calls this with each page. In code in tables, Python's Markdown leaves the backslash before a bar."""
    return re.sub("<td>.*?</td>", lambda cell: cell[0].replace("\\|", "|"), content, flags=re.DOTALL)


class Links(html.parser.HTMLParser):
    """The links of a page, what it loads from other hosts, and its anchors."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loaded, self.anchors = set(), set(), {"", "top"}
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.links.add(value)
                if tag != "a" and urllib.parse.urlsplit(value).netloc:
                    self.loaded.add(value)
            elif name == "id" or (name == "name" and tag == "a"):
                self.anchors.add(value)


def dead_links(site):
    """A line for each link inside the site that leads nowhere, and for each file that a page loads from another host."""
    pages = {path.resolve(): Links(path.read_text(errors="replace")) for path in site.rglob("*.html")}
    for page, content in sorted(pages.items()):
        yield from (f"{page.relative_to(site.resolve())} loads {link}" for link in sorted(content.loaded))
        for link in sorted(content.links):
            target = urllib.parse.urlsplit(link)
            if target.scheme or target.netloc:
                continue
            base = site if target.path.startswith("/") else page.parent
            path = (base / urllib.parse.unquote(target.path).lstrip("/")).resolve() if target.path else page
            if path.is_dir():
                path /= "index.html"
            anchor = urllib.parse.unquote(target.fragment)
            of_doxygen = page.is_relative_to(site.resolve() / "api")
            if not path.is_file() or (path in pages and not of_doxygen and anchor not in pages[path].anchors):
                yield f"{page.relative_to(site.resolve())}: {link}"


def main():
    mkdocs = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".deps/docs/site").resolve()
    link_pages()
    list_decisions()
    subprocess.run(["doxygen", "docs/Doxyfile"], check=True)
    subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict"], check=True,
                   env=os.environ | {"PYTHONPATH": str(mkdocs), "NO_MKDOCS_2_WARNING": "1"})
    dead = list(dead_links(SITE))
    if dead:
        sys.exit("build_docs: these links lead nowhere:\n  " + "\n  ".join(dead))


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
