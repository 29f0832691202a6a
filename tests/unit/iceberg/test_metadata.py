"""Metadata: schemas, how long snapshots are listed, ids, and names that are never used again."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from dormouse.iceberg import avro, liveness
from dormouse.iceberg.liveness import quick_shards
from dormouse.iceberg.metadata import WHOLE_PUBLICATIONS, read_previous, retained
from dormouse.iceberg.publication import Changes, PublicationSource, plan_publication
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import Primitive
from dormouse.state.partitions import OverlayMap
from dormouse.state.state import TableState
from dormouse.tables.properties import Properties
from dormouse.tables.table import Table
from tests.support.published import MINUTE_MS, SCHEMA, PublishedTable, half_dead, rows


def test_an_altered_schema_is_published_without_a_snapshot(table: PublishedTable) -> None:
    table.ingest(rows(0, 10))
    table.publish()
    before = table.metadata()
    added = Field("more", Primitive.DATE, nullable=True)
    table.schema = replace(SCHEMA, values=(replace(SCHEMA.values[0], name="t"), added))
    table.publish()
    after = table.metadata()
    assert after["snapshots"] == before["snapshots"]
    assert after["current-schema-id"] == after["schemas"][1]["schema-id"]
    assert [field["name"] for field in after["schemas"][1]["fields"]] == ["k", "t", "more"]
    assert [item.path.endswith(".metadata.json") for item in table.put] == [True]
    first = table.record
    table.schema = SCHEMA
    table.publish()
    assert table.metadata()["current-schema-id"] == before["current-schema-id"]
    assert table.record and first and table.record.metadata != first.metadata


def test_an_id_of_a_schema_means_one_schema_for_ever(table: PublishedTable) -> None:
    """Also in manifests, and after it is no longer listed: ClickHouse refuses the table otherwise,
    and a reader that keeps schemas would return columns under wrong names.
    """
    meant: dict[int, dict[str, object]] = {}

    def publish(schema: Schema) -> None:
        table.schema = schema
        table.ingest(rows(0, 10))
        table.publish()
        headers = [
            json.loads(avro.read_container(item.content)[0]["schema"])
            for item in table.put
            if item.path.endswith(".avro")
            and "/metadata/" in item.path
            and "snap-" not in item.path
        ]
        assert headers
        for found in (*table.metadata()["schemas"], *headers):
            assert meant.setdefault(found["schema-id"], found) == found

    renamed, other = (
        replace(SCHEMA, values=(replace(SCHEMA.values[0], name=name),)) for name in ("t", "u")
    )
    publish(SCHEMA)
    publish(renamed)
    publish(SCHEMA)
    table.now_ms += 10 * table.table.properties.gc_delay_seconds * 1000
    publish(SCHEMA)
    assert len(table.metadata()["schemas"]) == 1
    publish(other)
    assert len(meant) == 3


def test_a_name_of_an_object_is_never_used_again(table: PublishedTable) -> None:
    """What was superseded may be deleted at any moment, also if the same content is put again."""
    names: set[str] = set()
    for schema in (SCHEMA, replace(SCHEMA, values=()), SCHEMA, replace(SCHEMA, values=())):
        table.schema = schema
        table.publish()
        put = {item.path for item in table.put}
        assert put
        assert not put & names
        assert max(names, default="") < min(put), "names begin with a number that ascends"
        names |= put


def test_snapshots_are_listed_for_the_delay_after_they_were_replaced(table: PublishedTable) -> None:
    table.properties = Properties(gc_delay_seconds=10 * 60)
    for number in range(20):
        table.ingest(rows(number, number + 1))
        table.publish()
    listed = [int(item["timestamp-ms"]) for item in table.metadata()["snapshots"]]
    oldest_replaced_ms = min(listed) + MINUTE_MS
    assert oldest_replaced_ms + 10 * MINUTE_MS == table.now_ms + MINUTE_MS
    assert len(set(listed)) == 11


def test_expired_snapshots_go_though_nothing_changed(table: PublishedTable) -> None:
    table.ingest(rows(0, 1))
    table.publish()
    table.ingest(rows(1, 2))
    table.publish()
    table.publish()
    assert table.put == []
    table.now_ms += table.properties.gc_delay_seconds * 1000
    table.publish()
    versions = {item["summary"]["dormouse.version"] for item in table.metadata()["snapshots"]}
    assert versions == {str(table.state.version)}
    assert [item.path.endswith(".metadata.json") for item in table.put] == [True]


def test_at_most_a_hundred_snapshots_are_listed(table: PublishedTable) -> None:
    table.properties = Properties(gc_delay_seconds=24 * 60 * 60)
    table.ingest(rows(0, 1))
    for number in range(115):
        table.state = replace(
            table.state, version=number + 2, time_ms=table.now_ms + number * 10 * MINUTE_MS
        )
        table.schema = replace(SCHEMA, values=()) if number % 2 else SCHEMA
        table.now_ms += MINUTE_MS
        shard = structs.replace(next(iter(table.state.shards.values())), rows=number + 1)
        table.added = [structs.replace(shard, id=f"{shard.id}{number}")]
        table.publish()
    snapshots = table.metadata()["snapshots"]
    assert len(snapshots) <= 100
    newest = snapshots[-2 * WHOLE_PUBLICATIONS :]
    parents = [item["parent-snapshot-id"] for item in newest[1:]]
    assert parents == [item["snapshot-id"] for item in newest[:-1]]
    refs = table.metadata()["refs"]
    assert {ref["snapshot-id"] for ref in refs.values()} <= {s["snapshot-id"] for s in snapshots}


def test_versions_after_a_rebuild_have_other_ids(table: PublishedTable) -> None:
    table.ingest(rows(0, 1))
    before = table.publish()
    previous = read_previous(before.metadata, table.storage.get)
    table.ingest(rows(1, 2))
    rebuilt = Table("table", "table", SCHEMA, log="b", logs=("a", "b"))
    plan = plan_publication(
        PublicationSource(rebuilt, table.root, table.format_version, sequence=before.sequence),
        table.state,
        None,
        previous,
        now_ms=table.now_ms,
    )
    *_, metadata = plan.publication({}).objects
    assert json.loads(metadata.content)["current-snapshot-id"] == 2 + 2 * 2**40


def publish_rebuilt(table: PublishedTable) -> dict[str, Any]:
    """Publish the state as that of a rebuilt table; return the metadata."""
    before = table.record
    assert before is not None
    rebuilt = Table("table", "table", SCHEMA, log="b", logs=("a", "b"))
    plan = plan_publication(
        PublicationSource(rebuilt, table.root, table.format_version, sequence=before.sequence),
        table.state,
        None,
        read_previous(before.metadata, table.storage.get),
        now_ms=table.now_ms,
    )
    *_, metadata = plan.publication({}).objects
    return dict(json.loads(metadata.content))


def test_times_do_not_go_back_though_the_clock_of_a_rebuilt_state_does(
    table: PublishedTable,
) -> None:
    table.ingest(rows(0, 10))
    table.publish()
    time_ms = table.metadata()["last-updated-ms"]
    table.ingest(rows(10, 20))
    table.state = replace(table.state, time_ms=time_ms - 3600_000)
    body = publish_rebuilt(table)
    assert len(body["snapshots"]) == 3
    times = [each["timestamp-ms"] for each in body["snapshot-log"]]
    assert times == sorted(times)
    assert body["last-updated-ms"] == times[-1] == time_ms


def test_a_version_of_the_state_before_a_rebuild_is_not_listed_for_longer_than_others(
    table: PublishedTable,
) -> None:
    table.ingest(rows(0, 10))
    table.publish()
    earlier = table.metadata()["current-snapshot-id"]
    delay_ms = table.table.properties.gc_delay_seconds * 1000
    first, second = (
        {"snapshot-id": number, "timestamp-ms": at, "summary": {"dormouse.version": "5"}}
        for number, at in ((earlier, 0), (earlier + 2**41, 1))
    )
    assert retained([first, second], delay_ms, delay_ms) == [first, second]
    assert retained([first, second], delay_ms + 2, delay_ms) == [second]


def test_another_place_or_format_begins_a_list_of_its_own(table: PublishedTable) -> None:
    half_dead(table)
    before = table.publish()
    previous = read_previous(before.metadata, table.storage.get)
    moved = PublicationSource(table.table, "s3://elsewhere", table.format_version)
    plan = plan_publication(moved, table.state, Changes(), previous, now_ms=table.now_ms)
    assert list(plan.unranked) == ["job0-0"]
    made = plan.publication({"job0-0": [(0, 500)]})
    assert made.sequence > before.sequence
    assert not [item for item in made.objects if table.root.encode() in item.content]


def test_shards_that_nothing_references_need_not_be_rewritten() -> None:
    state = TableState(reference_counts=OverlayMap.of({"gone": 0, "here": 1}))
    assert quick_shards(state) == ["here"]


def test_old_encodings_are_announced_until_the_last_shard_of_them_is_gone(
    table: PublishedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.ingest(rows(0, 1))
    assert quick_shards(table.state) == ["job0-0"]
    table.publish()
    assert table.metadata()["properties"]["read.parquet.vectorization.enabled"] == "false"
    monkeypatch.setattr(liveness, "is_plain", lambda shard: True)
    table.publish()
    assert table.metadata()["properties"] == {"gc.enabled": "false"}
