"""The source emptied its table (TRUNCATE): its older rows are gone, however late they come."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.errors import RefusedSourceError
from dormouse.features.copying import copy_table
from tests.unit.features.latest.test_published import published

BY = pytest.mark.parametrize("by", ["", "position"])


class Feed:
    """A table, and files of messages that are written for it."""

    def __init__(self, instance: Instance, folder: Path, by: str, **properties: object) -> None:
        rules = {"keep": "latest", "change_data": "debezium", "latest_by": by, **properties}
        columns = "id:long, v:string?" + (", position:string" if by else "")
        self.instance, self._folder, self._files = instance, folder, 0
        self.table = instance.create_table("t", columns, rules, row_keys=["id"])

    def file(self, *messages: tuple[str, int, int, str]) -> Path:
        """Write messages of operation, position, id and value."""
        self._files += 1
        found = [
            {
                "op": op,
                "before": {"id": key} if op == "d" else None,
                "after": {"id": key, "v": value} if op in "cu" else None,
                "source": {"sequence": f'["{at}","{at}"]'},
            }
            for op, at, key, value in messages
        ]
        path = self._folder / f"{self._files}.jsonl"
        path.write_text("\n".join(map(json.dumps, found)))
        return path

    def write(self, *messages: tuple[str, int, int, str]) -> dict[int, str]:
        self.table.ingest(self.file(*messages)).wait()
        return seen(self.table)

    def compact(self) -> None:
        self.instance.compact("t", everything=True)
        self.instance.wait()


def seen(table: TableHandle) -> dict[int, str]:
    return {row["id"]: row["v"] for row in table.query().to_arrow().to_pylist()}


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    with Instance.open(tmp_path / "mice", background=False) as opened:
        yield opened


def rows(at: int, *keys: int, value: str = "old") -> list[tuple[str, int, int, str]]:
    return [("c", at, key, value) for key in keys]


def truncate(at: int) -> tuple[str, int, int, str]:
    return "t", at, 0, ""


@BY
def test_rows_before_it_are_gone_and_those_after_it_are_there(
    instance: Instance, tmp_path: Path, by: str
) -> None:
    feed = Feed(instance, tmp_path, by)
    feed.write(*rows(10, 1, 2, 3))
    before = feed.table.state().version
    told = feed.write(*rows(20, 4), truncate(30), *rows(40, 2, 5, value="new"))
    assert told == {2: "new", 5: "new"}
    assert (feed.table.count(), feed.table.query(exact=1).to_arrow().num_rows) == (2, 0)
    assert feed.table.query(as_of=before).to_arrow().num_rows == 3
    changed = feed.table.changes(before, deleted=True).to_arrow().to_pylist()
    kinds = {row["id"]: row["_change"] for row in changed}
    assert kinds == {1: "delete", 2: "update", 3: "delete", 5: "insert"}
    feed.compact()
    assert (seen(feed.table), feed.table.state().rows) == (told, 2)


def test_rows_that_come_late_stay_hidden_for_ever(instance: Instance, tmp_path: Path) -> None:
    feed = Feed(instance, tmp_path, "position", iceberg="on", compaction_files=2)
    feed.write(*rows(10, 1, 2), truncate(30), *rows(40, 7, value="new"))
    told = {7: "new", 8: "new"}
    assert feed.write(*rows(20, 1, 3), *rows(29, 7), *rows(31, 8, value="new")) == told
    assert published(instance, feed.table) == sorted(told.items())
    feed.compact()
    assert (seen(feed.table), feed.table.state().rows) == (told, 2)
    instance.split("t", forced=True)
    instance.wait()
    assert feed.write(*rows(25, 1, 2, 9), ("d", 26, 7, "")) == told
    assert published(instance, feed.table) == sorted(told.items())
    feed.table.rebuild()
    assert feed.write(*rows(28, 1, 2, 9)) == told
    with Instance.open(tmp_path / "others", background=False) as other:
        services, table = instance.services, feed.table.current()
        _, messages = copy_table(services, table, feed.table.bucket.name, other.services, "t")
        other.queues.send(messages)
        copied = other.table("t")
        copied.ingest(feed.file(*rows(27, 1, 5))).wait()
        assert seen(copied) == told


def test_what_has_the_position_of_a_truncate_is_older_if_it_was_read_and_else_newer(
    instance: Instance, tmp_path: Path
) -> None:
    """The first change after a snapshot can have the position of that."""
    feed = Feed(instance, tmp_path, "position")
    file = feed.file(*rows(30, 1), truncate(30), *rows(30, 2, value="new"))
    file.write_text(file.read_text().replace('"op": "c"', '"op": "r"', 1))
    feed.table.ingest(file).wait()
    assert seen(feed.table) == {2: "new"}


@BY
def test_a_file_that_comes_again_or_is_refused_empties_nothing(
    instance: Instance, tmp_path: Path, by: str
) -> None:
    feed = Feed(instance, tmp_path, by)
    file = feed.file(*rows(10, 1), truncate(30))
    feed.table.ingest(file).wait()
    told = feed.write(*rows(40, 2, value="new"))
    feed.table.ingest(file).wait()
    assert seen(feed.table) == told == {2: "new"}
    with pytest.raises(RefusedSourceError, match="line 2"):
        feed.write(truncate(60), ("x", 70, 3, "wrong"))
    assert seen(feed.table) == told


@BY
def test_files_with_a_truncate_follow_each_other(
    instance: Instance, tmp_path: Path, by: str
) -> None:
    feed = Feed(instance, tmp_path, by, ingest_batch_min_files=3)
    files = [
        feed.file(*rows(10, 1, 2)),
        feed.file(*rows(20, 3), truncate(30)),
        feed.file(*rows(40, 2, value="new")),
    ]
    feed.table.ingest(files).wait()
    assert (seen(feed.table), len(feed.table.shards())) == ({2: "new"}, 1)


@BY
def test_a_rebuilt_table_has_the_rows_that_came_with_a_truncate(
    instance: Instance, tmp_path: Path, by: str
) -> None:
    feed = Feed(instance, tmp_path, by)
    feed.write(*rows(10, 1, 2))
    told = feed.write(truncate(30), *rows(40, 2, value="new"))
    instance.wait()
    feed.table.rebuild()
    assert seen(feed.table) == told == {2: "new"}


@BY
def test_a_file_with_a_truncate_alone_is_known_after_a_rebuild(
    instance: Instance, tmp_path: Path, by: str
) -> None:
    feed = Feed(instance, tmp_path, by)
    feed.write(*rows(10, 1))
    file = feed.file(truncate(30))
    feed.table.ingest(file).wait()
    told = feed.write(*rows(40, 2, value="new"))
    feed.compact()
    feed.table.rebuild()
    instance.wait(60)
    assert feed.table.ingest(file).known
    assert seen(feed.table) == told


def test_of_several_truncates_the_last_one_alone_is_kept(
    instance: Instance, tmp_path: Path
) -> None:
    feed = Feed(instance, tmp_path, "position")
    for at in (30, 50, 40):
        feed.write(truncate(at))
        instance.wait()
    (kept,) = feed.table.state().deletions
    assert "50" in kept.below
    assert feed.write(*rows(49, 1), *rows(51, 2, value="new")) == {2: "new"}
    before = feed.table.state().version
    feed.write(truncate(60))
    feed.table.restore(before)
    assert feed.write(*rows(49, 1), *rows(52, 3, value="new")) == {2: "new", 3: "new"}
