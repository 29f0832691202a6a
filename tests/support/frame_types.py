"""The rows of the table in `docs/schema.md` that says what the types of frames become."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "schema.md"


@dataclass(frozen=True, slots=True)
class FrameType:
    """One row: `names` are those of Arrow."""

    names: tuple[str, ...]
    stored: str
    python: str
    spark: str
    iceberg: str


def _rows() -> list[FrameType]:
    text = DOCUMENT.read_text()
    start = text.index("| of a frame |")
    lines = text[start : text.index("\n\n", start)].splitlines()[2:]
    rows = []
    for line in lines:
        names, *cells = line.strip("|").split("|")
        stored, python, spark, iceberg = (cell.strip(" `") for cell in cells)
        rows.append(
            FrameType(tuple(re.findall("`([^`]+)`", names)), stored, python, spark, iceberg)
        )
    return rows


ROWS = _rows()
