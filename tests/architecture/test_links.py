"""Links within the documents lead somewhere: to a file that is there, and a heading in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "docs", ROOT / "bench" / "results")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(page for at in FOLDERS for page in at.rglob("*.md"))])
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)|<img\s[^>]*?src=\"([^\"]+)\"")


def links(document: Path) -> list[str]:
    prose = _FENCED.sub("", document.read_text())
    found = [inline or image for inline, image in _LINK.findall(prose)]
    return [link for link in found if not re.match(r"[a-z]+:", link)]


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


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_lead_to_files_and_headings_that_are_there(document: Path) -> None:
    assert broken(document) == []


def test_a_link_to_no_file_or_no_heading_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# The `one`, and only\n")
    page = tmp_path / "b.md"
    page.write_text("[a](a.md) [b](a.md#the-one-and-only) [c](a.md#two) [d](c.md) [e](#none)\n")
    assert broken(page) == ["a.md#two", "c.md", "#none"]


def test_every_document_is_named_in_the_index() -> None:
    index = {link.partition("#")[0] for link in links(ROOT / "docs" / "README.md")}
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert pages <= index


RECORDS = sorted((ROOT / "docs" / "decisions").glob("0*.md"))


@pytest.mark.parametrize("record", RECORDS, ids=lambda path: path.name)
def test_every_record_has_its_number_a_status_and_a_date(record: Path) -> None:
    number = int(record.name[:4])
    assert re.match(rf"# {number}\. .+\n\n.*Status.*Date.* \d{{4}}-\d\d-\d\d", record.read_text())


def test_no_two_records_have_one_number() -> None:
    numbers = [path.name[:4] for path in RECORDS]
    assert len(set(numbers)) == len(numbers)


def test_every_record_is_in_the_index_by_topic() -> None:
    index = {link.partition("#")[0] for link in links(ROOT / "docs" / "decisions" / "README.md")}
    assert {path.name for path in RECORDS} <= index
