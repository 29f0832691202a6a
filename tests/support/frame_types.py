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
    is_key: bool
    python: str
    spark: str
    iceberg: str
    refused: str


def _rows() -> list[FrameType]:
    text = DOCUMENT.read_text()
    start = text.index("| of a frame |")
    lines = text[start : text.index("\n\n", start)].splitlines()[2:]
    found = []
    for line in lines:
        names, stored, key, python, spark, iceberg, refused = (
            cell.strip() for cell in line.strip("|").split("|")
        )
        plain = (cell.strip("`") for cell in (stored, python, spark, iceberg))
        stored, python, spark, iceberg = plain
        found.append(
            FrameType(
                tuple(re.findall("`([^`]+)`", names)),
                stored,
                key == "yes",
                python,
                spark,
                iceberg,
                refused,
            )
        )
    return found


ROWS = _rows()
