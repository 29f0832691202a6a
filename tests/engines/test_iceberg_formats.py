"""Bitmaps and Avro files are what the libraries decode that other readers use."""

from __future__ import annotations

import json
import random
from pathlib import Path

from dormouse.iceberg import avro
from dormouse.iceberg.avro import RowRange, bitmap64, count_rows
from tests.engines.environment import run
from tests.engines.published_tables import FLAT, half_dead
from tests.support.published import PublishedTable


def some_rows(chance: random.Random) -> list[RowRange]:
    """Return ranges that do not touch, some over the ends of containers and of bitmaps."""
    edges = [0, 1, 2**16 - 1, 2**16, 2**16 + 1, 5 * 2**16, 2**32 - 1, 2**32, 2**32 + 1, 2**33]
    ends = {chance.choice(edges) + chance.randrange(300) for _ in range(chance.randrange(2, 14))}
    ordered = sorted(ends)[: len(ends) // 2 * 2]
    pairs = list(zip(ordered[::2], ordered[1::2], strict=True))
    return [(start, min(end, start + chance.choice((1, 70_000, 200_000)))) for start, end in pairs]


def test_bitmaps_have_the_rows_that_they_were_made_of(tmp_path: Path) -> None:
    chance, task, expected = random.Random(1), [], {}
    for number in range(60):
        rows = some_rows(chance)
        name, file = f"bitmap{number}", tmp_path / f"{number}.bitmap"
        file.write_bytes(bitmap64(rows))
        task.append({"kind": "bitmap", "name": name, "file": str(file)})
        expected[name] = rows
    run("formats", task, tmp_path)
    for name, rows in expected.items():
        found = json.loads((tmp_path / f"{name}.json").read_text())
        assert len(found) == count_rows(rows)
        assert found == [number for start, end in rows for number in range(start, end)]


def test_manifests_are_read_alike_by_another_library(tmp_path: Path) -> None:
    task, expected = [], {}
    for format_version in (2, 3):
        folder = tmp_path / f"format{format_version}"
        folder.mkdir()
        table = PublishedTable(folder, FLAT, format_version=format_version)
        half_dead(table)
        table.publish()
        for item in (item for item in table.put if item.path.endswith(".avro")):
            name = f"format{format_version}-{item.path.rpartition('/')[2]}"
            file = f"{table.root}/{item.path}"
            task.append({"kind": "avro", "name": name, "file": file})
            expected[name] = avro.read_container(item.content)[1]
    run("formats", task, tmp_path)
    assert len(expected) == 2 * 5  # news, shards, dead rows, and two lists
    for name, records in expected.items():
        found = json.loads((tmp_path / f"{name}.json").read_text())
        assert found == json.loads(json.dumps(records, default=lambda value: value.hex()))
