"""An engine that may write to the folder puts files there before its INSERT is refused."""

from __future__ import annotations

from pathlib import Path

from dormouse.features.publishing import collect_iceberg
from dormouse.stored.paths import iceberg_prefix
from tests.support.world import World


def test_files_of_a_refused_insert_are_deleted_and_nothing_that_is_published(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    table = world.create(iceberg="on")
    world.drop("letters/1.parquet", [{"letter": "a", "at": 1, "note": None}])
    world.settle()
    published = {stored.path for stored in world.storage.list(iceberg_prefix(table.id))}
    names = ("00000-5-8ab47127-0-00001.parquet", ".00000-5-8ab47127-0-00001.parquet.crc", "x")
    foreign = {f"{iceberg_prefix(table.id)}data/{name}" for name in names}
    for path in foreign:
        world.storage.put(path, b"of an engine")
    collect_iceberg(world.services, table, at_once=True)
    assert foreign <= {stored.path for stored in world.storage.list(iceberg_prefix(table.id))}
    world.age_objects(seconds=2 * table.properties.gc_delay_seconds + 7200)
    collect_iceberg(world.services, table, at_once=True)
    left = {stored.path for stored in world.storage.list(iceberg_prefix(table.id))}
    assert not foreign & left
    record = world.publications.get(table.id)
    assert record is not None and record.metadata in left <= published
