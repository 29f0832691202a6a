"""Links within the documents lead somewhere: to a file that is there, and a heading in it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from tests.architecture.sources import ROOT, fail_for

FOLDERS = (ROOT / "docs", ROOT / "bench" / "results")
DECISIONS = ROOT / "docs" / "decisions"
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)|<img\s[^>]*?src=\"([^\"]+)\"")


def links(document: Path) -> list[str]:
    prose = _FENCED.sub("", document.read_text())
    found = [inline or image for inline, image in _LINK.findall(prose)]
    return [link for link in found if not re.match(r"[a-z]+:", link)]


@cache
def anchors(document: Path) -> set[str]:
    """Return the names of a document's headings as they are in links to them."""
    headings = re.findall(r"^#+ (.+)$", _FENCED.sub("", document.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(document: Path) -> list[str]:
    found = []
    for link in links(document):
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or anchor and anchor not in anchors(target):
            found.append(link)
    return found


def test_links_between_documents_lead_to_files_and_headings_that_are_there() -> None:
    documents = [*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in folder.rglob("*.md"))]
    fail_for(
        f"{document.relative_to(ROOT)}: {link}"
        for document in sorted(documents)
        for link in broken(document)
    )


def test_a_link_to_no_file_or_no_heading_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# The `one`, and only\n")
    page = tmp_path / "b.md"
    page.write_text("[a](a.md) [b](a.md#the-one-and-only) [c](a.md#two) [d](c.md) [e](#none)\n")
    assert broken(page) == ["a.md#two", "c.md", "#none"]


def test_every_document_is_named_in_the_index() -> None:
    index = {link.partition("#")[0] for link in links(ROOT / "docs" / "README.md")}
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    fail_for(pages - index)


def test_every_decision_is_in_the_index() -> None:
    index = {link.partition("#")[0] for link in links(DECISIONS / "README.md")}
    pages = {path.name for path in DECISIONS.glob("*.md")} - {"README.md"}
    assert pages
    fail_for(pages - index)
