"""Publishing a table that others damage, move, rebuild, restore and rename meanwhile."""

from __future__ import annotations

import io
import json
from collections import deque
from collections.abc import Callable

import pyarrow.parquet as pq
import pytest

from dormouse.features.publishing import problems
from dormouse.features.rebuild import rebuild
from dormouse.iceberg.metadata import read_previous
from dormouse.messages.requests import (
    PublishIceberg,
    RenameTable,
    RestoreVersion,
    SetProperties,
    TagVersion,
)
from dormouse.messages.stages import OutboundMessage
from dormouse.schema.schema import parse_schema
from dormouse.tables.table import Table
from tests.support.world import World, letters, letters_file
from tests.unit.features.publishing.test_publish_iceberg import (
    PUBLISHED,
    drop,
    objects,
    publish,
    published_files,
    record_of,
    shards_of,
)

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda body: body[: len(body) // 2],
    "empty": lambda body: b"",
    "a bit in the middle": lambda body: _flipped(body, len(body) // 2),
    "a bit at the end": lambda body: _flipped(body, len(body) - 3),
    "another number": lambda body: body.replace(b'"last-sequence-number":', b'"last-sequence":'),
    "foreign": lambda body: b"{}",
}


def _flipped(body: bytes, at: int) -> bytes:
    return body[:at] + bytes([body[at] ^ 4]) + body[at + 1 :]


def put_in_place(world: World, path: str, body: bytes) -> None:
    world.storage.delete([path])
    world.storage.put(path, body)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", ["metadata.json", "-snap-", "-deletes-"])
def test_what_is_damaged_is_named_and_the_next_change_publishes_all_again(
    world: World, kind: str, damage: str
) -> None:
    table = with_dead_rows(world)
    paths = [
        path for path in objects(world, table) if kind in path and _is_read(world, table, path)
    ]
    assert paths
    for path in paths:
        put_in_place(world, path, DAMAGES[damage](world.storage.get(path)))
    drop(world, "xyz", at=20)
    assert record_of(world, table).sequence > 1
    assert list(problems(world.services, table)) == []
    assert published_files(world, table) == shards_of(world, table)


def _is_read(world: World, table: Table, path: str) -> bool:
    """Return whether an object is what the newest version names."""
    previous = read_previous(record_of(world, table).metadata, world.storage.get)
    named = {str(each["manifest_path"]) for each in previous.manifests}
    named |= {previous.current["manifest-list"], previous.path}
    return any(each.endswith(path) for each in named)


def with_dead_rows(world: World) -> Table:
    """Return a published table, one shard of which was compacted away in one of two partitions."""
    spanning = {"ingest_file_strategy": "one_reference_per_leaf"}
    in_pairs = {"compaction_strategy": "batch", "compaction_files": 2}
    table = world.create(splits=[("c",)], **PUBLISHED, **in_pairs, **spanning)
    jobs = deque[OutboundMessage]()
    for number in range(2):
        world.drop(f"letters/{number}.parquet", letters("abcd", at=10 * number))
        while world.queue:
            message = world.queue.popleft()
            if message.queue == "compaction-jobs":
                jobs.append(message)
            elif message.queue != "gc-candidates":
                world.queue += world.deliver(message)
    world.queue += world.deliver(jobs[0])
    world.deliver_all_but("gc-candidates")
    assert any("-deletes-" in path for path in objects(world, table))
    return table


def test_damaged_metadata_is_named_by_a_check(world: World) -> None:
    table = world.create(**PUBLISHED)
    drop(world, "abc")
    drop(world, "def", at=9)
    (path,) = [p for p in objects(world, table) if "-snap-2-" in p]
    put_in_place(world, path, world.storage.get(path) + b" ")
    (problem,) = problems(world.services, table)
    assert path in problem and "is not what was published there" in problem


@pytest.mark.parametrize("kind", ["-data-", "-snap-"])
def test_a_manifest_of_another_table_is_named_by_a_check_and_goes_with_all(
    world: World, kind: str
) -> None:
    table, other = world.create(**PUBLISHED), world.create("words", **PUBLISHED)
    for name in ("letters", "words"):
        world.drop(f"{name}/1.parquet", letters("abc"))
    world.deliver_all_but("gc-candidates")
    own, foreign = (
        sorted(p for p in objects(world, each) if kind in p)[0] for each in (table, other)
    )
    put_in_place(world, own, world.storage.get(foreign))
    said = "which is of another" if kind == "-data-" else "is not what was published there"
    assert any(said in problem for problem in problems(world.services, table))
    world.administer(PublishIceberg("again", "letters", all=True))
    world.settle()
    assert list(problems(world.services, table)) == []
    assert published_files(world, table) == shards_of(world, table)


def renamed(world: World, table: Table) -> None:
    world.administer(RenameTable("rename", "letters", "words"))


def rebuilt(world: World, table: Table) -> None:
    world.set_online(table, False)
    world.deliver_all_but("iceberg-changes")
    rebuild(world.services, table)
    now = world.tables.get(table.id)
    assert now is not None and now.state_id != table.state_id


def restored(world: World, table: Table) -> None:
    world.administer(TagVersion("tag", "letters", 2, "first"))
    world.administer(RestoreVersion("restore", "letters", 2))


def formatted(world: World, table: Table) -> None:
    for number, version in enumerate(("3", "2", "3")):
        world.administer(SetProperties(f"set{number}", "letters", {"iceberg_format": version}))


def switched(world: World, table: Table) -> None:
    for number, value in enumerate(("off", "on")):
        world.administer(SetProperties(f"set{number}", "letters", {"iceberg": value}))


def altered(world: World, table: Table) -> None:
    world.alter(table, rename={"note": "remark"})


def gone_back(world: World, table: Table) -> None:
    world.clock.ms -= 24 * 3600 * 1000


MEANWHILE = [renamed, rebuilt, restored, formatted, switched, altered, gone_back]


@pytest.mark.parametrize("meanwhile", MEANWHILE)
def test_whatever_happens_between_two_publications_the_newest_version_is_published(
    world: World, meanwhile: Callable[[World, Table], None]
) -> None:
    table = with_dead_rows(world)
    before = record_of(world, table)
    meanwhile(world, table)
    world.deliver_all_but("gc-candidates")
    now = world.tables.get(table.id)
    assert now is not None
    assert now != table or meanwhile is gone_back
    world.drop(f"{now.name}/more.parquet", _rows_for(now))
    world.set_online(now, True)
    world.deliver_all_but("gc-candidates")
    now = world.tables.get(table.id)
    assert now is not None
    publish(world, now)
    record = record_of(world, now)
    assert record.sequence > before.sequence
    assert list(problems(world.services, now)) == []
    assert published_files(world, now) == shards_of(world, now)
    body = json.loads(world.storage.get(record.metadata))
    assert [s["timestamp-ms"] for s in body["snapshots"]] == sorted(
        s["timestamp-ms"] for s in body["snapshots"]
    )
    assert len({s["snapshot-id"] for s in body["snapshots"]}) == len(body["snapshots"])
    times = [each.published_ms for each in record.checkpoints]
    assert times == sorted(times)


def _rows_for(table: Table) -> bytes:
    """Return more rows, with the columns as they are called now."""
    columns = pq.read_table(io.BytesIO(letters_file(letters("bcx", at=50))))
    sink = io.BytesIO()
    pq.write_table(columns.rename_columns([field.name for field in table.schema.fields]), sink)
    return sink.getvalue()


def test_a_wide_table_is_published(world: World) -> None:
    columns = ", ".join(f"c{number}:long?" for number in range(990))
    table = world.create(
        schema=parse_schema(f"letter:string, at:long, {columns}", ["letter"]), **PUBLISHED
    )
    world.drop("letters/1.parquet", [{"letter": "a", "at": 1, "note": "n"}])
    world.deliver_all_but("gc-candidates")
    publish(world, table)
    body = json.loads(world.storage.get(record_of(world, table).metadata))
    assert len(body["schemas"][-1]["fields"]) == 992


def lost(world: World, table: Table) -> None:
    world.storage.delete([record_of(world, table).metadata])


def damaged(world: World, table: Table) -> None:
    path = record_of(world, table).metadata
    put_in_place(
        world, path, world.storage.get(path).replace(b'"next-row-id":', b'"next-row-id":-')
    )


def forgotten(world: World, table: Table) -> None:
    world.publications.delete(table.id)


def withdrawn(world: World, table: Table) -> None:
    for number, value in enumerate(("off", "on")):
        world.administer(SetProperties(f"set{number}", "letters", {"iceberg": value}))
        world.deliver_all_but("gc-candidates")


def without_ids(world: World, table: Table) -> None:
    for number, version in enumerate(("2", "3")):
        world.administer(SetProperties(f"set{number}", "letters", {"iceberg_format": version}))
        world.deliver_all_but("gc-candidates")


@pytest.mark.parametrize("how", [lost, damaged, forgotten, withdrawn, without_ids])
def test_ids_of_rows_are_never_used_again(
    world: World, how: Callable[[World, Table], None]
) -> None:
    table = world.create(**PUBLISHED, iceberg_format="3")
    drop(world, "abc")
    body = json.loads(world.storage.get(record_of(world, table).metadata))
    how(world, table)
    now = world.tables.get(table.id)
    assert now is not None
    drop(world, "de", at=20)
    publish(world, now)
    newest = json.loads(world.storage.get(record_of(world, now).metadata))
    assert min(s["first-row-id"] for s in newest["snapshots"]) >= body["next-row-id"] > 0
