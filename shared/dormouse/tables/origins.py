"""Where a table was copied from, and what it was called."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """The bucket and the name under which files were ingested for a table before it was copied or
    renamed; an empty bucket is that of the table's instance.
    """

    bucket: str
    table_name: str
