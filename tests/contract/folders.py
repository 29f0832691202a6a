"""The SQLite file of an instance in a folder, and a clock, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dormouse.folder.processes import FolderLayout
from dormouse.folder.sqlite import Database
from tests.support.adapters import FakeClock


@contextmanager
def database_in(folder: Path) -> Iterator[Database]:
    """Return the database of a new instance, and close it at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    database = Database(FolderLayout(folder).database)
    database.create()
    try:
        yield database
    finally:
        database.close()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with database_in(tmp_path) as database:
        yield database


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()
