"""A package of Spark jobs as the build makes it, but with nothing in its archive."""

from __future__ import annotations

from pathlib import Path

import msgspec

from dormouse.features.spark import ARCHIVE, DESCRIPTION, SparkPackage
from dormouse.settings import library_version

VERSION = "0123456789abcdef"


def package_in(folder: Path, *, library: str = "", version: str = VERSION) -> Path:
    """Put a package into a new folder; by default of the version of this library."""
    files = dict.fromkeys(
        (ARCHIVE, "bulk_import.py", "compact.py", "export_rows.py", "statement.py"), 2
    )
    package = SparkPackage(library or library_version(), version, files)
    folder.mkdir(parents=True, exist_ok=True)
    for name in files:
        (folder / name).write_bytes(b"{}")
    (folder / DESCRIPTION).write_bytes(msgspec.json.encode(package))
    return folder
