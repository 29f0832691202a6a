"""A reset table can get another schema; no earlier row is ever read by it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dormouse.errors import ContendedError, InvalidRequestError, NotFoundError
from dormouse.features.export import load_manifest
from dormouse.features.purge_rows import EARLIER_SCHEMA, prove_purge
from dormouse.features.rebuild import rebuild
from dormouse.features.versions import read_version
from dormouse.keys import Key, encode_key
from dormouse.messages.requests import CompactTable, ReinitialiseTable
from dormouse.messages.stages import OutboundMessage, PartitionSplits, TableChanged
from dormouse.schema.schema import Schema
from dormouse.schema.types import Primitive
from dormouse.state.partitions import ROOT
from dormouse.state.state import SplitPartition
from dormouse.tables.table import Table
from tests.support.instances import InMemory
from tests.support.made_once import made_once
from tests.support.purges import purge_request
from tests.support.world import LETTERS, Crash, World, letters

NUMBERS: dict[str, object] = {
    "rowKeyFields": [{"name": "id", "type": "LongType"}],
    "valueFields": [{"name": "note", "type": "LongType", "nullable": True}],
}
WORDS: dict[str, object] = {
    "rowKeyFields": [{"name": "letter", "type": "StringType"}],
    "sortKeyFields": [{"name": "at", "type": "LongType"}],
    "valueFields": [{"name": "note", "type": "StringType", "nullable": True}],
}
"""As `LETTERS`, so that only their ids distinguish its columns from the earlier ones."""
EMPTY = ReinitialiseTable("r", "letters", True, schema=NUMBERS)


@pytest.fixture
@made_once
def table(world: World) -> Table:
    """A table of two leaves, of three ingests, that nobody compacts."""
    table = world.create("letters", splits=(("m",),))
    world.set_online(table, False)
    for number, text in enumerate(("abz", "bc", "cd")):
        world.drop(f"letters/{number}.parquet", letters(text, at=100 * number))
    world.settle()
    world.clock.advance(seconds=1)
    return table


def now(world: World, table: Table) -> Table:
    found = world.tables.get(table.id)
    assert found is not None
    return found


def leaves_from(world: World, table: Table) -> list[Key]:
    return [leaf.range.min for leaf in world.state(now(world, table)).partitions.leaves()]


def dies(world: World, request: ReinitialiseTable) -> None:
    """Let the process of a request die when the registry has counted, and the state has not."""
    world.before_next_commit(world.crash)
    with pytest.raises(Crash):
        world.administer(request)


def fill(world: World) -> None:
    world.drop("letters/numbers.csv", b"id,note\n7,70\n-3,\n")
    world.settle()


def test_the_new_schema_holds_for_what_comes_and_shares_no_column_with_the_one_before(
    world: World, table: Table
) -> None:
    world.administer(EMPTY)
    fill(world)
    after = now(world, table)
    assert world.rows(after) == [{"id": -3, "note": None}, {"id": 7, "note": 70}]
    assert world.state(after).key_types == (Primitive.LONG,)
    before = {field.id for field in table.schema.fields}
    assert before.isdisjoint(field.id for field in after.schema.fields)
    assert after.schema.next_field_id > max(field.id for field in after.schema.fields)


def test_ids_that_the_given_schema_has_are_not_taken(world: World, table: Table) -> None:
    world.administer(ReinitialiseTable("r", "letters", schema=table.schema.to_json()))
    assert [field.id for field in now(world, table).schema.fields] == [4, 5, 6]


def test_partitions_stay_with_row_keys_of_the_same_types(world: World, table: Table) -> None:
    world.administer(ReinitialiseTable("r", "letters", schema=WORDS))
    assert leaves_from(world, table) == [(), ("m",)]


def test_partitions_that_do_not_fit_the_new_row_keys_are_refused_and_nothing_is_changed(
    world: World, table: Table
) -> None:
    with pytest.raises(InvalidRequestError, match="part 1 is not of type long") as refused:
        world.administer(ReinitialiseTable("r", "letters", schema=NUMBERS))
    assert "delete the partitions, or give split points" in refused.value.hint
    assert "'m'" not in refused.value.explanation
    assert now(world, table).generation == world.state(table).generation == 0
    assert world.names(now(world, table)) == "abbccdz"


def test_partitions_that_fit_row_keys_of_other_types_stay(world: World, table: Table) -> None:
    more = {
        **WORDS,
        "rowKeyFields": [*LETTERS.to_json()["rowKeyFields"], NUMBERS["rowKeyFields"][0]],
    }  # type: ignore[index, misc]
    world.administer(ReinitialiseTable("r", "letters", schema=more))
    assert leaves_from(world, table) == [(), ("m",)]
    assert world.state(now(world, table)).key_types == (Primitive.STRING, Primitive.LONG)


def test_split_points_are_keys_of_the_new_schema(world: World, table: Table) -> None:
    with pytest.raises(InvalidRequestError, match="split point 1"):
        world.administer(ReinitialiseTable("r", "letters", False, (("m",),), schema=NUMBERS))
    world.administer(ReinitialiseTable("s", "letters", False, ((5,),), schema=NUMBERS))
    assert leaves_from(world, table) == [(), (5,)]


def test_a_split_just_before_the_generation_begins_does_not_keep_it_from_beginning(
    world: World,
) -> None:
    table = world.create("letters")
    world.drop("letters/1.parquet", letters("az"))
    world.settle()
    request = ReinitialiseTable("r", "letters", schema=NUMBERS)
    dies(world, request)
    world.new_store(table).commit(SplitPartition(ROOT, encode_key(("m",))), generation=0)
    world.administer(request)
    assert leaves_from(world, table) == [()]
    fill(world)
    assert len(world.rows(now(world, table))) == 2


def test_a_schema_that_the_properties_do_not_fit_is_refused(world: World) -> None:
    table = world.create("letters", filters="ageOff(at, 1000)")
    with pytest.raises(InvalidRequestError, match="do not fit the new schema") as refused:
        world.administer(EMPTY)
    assert "unset its filters" in refused.value.hint
    assert now(world, table) == table


@pytest.mark.parametrize("given", [WORDS, NUMBERS], ids=["alike", "other"])
def test_a_half_reset_table_is_empty_to_every_reader(
    world: World, table: Table, given: dict[str, object]
) -> None:
    handle = InMemory.over(world).instance.table("letters")
    before = world.state(table).version
    dies(world, ReinitialiseTable("r", "letters", True, schema=given))
    assert world.state(table).rows
    assert handle.query().read_all().num_rows == handle.count() == handle.state().rows == 0
    with pytest.raises(NotFoundError, match="rows of an earlier schema"):
        handle.query(as_of=before)
    world.export(now(world, table), to="out")
    world.settle()
    manifest = load_manifest(world.results, "out")
    assert manifest is not None and not manifest.files


def test_versions_of_before_are_refused_and_those_since_are_read(
    world: World, table: Table
) -> None:
    before = world.state(table).version
    world.administer(EMPTY)
    emptied = world.state(table).version
    fill(world)
    handle = InMemory.over(world).instance.table("letters")
    assert (handle.count(as_of=emptied), handle.count()) == (0, 2)
    for asked in (
        lambda: handle.query(as_of=before),
        lambda: handle.count(as_of=before),
        lambda: world.export(table, to="out", as_of=before),
    ):
        with pytest.raises(NotFoundError, match=f"version {before} of .* earlier schema"):
            asked()


def test_a_reader_that_knew_the_table_before_reads_it_by_the_schema_of_its_rows(
    world: World, table: Table
) -> None:
    world.administer(EMPTY)
    fill(world)
    read, state = read_version(world.services, table)
    assert (read, state.rows) == (now(world, table), 2)
    world.delete(table)
    world.settle()
    with pytest.raises(NotFoundError):
        read_version(world.services, table)


def test_a_registry_brought_back_from_a_backup_is_read_with_the_state_there_is(
    world: World, table: Table
) -> None:
    world.administer(ReinitialiseTable("r", "letters"))
    world.tables.by_id[table.id] = table
    assert read_version(world.services, table)[1].generation == 1


def test_a_file_dropped_before_a_reset_is_refused_because_of_the_reset_not_its_columns(
    world: World, table: Table
) -> None:
    world.drop("letters/late.parquet", letters("e"))
    (job,) = world.queue
    world.queue.clear()
    dies(world, EMPTY)
    messages = world.deliver(job)
    (record,) = [r for r in world.tracker.records(table.id) if r.state == "refused"]
    assert "was reset" in record.reason
    world.queue += messages  # nobody else need come for the generation to begin
    world.settle()
    assert world.state(table).generation == 1


Begin = Callable[[World, Table], OutboundMessage]


def a_compaction(world: World, table: Table) -> OutboundMessage:
    world.administer(CompactTable("compact", table.name, all=True))
    return world.queue.popleft()


def a_split(world: World, table: Table) -> OutboundMessage:
    leaf = next(world.state(table).partitions.leaves())
    return OutboundMessage("partition-splits", PartitionSplits(table.id, 0, (leaf.id,), True))


def a_purge(world: World, table: Table) -> OutboundMessage:
    world.purge(table, "", "b")
    return world.queue.pop()


@pytest.mark.parametrize("begin", [a_compaction, a_split, a_purge])
@pytest.mark.parametrize("half", [True, False], ids=["half emptied", "emptied"])
def test_what_was_under_way_is_over(world: World, table: Table, begin: Begin, half: bool) -> None:
    message = begin(world, table)
    before = world.state(table).version
    if half:
        dies(world, EMPTY)
    else:
        world.administer(EMPTY)
        before = world.state(table).version
    objects = world.shard_objects(table)
    world.deliver(message)
    state = world.state(table)
    is_finished = half and state.generation == 1 and not state.shards  # by whoever reads the table
    assert state.version == before or is_finished
    assert world.shard_objects(table) == objects
    world.settle()
    states = {r.state for r in world.tracker.records(table.id) if r.kind in ("purge", "compaction")}
    assert states <= {"finished"}


def test_a_purge_requested_after_a_reset_removes_rows_by_the_new_columns(
    world: World, table: Table
) -> None:
    world.administer(EMPTY)
    fill(world)
    purge = world.purge(now(world, table), "id = 7")
    world.settle()
    assert [row["id"] for row in world.rows(now(world, table))] == [-3]
    record = world.tracker.get(table.id, purge)
    assert record is not None and record.rows


def test_an_export_under_way_goes_on_with_the_rows_and_schema_it_began_with(
    world: World, table: Table
) -> None:
    world.export(table, to="out")
    world.administer(EMPTY)
    world.settle()
    manifest = load_manifest(world.results, "out")
    assert manifest is not None and manifest.rows == 7
    assert Schema.from_json(manifest.schema) == table.schema


def test_a_proof_names_the_objects_of_before_which_it_cannot_judge(
    world: World, table: Table
) -> None:
    dies(world, EMPTY)
    for _ in range(2):  # before the generation begins, and after
        newest = now(world, table)
        proof = prove_purge(world.services, newest, purge_request(newest.schema, "id = 7"))
        assert not proof.is_complete
        assert (proof.rows, {r.reason for r in proof.remains}) == (0, {EARLIER_SCHEMA})
        assert len(proof.remains) == proof.objects == 3
        world.administer(EMPTY)
    request = purge_request(table.schema, "letter = 'b'")
    with pytest.raises(ContendedError, match="another schema"):
        prove_purge(world.services, table, request)


def test_a_rebuild_leaves_out_what_is_of_an_earlier_schema(world: World, table: Table) -> None:
    world.administer(EMPTY)
    fill(world)
    rebuilt, _ = rebuild(world.services, now(world, table))
    assert len(rebuilt.left_out) == 3
    after = now(world, table)
    assert [row["id"] for row in world.rows(after)] == [-3, 7]
    assert world.state(after).key_types == (Primitive.LONG,)


def test_a_rebuild_overtaken_by_a_reset_keeps_the_rows_added_since(
    world: World, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = world.tables.change

    def late(*given: object, **named: object) -> Table:
        monkeypatch.setattr(world.tables, "change", change)
        world.administer(EMPTY)
        fill(world)
        return change(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(world.tables, "change", late)
    rebuild(world.services, table)
    world.queue.append(OutboundMessage("table-changes", TableChanged(table.id)))
    world.settle()
    assert [row["id"] for row in world.rows(now(world, table))] == [-3, 7]


def test_a_request_sent_back_after_another_changed_the_schema_is_done_not_refused(
    world: World, table: Table
) -> None:
    split = ReinitialiseTable("split", "letters", False, (("f",),))
    dies(world, split)
    world.administer(ReinitialiseTable("r", "letters", True, schema=NUMBERS))
    fill(world)
    world.administer(split)
    assert len(world.rows(now(world, table))) == 2
    record = world.tracker.get("", "split")
    assert record is None or record.state == "finished"


def test_split_points_of_an_earlier_schema_are_read_again_by_the_newest(
    world: World, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = world.tables.change

    def late(*given: object, **named: object) -> Table:
        monkeypatch.setattr(world.tables, "change", change)
        world.administer(EMPTY)
        return change(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(world.tables, "change", late)
    split = ReinitialiseTable("split", "letters", False, (("f",),))
    with pytest.raises(ContendedError, match="another schema meanwhile"):
        world.administer(split)
    with pytest.raises(InvalidRequestError, match="split point 1"):
        world.administer(split)
    assert leaves_from(world, table) == [()]


def test_the_same_twice_is_done_once(world: World, table: Table) -> None:
    world.administer(EMPTY)
    fill(world)
    world.tracker.kept.clear()
    world.administer(EMPTY)
    assert len(world.rows(now(world, table))) == 2


def test_a_schema_that_is_none_is_refused(world: World, table: Table) -> None:
    with pytest.raises(InvalidRequestError, match="no row key"):
        world.administer(ReinitialiseTable("r", "letters", schema={"valueFields": []}))
    assert Schema.from_json(NUMBERS) != now(world, table).schema
