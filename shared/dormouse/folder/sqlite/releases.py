"""Which releases of Dormouse may work in a folder: none that is earlier than the last one did.

Two releases at once are kept apart by `processes`. Messages and records that a later release wrote
may have parts that an earlier one does not know.
"""

from __future__ import annotations

from dormouse.errors import InvalidRequestError
from dormouse.folder.sqlite.database import Database

_RELEASE = "release"


def check_release(database: Database, release: str) -> None:
    """Keep the release of this process as the last one that worked in the folder.

    Raises:
        InvalidRequestError: a later one did before.
    """
    with database.reading() as connection:
        row = connection.execute(
            "SELECT value FROM settings WHERE name = ?", (_RELEASE,)
        ).fetchone()
    last = row[0] if row else ""
    if last == release:
        return
    if _parts(last) > _parts(release):
        raise InvalidRequestError(
            f"release {last} of Dormouse has worked in {database.path.parent}; this is release "
            f"{release}",
            hint=f"upgrade: pip install 'dormouse>={last}'",
        )
    with database.writing() as connection:
        connection.execute(
            "INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)", (_RELEASE, release)
        )


def _parts(release: str) -> tuple[int, ...]:
    """Return the numbers of a release: 0.10.0 follows 0.9.1."""
    return tuple(int(part) for part in release.split(".") if part.isdecimal())
