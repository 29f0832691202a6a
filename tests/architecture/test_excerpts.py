"""What the documents show of the example programs is in the programs, which other tests run."""

from __future__ import annotations

import re
from textwrap import dedent

from tests.architecture.sources import ROOT, fail_for

DOCS = ROOT / "docs"
PAGE = DOCS / "http.md"
SUFFIXES = {"javascript": "*.mjs", "go": "*.go", "java": "*.java"}
_BLOCK = re.compile(rf"^```({'|'.join(SUFFIXES)})\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def is_excerpt(block: str, program: str) -> bool:
    """Return whether lines follow each other in a program, however far they are indented there."""
    shown = dedent(block).splitlines()
    lines = program.splitlines()
    starts = range(len(lines) - len(shown) + 1)
    return any(dedent("\n".join(lines[n : n + len(shown)])).splitlines() == shown for n in starts)


def test_each_excerpt_is_a_part_of_a_program() -> None:
    blocks = _BLOCK.findall(PAGE.read_text())
    assert {language for language, _ in blocks} == set(SUFFIXES)
    programs = {
        language: [path.read_text() for path in (DOCS / "examples").rglob(suffix)]
        for language, suffix in SUFFIXES.items()
    }
    fail_for(
        block
        for language, block in blocks
        if not any(is_excerpt(block, program) for program in programs[language])
    )


def test_a_line_that_differs_is_found() -> None:
    program = "if a {\n\tb()\n\tc()\n}\n"
    assert is_excerpt("b()\nc()\n", program)
    assert not is_excerpt("b()\nd()\n", program)
    assert not is_excerpt("b()\n\tc()\n", program)
