"""Modules, files and error messages that documents name are there."""

from __future__ import annotations

import re

from tests.architecture.sources import LIBRARY, ROOT, fail_for, sources

FOOTER_KEYS = {"dormouse.checksum", "dormouse.index"}
"""Entries in the footer of a shard, not modules."""
_MODULE = re.compile(r"`(dormouse(?:\.[a-z_]+)+)")
_FILE = re.compile(r"`((?:shared|cli|spark|functions|events|tests|tools|bench)/[\w./-]+)`")


def is_module(name: str) -> bool:
    path = ROOT.joinpath("shared", *name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def missing(text: str) -> list[str]:
    modules = [name for name in _MODULE.findall(text) if name not in FOOTER_KEYS]
    return [name for name in modules if not is_module(name)] + [
        name for name in _FILE.findall(text) if not (ROOT / name).exists()
    ]


def test_every_module_and_file_that_a_document_names_exists() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    fail_for(
        f"{page.relative_to(ROOT)} names {name}"
        for page in pages
        for name in missing(page.read_text())
    )


def test_a_module_or_file_that_is_gone_is_found() -> None:
    text = "`dormouse.keys.none`, `dormouse.keys`, `shared/dormouse/none.py`, `tests/unit`"
    assert missing(text) == ["dormouse.keys.none", "shared/dormouse/none.py"]


def test_every_term_of_the_glossary_names_its_module_and_is_there_once() -> None:
    rows = re.findall(r"^- \*\*(.+?)\*\* .*$", (ROOT / "docs/glossary.md").read_text(), re.M)
    lines = [line for line in (ROOT / "docs/glossary.md").read_text().splitlines() if "**" in line]
    assert len(rows) == len(lines) > 0
    assert rows == sorted(set(rows), key=str.lower)
    assert all(_MODULE.search(line.partition(": ")[0]) for line in lines)


def test_the_architecture_page_places_every_package() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    library = ROOT / "shared" / "dormouse"
    packages = [path.parent for path in library.rglob("__init__.py") if path.parent != library]
    names = {".".join(path.relative_to(library.parent).parts) for path in packages}
    placed = set(_MODULE.findall(page))
    fail_for(names - placed - {"dormouse.features"})


def errors_named(page: str) -> set[str]:
    """Return the parts of the messages in a page's table of damage; … stands for a name."""
    table = page.partition("### Damage of any kind\n")[2].partition("\n#")[0]
    messages = re.findall(r"\*([^*`]+)\*", table)
    parts = {part.strip() for text in messages for part in re.split("…|is not|is no ", text)}
    return {part for part in parts if len(part) > len("lacks")}


def test_every_message_in_the_table_of_damage_is_one_of_the_library() -> None:
    named = errors_named((ROOT / "docs" / "operations.md").read_text())
    library = "".join(source.text for source in sources(LIBRARY))
    assert len(named) > 10
    fail_for(part for part in named if part not in library)
