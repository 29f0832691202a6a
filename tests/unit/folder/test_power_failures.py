"""A power failure loses what was not flushed: then all goes on as after a crash before it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from dormouse.client.instance import Instance
from dormouse.folder.sqlite import Connection, Database
from dormouse.messages.stages import QUEUES
from dormouse.stored.paths import dead_letter_queue


def rows(first: int) -> pa.Table:
    return pa.table({"id": list(range(first, first + 10))})


def test_whatever_is_flushed_a_folder_has_every_answered_row_and_its_work_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[tuple[Path, int]] = []
    answered = 0
    written = Database.writing

    @contextmanager
    def copied(self: Database, *, lazy: bool = False) -> Iterator[Connection]:
        with written(self, lazy=lazy) as connection:
            yield connection
        if not lazy:
            copies.append((tmp_path / f"{len(copies)}", answered))
            shutil.copytree(tmp_path / "mice", copies[-1][0])

    with Instance.open(tmp_path / "mice", background=False) as instance:
        table = instance.create_table("t", like=rows(0), row_keys=["id"])
        instance.wait()
        monkeypatch.setattr(Database, "writing", copied)
        for first in range(0, 50, 10):
            table.ingest(rows(first))
            answered += 10
        instance.wait()
        monkeypatch.undo()
        assert table.services.store(table.current()).current().reference_count == 1
    assert len(copies) >= 7, "each commit of rows, and those of a compaction"
    for folder, least in copies:
        with Instance.open(folder, background=False) as instance:
            assert instance.table("t").query().to_arrow()["id"].to_pylist()[:least] == [
                *range(least)
            ]
            instance.wait()
            instance.table("t").ingest(rows(1000)).wait()
            instance.wait()
            assert instance.table("t").count() - 10 in (least, least + 10)
            dead = [dead_letter_queue(queue) for queue in QUEUES]
            assert not any(instance.queues.depths(dead).values())
