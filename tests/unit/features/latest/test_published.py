"""What is published for readers of Iceberg of a table that keeps the latest rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.iceberg import avro
from dormouse.query.rows import ROW, numbered_rows
from tests.support.waiting import LIMIT_SECONDS

COLUMNS = pa.schema({"id": pa.int64(), "v": pa.string(), "_change": pa.string()})


def write(table: TableHandle, *rows: dict[str, object]) -> None:
    table.ingest(pa.Table.from_pylist(list(rows), schema=COLUMNS)).wait()


def published(
    instance: Instance, table: TableHandle, columns: Sequence[str] = ("id", "v")
) -> list[Any]:
    """Return the rows that such a reader finds: those of all files but the dead ones."""
    instance.wait()
    queue = "iceberg-changes"  # of which waiting knows nothing, as it changes no table
    instance.polling.until_nothing(
        lambda: instance.queues.depths((queue,))[queue], timeout_seconds=LIMIT_SECONDS
    )
    body = json.loads(Path(table.iceberg.show().metadata).read_text())
    files = list(files_of(body["snapshots"][-1]["manifest-list"]))
    dead = {
        (each["file_path"], each["pos"])
        for file in files
        if file["content"] == 1
        for each in pq.ParquetFile(local(file["file_path"])).read().to_pylist()
    }
    rows = [
        tuple(row[name] for name in columns)
        for file in files
        if file["content"] == 0
        for at, row in enumerate(pq.ParquetFile(local(file["file_path"])).read().to_pylist())
        if (file["file_path"], at) not in dead
    ]
    return sorted(rows, key=lambda row: (row[0], repr(row)))


def files_of(listed: str) -> Iterator[dict[str, Any]]:
    for manifest in avro.read_container(local(listed).read_bytes())[1]:
        for entry in avro.read_container(local(manifest["manifest_path"]).read_bytes())[1]:
            yield dict(entry["data_file"])


def local(uri: str) -> Path:
    return Path(uri.removeprefix("file://"))


def test_of_each_key_one_row_is_alive_whichever_shard_has_it(tmp_path: Path) -> None:
    with Instance.open(tmp_path / "mice", background=False) as instance:
        table = instance.create_table(
            "t", "id:long, v:string?", {"keep": "latest", "iceberg": "on"}, row_keys=["id"]
        )
        write(table, *({"id": n, "v": "old"} for n in range(100)))
        write(table, {"id": 1, "v": "new"}, {"id": 2, "_change": "delete"}, {"id": 200, "v": "x"})
        table.delete("id BETWEEN 10 AND 89 OR v = 'x'")
        wanted = [(n, "new" if n == 1 else "old") for n in range(100) if n < 10 or n > 89]
        wanted.remove((2, "old"))
        assert published(instance, table) == wanted


def test_blocks_that_no_change_touched_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers: list[int] = []

    def numbered(*given: Any) -> Iterator[pa.RecordBatch]:
        for batch in numbered_rows(*given):
            numbers.extend(batch.column(ROW.name).to_pylist())
            yield batch

    monkeypatch.setattr("dormouse.iceberg.dead_rows.numbered_rows", numbered)
    with Instance.open(tmp_path / "mice", background=False) as instance:
        given = {"keep": "latest", "iceberg": "on"}
        table = instance.create_table("t", "id:long, v:string?", given, row_keys=["id"])
        write(table, *({"id": n, "v": "old"} for n in range(60_000)))
        write(table, {"id": 100, "v": "new"}, {"id": 59_000, "_change": "delete"})
        write(table, {"id": 70_000, "_change": "delete"})
        table.delete("id BETWEEN 30000 AND 30009")
        wanted = {n: "new" if n == 100 else "old" for n in range(60_000)}
        for n in (59_000, *range(30_000, 30_010)):
            del wanted[n]
        assert published(instance, table) == [*wanted.items()]
    assert 0 < len(numbers) < 30_000


def test_a_row_in_a_dead_range_hides_nothing(tmp_path: Path) -> None:
    """A compaction of one leaf leaves the same rows, of the same commits, in two shards."""
    with Instance.open(tmp_path / "mice", background=False) as instance:
        given = {"compaction_strategy": "batch", "compaction_files": 2}
        given |= {"keep": "latest", "iceberg": "on"}
        table = instance.create_table("t", "id:long, v:string?", given, row_keys=["id"])
        write(table, *({"id": n, "v": "old"} for n in range(100)))
        instance.split("t", forced=True)
        instance.wait()
        write(table, {"id": 0, "_change": "delete"}, *({"id": n, "v": "new"} for n in range(1, 5)))
        instance.compact("t")
        wanted = [(n, "new" if n < 5 else "old") for n in range(1, 100)]
        assert published(instance, table) == wanted
        assert len(table.shards()) == 2, "the first is still there, for the other leaf"
