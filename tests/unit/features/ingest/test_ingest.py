"""ingest: what becomes of rows by the table's own rules, and in how many shards."""

from __future__ import annotations

import errno
import json

import pytest

from dormouse.errors import ContendedError, InvalidRequestError
from dormouse.features import ingest as ingest_stage
from dormouse.features.ingest import ingest
from dormouse.features.purge_rows import prove_purge
from dormouse.messages.requests import ReinitialiseTable, SetProperties
from dormouse.messages.stages import IngestJob, OutboundMessage, PartitionSplits
from dormouse.state.rules import Rejected, Rule, Violation
from dormouse.stored.paths import REJECTED
from dormouse.tables.table import Table
from tests.support.adapters import HookedStore
from tests.support.purges import purge_request
from tests.support.trees import LEFT, part
from tests.support.world import World, letters


def test_filtered_rows_are_not_written_and_the_record_has_both_counts(world: World) -> None:
    table = world.create(filters="where(letter < 'c')")
    world.drop("letters/1.parquet", letters("dacb"))
    job = world.queue[0].message
    assert isinstance(job, IngestJob)
    world.settle()
    assert [row["letter"] for row in world.rows(table)] == ["a", "b"]
    (shard,) = world.state(table).shards.values()
    assert (shard.rows, shard.max_key) == (2, ("b",))
    record = world.tracker.get(table.id, job.job_id)
    assert record is not None
    assert (record.state, record.rows_read, record.rows) == ("finished", 4, 2)


def test_rows_that_cannot_be_read_are_left_out_once_and_kept_beside(world: World) -> None:
    """The same file, dropped where it says so, however often, and whatever crashed meanwhile."""
    table = world.create(splits=[("m",)])
    prefix = REJECTED.prefix(table.id)
    body = b"letter,at,note\na,1,x\n1,x,2\nb,2,\n"

    def rejected() -> dict[str, bytes]:
        return {each.path: world.storage.get(each.path) for each in world.storage.list(prefix)}

    world.drop("letters/1.csv", body)
    world.settle()
    assert not world.rows(table)
    source = world.drop("letters/on-error=skip/1.csv", body)
    job = world.queue[0].message
    assert isinstance(job, IngestJob)
    world.settle(twice=True)
    found = rejected()
    ((path, line),) = found.items()
    assert json.loads(line)["line"] == 3
    assert json.loads(line)["text"] == "1,x,2"
    for key in ("letters/1.csv", source.key):
        world.drop(key, body)
        world.settle()
    world.administer(SetProperties("1", table.name, {"ingest_on_error": "skip"}))
    world.drop("letters/1.csv", body)
    world.drop("letters/2.csv", b"letter,at,note\nc,y,\n")
    world.drop("letters/on-error=refuse/3.csv", body)
    world.settle(twice=True)
    assert rejected() == found
    assert [row["letter"] for row in world.rows(table)] == ["a", "b"]
    record = world.tracker.get(table.id, job.job_id)
    assert record is not None
    assert (record.rows_read, record.rows) == (3, 2)
    assert "3 rows read, 2 ingested, 1 rejected: see " in record.reason
    assert path in record.reason
    assert sum(each.state == "refused" for each in world.tracker.records(table.id)) == 3

    where = purge_request(table.schema, "letter = 'a'")
    proof = prove_purge(world.services, table, where)
    assert path in {each.path for each in proof.remains}
    for days, left in ((34, 1), (36, 0)):
        world.age_objects(seconds=days * 24 * 3600)
        world.sweep(audit=True)
        world.settle()
        assert len(rejected()) == left


def test_a_job_none_of_whose_rows_count_is_done_and_not_repeated(world: World) -> None:
    table = world.create(filters="where(letter < 'a')", splits=[("m",)])
    source = world.drop("letters/1.parquet", letters("xyz"))
    world.settle(twice=True)
    state = world.state(table)
    assert not len(state.shards)
    assert source.id in state.sources
    assert world.rows(table) == []
    assert not world.shard_objects(table)


Placed = list[tuple[str, int, bool]]


def placed(world: World, table: Table) -> list[Placed]:
    """Return for each shard its references: partition, rows, whether they are exact."""
    state = world.state(table)
    found: dict[str, Placed] = {}
    for leaf in state.partitions.leaves():
        for held in state.references_in(leaf.id):
            found.setdefault(held.shard, []).append((leaf.id, held.rows, held.exact))
    return sorted(found.values())


