"""The proof of a purge looks into what is published: manifests name keys of removed rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from dormouse.features.publish_iceberg import publish_iceberg
from dormouse.features.publishing import READERS_MS
from dormouse.features.purge import Proof
from dormouse.features.purge_rows import prove_purge
from dormouse.iceberg import avro
from dormouse.messages.requests import ReinitialiseTable
from dormouse.messages.stages import TableChanged
from dormouse.schema.schema import parse_schema
from dormouse.stored.paths import data_prefix, iceberg_prefix
from dormouse.tables.table import Table
from tests.support.purges import purge_request
from tests.support.world import World, letters

DELAY_SECONDS = 600
PUBLISHED = {"iceberg": "on", "gc_delay_seconds": DELAY_SECONDS, "orphan_age_seconds": 3600}


@pytest.fixture
def table(world: World) -> Table:
    """A table with the letters a to d, of which only the last shard has a d."""
    table = world.create(**PUBLISHED)
    for number, text in enumerate(("abc", "bbc", "bcd")):
        world.drop(f"letters/{number}.parquet", letters(text, at=100 * number))
    world.deliver_all_but("gc-candidates")
    return table


def prove(world: World, table: Table, where: str = "letter = 'd'") -> Proof:
    request = purge_request(table.schema, where)
    return prove_purge(world.services, table, request)


def manifests(proof: Proof) -> list[str]:
    return [found.path for found in proof.remains if found.path.endswith(".avro")]


def purge(world: World, table: Table, where: str = "letter = 'd'") -> None:
    """Purge, have what was replaced deleted, and publish."""
    world.purge(table, where)
    world.settle()
    world.clock.advance(seconds=2 * DELAY_SECONDS)
    world.sweep()
    world.settle()


def age(world: World) -> None:
    seconds = DELAY_SECONDS + READERS_MS // 1000 + 1
    world.clock.advance(seconds=seconds)
    world.age_objects(seconds=seconds)


def test_manifests_of_shards_with_matching_rows_are_named(world: World, table: Table) -> None:
    proof = prove(world, table)
    assert proof.rows == 1
    assert manifests(proof)
    assert {found.rows for found in proof.remains if found.path.endswith(".avro")} == {0}


def test_manifests_from_before_a_purge_are_named_until_they_are_deleted(
    world: World, table: Table
) -> None:
    before = {o.path for o in world.storage.list(iceberg_prefix(table.id))}
    purge(world, table)
    assert not any(o.path in before for o in world.storage.list(data_prefix(table.id)))
    proof = prove(world, table)
    assert manifests(proof) and set(manifests(proof)) <= before
    assert proof.rows == proof.shards == 0
    assert not proof.is_complete
    assert all(found.until_ms is not None for found in proof.remains)
    age(world)
    publish_iceberg(world.services, TableChanged(table.id))
    age(world)
    world.sweep(audit=True)
    proof = prove(world, table)
    assert proof.is_complete
    assert proof.objects > len(list(world.storage.list(data_prefix(table.id))))


def test_an_old_manifest_that_was_put_back_is_named(world: World, table: Table) -> None:
    old = {o.path: world.storage.get(o.path) for o in world.storage.list(iceberg_prefix(table.id))}
    purge(world, table)
    world.storage.delete([o.path for o in world.storage.list(iceberg_prefix(table.id))])
    publish_iceberg(world.services, TableChanged(table.id))
    assert prove(world, table).is_complete
    named = [path for path, body in old.items() if b"data-" in path.encode()]
    for path in named:
        world.storage.put(path.replace("data-", "data-old"), old[path])
    assert manifests(prove(world, table))


def test_keys_that_other_rows_have_are_no_keys_of_removed_rows(world: World, table: Table) -> None:
    """Of the shards that are gone, all bounds but that of d are those of rows that are there."""
    purge(world, table, "at = 201")  # one of two rows of c in the last shard
    assert manifests(prove(world, table, "at = 201")) == []


def test_a_damaged_manifest_fails_the_proof(world: World, table: Table) -> None:
    purge(world, table)
    path = f"{iceberg_prefix(table.id)}metadata/00000-data-x.avro"
    world.storage.put(path, b"Obj\x01 cut")
    (found,) = [f for f in prove(world, table).remains if f.path == path]
    assert found.rows is None
    assert "cannot be read" in found.reason


def test_manifests_of_an_earlier_schema_are_named(world: World, table: Table) -> None:
    other = parse_schema("word:string, n:long", ["word"])
    renumbered = replace(other, row_keys=(replace(other.row_keys[0], id=77),), next_field_id=99)
    world.administer(ReinitialiseTable("reset", "letters", schema=renumbered.to_json()))
    world.settle()
    world.storage.delete([o.path for o in world.storage.list(data_prefix(table.id))])
    now = world.tables.get(table.id)
    assert now is not None
    proof = prove(world, now, "word = 'x'")
    assert manifests(proof)


@pytest.mark.parametrize("kept", [["d"], []])
def test_a_long_key_is_found_by_what_a_bound_names_of_it(world: World, kept: Sequence[str]) -> None:
    """Bounds of long texts are cut: a row that begins like one is taken for the one it names."""
    table = world.create("words", **PUBLISHED)
    long = "x" * 70
    rows = [{"letter": long + end, "at": n, "note": ""} for n, end in enumerate(["c", *kept])]
    world.drop("words/1.parquet", rows)
    world.drop("words/2.parquet", letters("z"))
    world.deliver_all_but("gc-candidates")
    purge(world, table, f"letter = '{long}c'")
    proof = prove(world, table, f"letter = '{long}c'")
    assert bool(manifests(proof)) == (not kept)


def test_files_of_dead_rows_have_positions_alone(world: World, table: Table) -> None:
    for stored in world.storage.list(iceberg_prefix(table.id)):
        if stored.path.endswith(".avro"):
            entries = avro.read_container(world.storage.get(stored.path))[1]
            for file in (entry["data_file"] for entry in entries if "data_file" in entry):
                assert not file["content"] or {b["key"] for b in file["lower_bounds"]} == {
                    2147483546
                }


def test_a_manifest_of_a_file_that_is_no_shard_is_named_though_the_table_has_such_an_object(
    world: World, table: Table
) -> None:
    purge(world, table)
    age(world)
    world.sweep(audit=True)
    paths = [o.path for o in world.storage.list(iceberg_prefix(table.id))]
    (path,) = [each for each in paths if each.endswith(".avro") and "-snap-" not in each]
    entries = avro.read_container(world.storage.get(path))[1]
    file = entries[0]["data_file"]
    bounds = [{"key": each["key"], "value": b"d"} for each in file["lower_bounds"][:1]]
    other = {"file_path": "elsewhere", "lower_bounds": bounds, "upper_bounds": bounds}
    named = [{**entries[0], "data_file": {**file, **other}}]
    content = avro.write_container(avro.entry_schema(2), named, {})
    added = f"{iceberg_prefix(table.id)}metadata/other.avro"
    world.storage.put(added, content)
    world.storage.put(f"{data_prefix(table.id)}note.txt", b"no shard")
    assert added in manifests(prove(world, table))
