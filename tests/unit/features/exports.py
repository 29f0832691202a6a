"""What the tests of exports share: a filled table, and an export's files held to its manifest."""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq

from dormouse.features.export import ExportManifest, load_manifest
from dormouse.state.jobs import JobRecord
from dormouse.stored.paths import EXPORTS, MANIFEST
from dormouse.tables.table import Table
from tests.support.made_once import made_once
from tests.support.world import World, letters

TEXTS = ("thequickbrownfox", "jumpsoverthelazydog", "aaabbbzz")
ALL = "".join(sorted("".join(TEXTS)))
LEAVES: list[tuple[object, ...]] = [("f",), ("m",), ("t",)]


@made_once
def filled(world: World, **options: object) -> Table:
    """A table of four leaves with a shard of each text in each."""
    table = world.create(**{"splits": LEAVES, "gc_delay_seconds": 60, **options})
    world.set_online(table, False)
    for number, text in enumerate(TEXTS):
        world.drop(f"letters/{number}.parquet", letters(text, at=100 * number))
    world.settle()
    return table


def manifest(world: World, to: str = "out") -> ExportManifest:
    found = load_manifest(world.results, to)
    assert found is not None, "there is no manifest"
    return found


def rows_of(world: World, to: str = "out") -> list[dict[str, Any]]:
    """Return the rows of an export's files in the order of their names, held against its
    manifest."""
    manifest_ = manifest(world, to)
    folder = world.folder / "results" / to
    tables = [pq.read_table(folder / file.name) for file in manifest_.files]
    assert [table.num_rows for table in tables] == [file.rows for file in manifest_.files]
    sizes = [(folder / file.name).stat().st_size for file in manifest_.files]
    assert sizes == [file.size_bytes for file in manifest_.files]
    rows = [row for table in tables for row in table.to_pylist()]
    assert (manifest_.rows, manifest_.size_bytes) == (len(rows), sum(sizes))
    assert {path.name for path in folder.iterdir()} == {
        MANIFEST,
        *(f.name for f in manifest_.files),
    }
    return rows


def exported(world: World, to: str = "out") -> str:
    return "".join(row["letter"] for row in rows_of(world, to))


def record_of(world: World, table: Table, export: str) -> JobRecord:
    found = world.tracker.get(table.id, export)
    assert found is not None
    return found


def assert_forgotten(world: World, table: Table) -> None:
    assert list(world.storage.list(EXPORTS.prefix(table.id))) == []
    assert list((world.folder / "scratch").iterdir()) == []
