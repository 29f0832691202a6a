"""What is lost or turned back around a published table: a clear error, and no row is lost."""

from __future__ import annotations

import json

import pytest

from dormouse.errors import NotFoundError
from dormouse.features.catalog import serve_catalog
from dormouse.features.publish_iceberg import publish_iceberg
from dormouse.features.publishing import problems, published_metadata
from dormouse.http.messages import HttpRequest
from dormouse.messages.requests import PublishIceberg
from dormouse.messages.stages import TableChanged
from dormouse.state.versions import PublicationRecord
from dormouse.stored.paths import iceberg_prefix
from dormouse.tables.table import Table
from tests.support.world import World, letters

DELAY_SECONDS = 600
TABLE = "/iceberg/v1/namespaces/dormouse/tables/letters"


@pytest.fixture
def table(world: World) -> Table:
    found = world.create(iceberg="on", gc_delay_seconds=DELAY_SECONDS)
    for at in range(5):
        world.drop(f"letters/{at}.parquet", letters("a", at=at))
        world.deliver_all_but("gc-candidates")
    return found


def record_of(world: World, table: Table) -> PublicationRecord:
    record = world.publications.get(table.id)
    assert record is not None
    return record


def loaded(world: World, status: int = 200) -> str:
    response = serve_catalog(world.services, HttpRequest("GET", TABLE, {}))
    assert response.status == status, response.body
    return str(json.loads(response.body))


def test_a_lost_pointer_is_said_and_made_again_and_no_shard_goes_meanwhile(
    world: World, table: Table
) -> None:
    newest = record_of(world, table).metadata
    shards = world.shard_objects(table)
    world.publications.delete(table.id)
    with pytest.raises(NotFoundError, match="nothing is published"):
        published_metadata(world.services, table)
    assert "nothing is published" in loaded(world, 404)
    publish_iceberg(world.services, TableChanged(table.id))
    assert world.shard_objects(table) == shards
    record = record_of(world, table)
    assert record.metadata != newest, "no name is used again"
    assert list(problems(world.services, table)) == []
    assert record.metadata in loaded(world)


@pytest.mark.parametrize("kind", ["-data-", "-snap-", ".metadata.json"])
def test_what_is_gone_of_the_metadata_is_named_and_published_again(
    world: World, table: Table, kind: str
) -> None:
    listed = [o.path for o in world.storage.list(iceberg_prefix(table.id)) if kind in o.path]
    newest = record_of(world, table).metadata
    world.storage.delete(listed)
    if kind == ".metadata.json":
        with pytest.raises(NotFoundError, match=newest):
            list(problems(world.services, table))
        assert "--all" in loaded(world, 500)
    else:
        assert any(
            lost in problem for problem in problems(world.services, table) for lost in listed
        )
    world.administer(PublishIceberg("again", "letters", all=True))
    world.deliver_all_but("gc-candidates")
    assert list(problems(world.services, table)) == []
    assert world.names(table) == "aaaaa"


def test_a_clock_that_goes_back_neither_expires_nor_deletes_what_readers_have(
    world: World, table: Table
) -> None:
    world.clock.advance(seconds=3)
    before = json.loads(world.storage.get(record_of(world, table).metadata))
    shards = world.shard_objects(table)
    world.clock.advance(seconds=-3600)
    world.drop("letters/late.parquet", letters("b", at=9))
    world.deliver_all_but("gc-candidates")
    world.sweep(audit=True)
    world.settle()
    after = json.loads(world.storage.get(record_of(world, table).metadata))
    times = [each["timestamp-ms"] for each in after["snapshots"]]
    assert times == sorted(times)
    assert {s["snapshot-id"] for s in before["snapshots"]} <= {
        s["snapshot-id"] for s in after["snapshots"]
    }
    published = [each.published_ms for each in record_of(world, table).checkpoints]
    assert published == sorted(published)
    assert shards <= world.shard_objects(table)
    assert list(problems(world.services, table)) == []


def test_a_version_that_expired_is_gone_and_is_named_by_the_error(
    world: World, table: Table
) -> None:
    old = record_of(world, table).metadata
    for at in range(10, 14):
        world.drop(f"letters/{at}.parquet", letters("c", at=at))
        world.deliver_all_but("gc-candidates")
        world.age_objects(seconds=4 * 3600)
        world.clock.advance(seconds=2 * 3600)
        world.sweep(audit=True)
        world.deliver_all_but("nothing")
    assert old not in {o.path for o in world.storage.list(iceberg_prefix(table.id))}
    with pytest.raises(NotFoundError, match=old):
        world.storage.get(old)
    assert list(problems(world.services, table)) == []
    assert sorted(world.names(table)) == sorted("aaaaacccc")
