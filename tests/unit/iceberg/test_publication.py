"""Publications: what is put, what is listed, and that the same state gives the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.iceberg import avro, liveness
from dormouse.iceberg.dead_rows import find_dead_rows
from dormouse.iceberg.manifests import position_deletes
from dormouse.iceberg.metadata import MetadataFile, Totals, read_previous
from dormouse.iceberg.publication import Changes, PublicationSource, plan_publication
from dormouse.state.state import TableState
from tests.support.published import (
    SCHEMA,
    PublishedTable,
    current,
    fetch,
    half_dead,
    live_entries,
    rows,
)


def test_a_snapshot_lists_the_shards_of_its_version_and_what_is_dead(table: PublishedTable) -> None:
    half_dead(table)
    record = table.publish()
    snapshot = current(table)
    assert snapshot["snapshot-id"] == record.version == table.state.version
    assert snapshot["timestamp-ms"] == table.state.time_ms
    found = live_entries(table, snapshot)
    assert sorted(found["data"]) == sorted(f"{shard}.parquet" for shard in table.state.shards)
    assert len(found["deletes"]) == 1
    assert snapshot["summary"]["total-position-deletes"] == "500"
    assert table.metadata()["refs"][f"v{record.version}"]["snapshot-id"] == record.version


def test_row_numbers_of_dead_rows_are_those_of_their_keys(table: PublishedTable) -> None:
    table.ingest(rows(0, 1000))
    for at in (200, 700, 900):
        table.split((at,))
    table.compact((200,))
    table.compact((900,))
    plan = plan_publication(
        PublicationSource(table.table, table.root), table.state, None, None, now_ms=table.now_ms
    )
    (dead,) = find_dead_rows(table.storage, table.table, plan.unranked).values()
    assert dead == ((200, 700), (900, 1000))


def test_scattered_positions_are_in_few_row_groups() -> None:
    content = position_deletes("file:///a", [*((n, n + 1) for n in range(0, 2_500_000, 5))])
    file = pq.ParquetFile(pa.BufferReader(content))
    assert file.num_row_groups == 1
    assert file.read().column("pos").to_pylist() == [*range(0, 2_500_000, 5)]
    twice = pq.ParquetFile(pa.BufferReader(position_deletes("file:///a", [(7, 1_000_010)])))
    assert [twice.metadata.row_group(n).num_rows for n in range(2)] == [1_000_000, 3]


def test_an_equal_state_puts_nothing(table: PublishedTable) -> None:
    half_dead(table)
    record = table.publish()
    again = table.publish()
    assert table.put == []
    assert again == record


def test_a_version_with_equal_content_moves_the_record_alone(table: PublishedTable) -> None:
    half_dead(table)
    record = table.publish()
    table.state = replace(table.state, version=table.state.version + 3, time_ms=table.now_ms + 5)
    moved = table.publish()
    assert table.put == []
    assert moved == replace(record, version=record.version + 3, state_ms=table.now_ms + 5)


def test_two_publishers_of_one_version_put_the_same_bytes(table: PublishedTable) -> None:
    half_dead(table)
    assert table.publish()
    table.ingest(rows(2000, 2100))
    table.compact((600,))
    assert table.record is not None
    previous = read_previous(table.record.metadata, table.storage.get)
    changes = Changes(tuple(table.added))
    made = [
        plan_publication(
            PublicationSource(
                table.table, table.root, table.format_version, sequence=table.record.sequence
            ),
            table.state,
            changes,
            previous,
            now_ms=table.now_ms,
        ).publication({})
        for _ in range(2)
    ]
    assert made[0] == made[1]
    assert made[0].objects


def test_a_change_puts_only_the_manifests_that_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "ENTRIES", 6)
    table = PublishedTable(tmp_path, SCHEMA, [(number * 100,) for number in range(1, 40)])
    table.ingest([{"k": number * 100, "s": None} for number in range(40)])
    table.publish()
    assert len(_kinds(table, "data")) > 3
    names = {item.path for item in table.put}
    table.ingest(rows(50, 55))
    table.publish()
    assert {kind: len(_kinds(table, kind)) for kind in ("data", "news", "snap")} == {
        "data": 1,
        "news": 1,
        "snap": 2,
    }
    assert len(table.put) == 5
    assert not names & {item.path for item in table.put}


def _kinds(table: PublishedTable, kind: str) -> list[str]:
    """Return the objects of a kind that the last publication put."""
    return [item.path for item in table.put if f"-{kind}-" in item.path]


def test_a_delete_file_is_named_again_and_not_put_again(table: PublishedTable) -> None:
    half_dead(table)
    table.publish()
    before = live_entries(table, current(table))["deletes"]
    table.ingest(rows(5000, 5001))
    table.publish()
    assert live_entries(table, current(table))["deletes"] == before
    assert not [item for item in table.put if "/deletes/" in item.path]


def test_appended_shards_are_listed_though_they_were_compacted_since(table: PublishedTable) -> None:
    table.ingest(rows(0, 100))
    table.publish()
    table.ingest(rows(100, 150))
    table.ingest(rows(150, 160))
    table.compact((0,))
    table.publish()
    *_, before, appended, state = table.metadata()["snapshots"]
    assert (appended["summary"]["operation"], state["summary"]["operation"]) == (
        "append",
        "replace",
    )
    assert appended["summary"]["added-records"] == "60"
    assert appended["parent-snapshot-id"] == before["snapshot-id"]
    assert state["parent-snapshot-id"] == appended["snapshot-id"]
    new = set(live_entries(table, appended)["data"]) - set(live_entries(table, before)["data"])
    assert new == {"job1-0.parquet", "job2-0.parquet"}
    assert len(live_entries(table, state)["data"]) == 1


@pytest.mark.parametrize("dead", [False, True])
def test_the_first_publication_adds_all_rows(table: PublishedTable, *, dead: bool) -> None:
    half_dead(table) if dead else table.ingest(rows(0, 1000))
    table.publish()
    added, state = table.metadata()["snapshots"]
    assert "parent-snapshot-id" not in added
    assert added["summary"]["operation"] == ("overwrite" if dead else "append")
    assert live_entries(table, added) == live_entries(table, state)
    assert state["summary"]["operation"] == "replace"


@pytest.mark.parametrize("dead", [False, True])
def test_a_reader_of_appended_rows_gets_each_row_once_or_an_error(
    table: PublishedTable, *, dead: bool
) -> None:
    half_dead(table) if dead else table.ingest(rows(0, 1000))
    table.publish()
    first = table.metadata()["snapshots"][0]["snapshot-id"]
    table.ingest(rows(1000, 1030))
    table.compact((0,))
    table.publish()
    table.ingest(rows(1030, 1100))
    table.publish()
    if dead:
        with pytest.raises(ValueError, match="overwrite"):
            followed(table, first)
        first = table.metadata()["snapshots"][1]["snapshot-id"]
    assert followed(table, first) == (100 if dead else 1100)


def followed(table: PublishedTable, first: int) -> int:
    """Return the rows that a stream from a snapshot on gets, as Spark does it: of each snapshot
    that appends all rows of the files that are new in it, whatever is dead; nothing of one that
    replaces; and it stops at others.
    """
    found = 0
    for snapshot in table.metadata()["snapshots"]:
        operation = snapshot["summary"]["operation"]
        if snapshot["sequence-number"] < _sequence(table, first) or operation == "replace":
            continue
        if operation != "append":
            raise ValueError(operation)
        for record in avro.read_container(fetch(table, snapshot["manifest-list"]))[1]:
            if record["content"] == 0 and record["added_snapshot_id"] == snapshot["snapshot-id"]:
                entries = avro.read_container(fetch(table, record["manifest_path"]))[1]
                added = [entry["data_file"] for entry in entries if entry["status"] == 1]
                found += sum(file["record_count"] for file in added)
    return found


def _sequence(table: PublishedTable, snapshot: int) -> int:
    listed = table.metadata()["snapshots"]
    (found,) = (s["sequence-number"] for s in listed if s["snapshot-id"] == snapshot)
    return int(found)


def test_entries_of_appended_shards_are_new_in_their_snapshot(table: PublishedTable) -> None:
    table.ingest(rows(0, 10))
    table.publish()
    appended = table.metadata()["snapshots"][0]
    (record,) = avro.read_container(fetch(table, appended["manifest-list"]))[1]
    assert record["added_snapshot_id"] == appended["snapshot-id"]
    assert record["sequence_number"] == appended["sequence-number"]
    (entry,) = avro.read_container(fetch(table, record["manifest_path"]))[1]
    assert (entry["status"], entry["snapshot_id"], entry["sequence_number"]) == (1, None, None)


def test_rows_that_vanish_make_the_snapshot_an_overwrite(table: PublishedTable) -> None:
    half_dead(table)
    table.publish()
    gone = TableState(
        version=table.state.version + 1,
        time_ms=table.now_ms,
        partitions=table.state.partitions,
        key_types=table.state.key_types,
    )
    table.state = gone
    table.publish()
    assert current(table)["summary"]["operation"] == "overwrite"
    assert Totals.of(current(table)).live_rows == 0


def test_a_reset_empties_the_table_before_rows_are_appended(table: PublishedTable) -> None:
    half_dead(table)
    table.publish()
    table.state = table.state.reset(0, table.state.partitions, table.state.key_types)
    table.ingest(rows(0, 7))
    added, table.added = tuple(table.added), []
    table.publish_after(Changes(added, reset=True))
    *_, emptied, appended, state = table.metadata()["snapshots"]
    assert live_entries(table, emptied) == {"data": [], "deletes": []}
    assert len(live_entries(table, appended)["data"]) == 1
    assert [item["summary"]["operation"] for item in (emptied, appended, state)] == [
        "delete",
        "append",
        "replace",
    ]


def test_a_restored_version_overwrites(table: PublishedTable) -> None:
    half_dead(table)
    table.publish()
    table.ingest(rows(5000, 5010))
    added, table.added = tuple(table.added), []
    table.publish_after(Changes(added, reset=True, restored=True))
    assert current(table)["summary"]["operation"] == "overwrite"
    assert len(table.metadata()["snapshots"]) == 3


def test_what_was_appended_is_not_said_if_it_is_unknown(table: PublishedTable) -> None:
    table.ingest(rows(0, 10))
    table.publish()
    table.ingest(rows(10, 20))
    table.publish(known=False)
    assert [item["summary"]["operation"] for item in table.metadata()["snapshots"]] == [
        "append",
        "replace",
        "overwrite",
    ]


def test_after_a_purge_no_earlier_snapshot_is_listed(table: PublishedTable) -> None:
    half_dead(table)
    table.publish()
    table.compact((600,))
    record = table.publish(purged=True)
    (snapshot,) = table.metadata()["snapshots"]
    assert snapshot["snapshot-id"] == record.version
    assert snapshot["summary"]["operation"] == "overwrite"
    names = {item.path for item in table.put}
    assert set(reached(table)) - set(_shards(table)) <= names | {record.metadata}


def _shards(table: PublishedTable) -> Iterator[str]:
    return (f"table/data/{shard}.parquet" for shard in table.state.shards)


def reached(table: PublishedTable) -> Iterator[str]:
    """Yield every object that the published metadata names."""
    assert table.record is not None
    published = MetadataFile.read(table.record.metadata, table.storage.get)
    for listed in map(published.list_path, published.snapshots):
        yield listed
        for manifest in published.manifests_in(listed):
            yield published.relative(manifest["manifest_path"])
            yield from published.files(manifest)


def test_every_object_that_is_put_is_named_by_the_metadata(table: PublishedTable) -> None:
    half_dead(table)
    table.publish()
    put = {item.path for item in table.put}
    table.ingest(rows(0, 10))
    table.publish()
    put |= {item.path for item in table.put}
    found = set(reached(table))
    unnamed = {path for path in put - found if not path.endswith(".metadata.json")}
    assert not unnamed
    assert set(_shards(table)) <= found
