"""Row lineage of format 3: each row of a version has an id of its own, which it keeps while its
shard is listed, and the number of the snapshot that had it first.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from dormouse.iceberg import avro, liveness
from dormouse.iceberg.publication import Changes
from tests.support.published import SCHEMA, PublishedTable, current, fetch, half_dead, rows

Lineage = dict[str, tuple[int, int, int]]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PublishedTable:
    monkeypatch.setattr(liveness, "ENTRIES", 2)
    return PublishedTable(tmp_path, SCHEMA, format_version=3)


def lineage(table: PublishedTable, snapshot: dict[str, Any]) -> Lineage:
    """Return the first id, rows and sequence number of each file of a snapshot, read as Iceberg's
    specification says; check that manifests have ids for all, and what is dead applies.
    """
    found: Lineage = {}
    dead: dict[str, int] = {}
    for record in avro.read_container(fetch(table, snapshot["manifest-list"]))[1]:
        assert record["min_sequence_number"] <= record["sequence_number"]
        assert record["sequence_number"] <= snapshot["sequence-number"]
        following = record["first_row_id"]
        assert (following is None) == bool(record["content"])
        for entry in avro.read_container(fetch(table, record["manifest_path"]))[1]:
            file, sequence = entry["data_file"], entry["sequence_number"]
            sequence = record["sequence_number"] if sequence is None else sequence
            assert record["min_sequence_number"] <= sequence
            if record["content"]:
                dead[file["referenced_data_file"]] = sequence
                continue
            first = file["first_row_id"]
            if first is None:
                first, following = following, following + file["record_count"]
            found[file["file_path"]] = (first, file["record_count"], sequence)
    assert all(found[path][2] <= sequence for path, sequence in dead.items())
    return found


def check(table: PublishedTable, known: Lineage) -> Lineage:
    """Check the ids of rows of all snapshots, of which files were `known` before; return the files
    of the newest.
    """
    metadata, following = table.metadata(), 0
    seen = dict(known)
    for snapshot in metadata["snapshots"]:
        assert snapshot["first-row-id"] >= following
        following = snapshot["first-row-id"] + snapshot["added-rows"]
        found = lineage(table, snapshot)
        new = [found[path][2] for path in found.keys() - seen.keys()]
        assert {*new} <= {snapshot["sequence-number"]}
        assert all(seen.setdefault(path, each) == each for path, each in found.items())
        spans = sorted(found.values())
        assert all(a[0] + a[1] <= b[0] for a, b in zip(spans, spans[1:], strict=False)), spans
        assert all(first + count <= following for first, count, _ in spans)
    assert metadata["next-row-id"] == following
    return found


@pytest.mark.parametrize("seed", [1, 10])
def test_rows_keep_their_ids_through_all_that_happens_to_manifests(
    table: PublishedTable, seed: int
) -> None:
    random, known, at = Random(seed), {}, 0
    splits: set[tuple[int]] = set()
    for _ in range(25):
        leaves = list(table.state.partitions.leaves())
        held = [each for each in leaves if table.state.references_in(each.id)]
        match random.choice(("ingest", "ingest", "split", "compact", "publish", "publish")):
            case "ingest":
                count = random.randint(1, 40)
                table.ingest(rows(at, at + count))
                at += random.randint(0, count)
            case "split" if (key := (random.randint(1, at + 50),)) not in splits:
                table.split(key)
                splits.add(key)
            case "compact" if held:
                table.compact(random.choice(held).range.min or (0,))
            case "publish":
                table.publish(known=random.random() < 0.9)
                known = check(table, known)
    assert len(known) > 1


def test_what_is_ingested_is_new_by_its_numbers_and_nothing_else_is(table: PublishedTable) -> None:
    table.ingest(rows(0, 10))
    table.publish()
    before = current(table)["sequence-number"]
    for number in range(1, 4):
        table.ingest(rows(10 * number, 10 * number + 10))
    table.publish()
    newest = check(table, {})
    new = {path for path, (_, _, sequence) in newest.items() if sequence > before}
    assert {path.rpartition("/")[2] for path in new} == {f"job{n}-0.parquet" for n in (1, 2, 3)}


def test_ids_of_rows_are_not_used_again_by_a_new_list_of_snapshots(table: PublishedTable) -> None:
    half_dead(table)
    table.publish()
    following = table.metadata()["next-row-id"]
    table.publish(purged=True)
    assert min(first for first, _, _ in check(table, {}).values()) >= following


def test_a_table_that_was_emptied_numbers_its_new_rows(table: PublishedTable) -> None:
    half_dead(table)
    table.publish()
    known = check(table, {})
    table.ingest(rows(2000, 2010))
    table.publish_after(Changes((table.added.pop(),), reset=True))
    check(table, known)