TOGETHER: list[Placed] = [
    [(part("", "h"), 2, True), (part("h", "p"), 1, True), (part("p"), 3, True)]
]
APART: list[Placed] = sorted([held] for held in TOGETHER[0])


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [("one_file_per_leaf", APART), ("one_reference_per_leaf", TOGETHER), ("auto", TOGETHER)],
)
def test_rows_get_a_shard_for_each_leaf_or_one_with_exact_counts_for_each(
    world: World, strategy: str, expected: list[Placed]
) -> None:
    table = world.create(splits=[("h",), ("p",)], ingest_file_strategy=strategy)
    world.drop("letters/1.parquet", letters("zacxmx"))
    world.settle()
    assert placed(world, table) == expected
    assert [row["letter"] for row in world.rows(table)] == sorted("zacxmx")


def test_csv_files_are_read_as_the_table_says(world: World) -> None:
    table = world.create(csv_separator=";", csv_header="no", csv_null="-")
    world.drop("letters/1.csv", b"a;1;x,y\nb;2;-\n")
    world.settle()
    assert [tuple(row.values()) for row in world.rows(table)] == [("a", 1, "x,y"), ("b", 2, None)]


def test_a_table_whose_csv_marks_contradict_each_other_cannot_be_made_or_set(world: World) -> None:
    with pytest.raises(InvalidRequestError, match="the same character"):
        world.create("others", csv_separator="'", csv_quote="'")
    table = world.create(csv_separator=";")
    with pytest.raises(InvalidRequestError, match="the same character"):
        world.administer(SetProperties("1", table.name, {"csv_quote": ";"}))
    assert world.tables.named(table.name).properties.csv_quote == '"'  # type: ignore[union-attr]


def test_a_job_of_a_later_generation_is_redelivered_and_adds_nothing(world: World) -> None:
    table = world.create()
    source = world.sources.drop("letters/1.csv", b"letter,at\na,1\n")
    job = IngestJob(table.id, 1, "early", (source,))
    with pytest.raises(ContendedError, match="about to be reset"):
        ingest(world.services, job)
    assert not world.rows(table)
    world.administer(ReinitialiseTable("empty", "letters"))
    ingest(world.services, job)
    assert world.names(table) == "a"


def test_a_disk_that_fails_is_not_the_fault_of_the_file(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = world.create()
    source = world.drop("letters/1.parquet", letters("ab"))

    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="broken"):
        patch.setattr(ingest_stage, "load_sources", fails)
        world.deliver(world.queue[0])
    assert world.tracker.get(table.id, source.id) is None
    world.settle()
    assert world.names(table) == "ab"


def test_an_ingest_that_is_rejected_for_good_is_never_reported_as_done(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = world.create()
    world.drop("letters/1.parquet", letters("ab"))
    (outgoing,) = world.queue
    assert isinstance(outgoing.message, IngestJob)
    refusal = Rejected((Violation(Rule.ROWS_MISCOUNTED, "shard"),))
    with monkeypatch.context() as patch, pytest.raises(ContendedError, match="was rejected"):
        patch.setattr(HookedStore, "commit", lambda *_, **__: (refusal,))
        world.deliver(outgoing)
    record = world.tracker.get(table.id, outgoing.message.job_id)
    assert record is not None
    assert record.state == "failed"


def test_a_shard_for_several_leaves_ends_when_it_is_large_enough(world: World) -> None:
    table = world.create(
        splits=[("m",)], ingest_file_strategy="one_reference_per_leaf", shard_target_bytes=1
    )
    rows = [{"letter": f"{n:06d}", "at": 0} for n in range(40_000)]
    world.drop("letters/1.parquet", rows)
    world.deliver(world.queue.popleft())
    assert len(world.state(table).shards) > 1
    assert len(world.rows(table)) == 40_000


@pytest.mark.parametrize("strategy", ["one_file_per_leaf", "one_reference_per_leaf"])
def test_a_leaf_split_just_before_the_commit_passes_the_rows_on_to_its_children(
    world: World, strategy: str
) -> None:
    table = world.create(splits=[("m",)], ingest_file_strategy=strategy, split_threshold_rows=4)
    world.drop("letters/0.parquet", letters("abcdef"))
    world.deliver(world.queue.popleft())
    world.drop("letters/1.parquet", letters("afez"))
    world.before_next_commit(
        lambda: world.deliver(
            OutboundMessage("partition-splits", PartitionSplits(table.id, 0, (LEFT,)))
        )
    )
    world.deliver(world.queue.popleft())
    state = world.state(table)
    assert [leaf.range.min for leaf in state.partitions.leaves()] == [(), ("d",), ("m",)]
    assert [row["letter"] for row in world.rows(table)] == sorted("abcdefafez")
    world.settle()
    assert [row["letter"] for row in world.rows(table)] == sorted("abcdefafez")
