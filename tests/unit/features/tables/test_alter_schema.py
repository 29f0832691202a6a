"""Schemas altered while a table is at work: nothing is lost, nothing dropped comes back."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dormouse.errors import InvalidRequestError, NotFoundError
from dormouse.features.administration import administer
from dormouse.messages.requests import AlterSchema
from dormouse.messages.stages import CompactionJob, OutboundMessage
from dormouse.ports import Cache
from dormouse.schema.schema import Field
from dormouse.schema.types import Primitive
from dormouse.shards.reading import read_own_footers
from dormouse.tables.table import Table
from tests.support.world import Crash, World, letters

COUNT = Field("count", Primitive.LONG, nullable=True)
NOTE = Field("note", Primitive.STRING, nullable=True)


def drop_json(world: World, name: str, *rows: dict[str, object]) -> None:
    world.drop(f"letters/{name}.json", "\n".join(json.dumps(row) for row in rows).encode())


def column(world: World, table: Table, name: str) -> list[object]:
    return [row[name] for row in world.rows(table)]


def merge_all(world: World, table: Table) -> None:
    """Compact all shards of the table into one."""
    world.tables.change(
        table.id,
        lambda t: t.with_settings({"compaction_strategy": "batch", "compaction_files": 2}, {}),
    )
    world.set_online(table, True)
    world.settle()
    assert len(world.state(table).shards) == 1


def reasons(world: World, table: Table) -> str:
    return "; ".join(r.reason for r in world.tracker.records(table.id) if r.state == "refused")


def test_an_added_column_is_null_in_older_rows_before_and_after_they_are_compacted(
    world: World,
) -> None:
    table = world.create(gc_delay_seconds=0)
    world.drop("letters/1.parquet", letters("ac"))
    world.settle()
    table = world.alter(table, add=[COUNT])
    drop_json(world, "2", {"letter": "b", "at": 1, "count": 7})
    world.settle()
    assert column(world, table, "count") == [None, 7, None]
    merge_all(world, table)
    assert column(world, table, "count") == [None, 7, None]
    assert column(world, table, "note") == ["a0", None, "c1"]


@pytest.mark.parametrize("at_once", [True, False])
def test_values_of_a_dropped_column_never_come_back_under_its_name(
    world: World, at_once: bool
) -> None:
    table = world.create(gc_delay_seconds=0)
    world.drop("letters/1.parquet", letters("ac"))
    world.settle()
    if at_once:
        table = world.alter(table, drop=["note"], add=[NOTE])
    else:
        world.alter(table, drop=["note"])
        table = world.alter(table, add=[NOTE])
    drop_json(world, "2", {"letter": "b", "at": 1, "note": "new"})
    world.settle()
    assert column(world, table, "note") == [None, "new", None]
    merge_all(world, table)
    assert column(world, table, "note") == [None, "new", None]


def test_a_renamed_column_keeps_its_values_through_a_compaction(world: World) -> None:
    table = world.create(gc_delay_seconds=0)
    world.drop("letters/1.parquet", letters("ac"))
    world.settle()
    table = world.alter(table, rename={"note": "remark"})
    drop_json(world, "2", {"letter": "b", "at": 1, "remark": "new"})
    world.settle()
    merge_all(world, table)
    assert column(world, table, "remark") == ["a0", "new", "c1"]
    assert "note" not in world.rows(table)[0]


def test_an_ingest_that_began_before_the_alteration_is_harmless_after_it(world: World) -> None:
    table = world.create()
    world.drop("letters/1.parquet", letters("ab"))
    world.before_next_commit(
        lambda: world.alter(table, rename={"note": "remark"}, add=[NOTE, COUNT])
    )
    world.settle()
    table = altered(world, table)
    assert column(world, table, "remark") == ["a0", "b1"]
    assert column(world, table, "note") == [None, None]


def assigned(world: World, table: Table) -> OutboundMessage:
    """Return the message of a compaction job which is due."""
    for i in range(2):
        world.drop(f"letters/{i}.parquet", letters("ab", at=10 * i))
    while not (world.queue and isinstance(world.queue[0].message, CompactionJob)):
        world.queue += world.deliver(world.queue.popleft())
    return world.queue.popleft()


def altered(world: World, table: Table) -> Table:
    found = world.tables.get(table.id)
    assert found is not None
    return found


def test_a_compaction_that_began_before_the_alteration_is_harmless_after_it(world: World) -> None:
    table = world.create(compaction_files=2, compaction_strategy="batch")
    job = assigned(world, table)
    world.before_next_commit(
        lambda: world.alter(table, rename={"note": "remark"}, add=[NOTE], drop=[])
    )
    world.queue += world.deliver(job)
    table = altered(world, table)
    assert len(world.state(table).jobs) == 0
    assert column(world, table, "remark") == ["a0", "a10", "b1", "b11"]
    assert column(world, table, "note") == [None] * 4


def test_a_second_run_after_an_alteration_adopts_what_the_first_run_wrote_before_it(
    world: World,
) -> None:
    table = world.create(compaction_files=2, compaction_strategy="batch")
    job = assigned(world, table)
    world.before_next_commit(world.crash)
    with pytest.raises(Crash):
        world.deliver(job)
    table = world.alter(table, rename={"note": "remark"}, add=[COUNT])
    world.queue += world.deliver(job)
    assert isinstance(job.message, CompactionJob)
    state = world.state(table)
    (output,) = [state.shards[i] for i in state.shards if i not in state.unreferenced]
    (footer,) = read_own_footers(world.storage, table.id, [output], table.schema, Cache(0))
    assert footer.schema.field_named("note").id == table.schema.field_named("remark").id
    assert column(world, table, "remark") == ["a0", "a10", "b1", "b11"]
    assert column(world, table, "count") == [None] * 4


def test_a_file_for_an_earlier_schema_is_refused_with_what_became_of_its_columns(
    world: World,
) -> None:
    table = world.create()
    table = world.alter(table, rename={"note": "remark"})
    world.drop("letters/1.parquet", letters("ab"))
    world.settle()
    assert "'note': it was renamed to 'remark'" in reasons(world, table)
    table = world.alter(table, drop=["remark"])
    drop_json(world, "2", {"letter": "b", "at": 1, "remark": "old"})
    world.settle()
    assert "'remark': it was dropped" in reasons(world, table)
    assert world.rows(table) == []


def test_a_request_takes_effect_once_even_if_cut_off_and_followed_by_another(world: World) -> None:
    table = world.create()
    first = AlterSchema("alter-1", "letters", (NOTE.to_json(),), ("note",))
    administer(world.services, first)
    world.drop("letters/1.parquet", letters("ab"))
    world.settle()
    world.alter(table, add=[COUNT])
    world.delete_job_record("alter-1")
    administer(world.services, first)
    table = altered(world, table)
    assert column(world, table, "note") == ["a0", "b1"]
    assert [field.name for field in table.schema.values] == ["note", "count"]


def test_a_refused_alteration_changes_nothing_and_is_recorded(world: World) -> None:
    table = world.create()
    with pytest.raises(InvalidRequestError, match="is a key"):
        world.alter(table, add=[COUNT], drop=["letter"], request_id="bad")
    assert altered(world, table).schema == table.schema
    record = world.job_record("bad")
    assert record is not None
    assert record.state == "refused"
    assert "is a key" in record.reason


def test_a_table_that_is_not_there_or_being_deleted_is_not_altered(world: World) -> None:
    table = world.create()
    world.tables.change(table.id, lambda t: replace(t, deleting=True))
    with pytest.raises(NotFoundError):
        world.alter(table, add=[COUNT])
    with pytest.raises(NotFoundError):
        administer(world.services, AlterSchema("x", "nobody", (COUNT.to_json(),)))


def test_a_table_is_not_made_with_more_columns_than_its_property_allows(world: World) -> None:
    with pytest.raises(InvalidRequestError, match="3 columns, and max_fields is 2"):
        world.create(max_fields=2)


SEEN = Field("seen", Primitive.TIMESTAMP, nullable=True)


def test_numbers_for_times_are_ingested_once_the_schema_says_their_unit(world: World) -> None:
    table = world.alter(world.create(), add=[SEEN])
    drop_json(world, "1", {"letter": "a", "at": 1, "seen": 5000})
    world.settle()
    assert column(world, table, "seen") == []
    assert "line 1, column 'seen'" in reasons(world, table)
    assert "numbers need a unit" in reasons(world, table)
    table = world.alter(table, units={"seen": "milliseconds"}, rename={"seen": "met"})
    drop_json(world, "2", {"letter": "a", "at": 1, "met": 5000})
    world.settle()
    assert [str(value) for value in column(world, table, "met")] == ["1970-01-01 00:00:05+00:00"]
    table = world.alter(table, units={"met": ""})
    assert table.schema.field_named("met").unit == ""


@pytest.mark.parametrize(
    ("units", "drop", "reason"),
    [
        ({"seen": "days"}, (), "cannot have numbers of the unit 'days'"),
        ({"note": "seconds"}, (), "cannot have numbers of the unit 'seconds'"),
        ({"gone": "seconds"}, (), "no column 'gone'"),
        ({"seen": "seconds"}, ("seen",), "dropped and given a unit at once"),
    ],
)
def test_a_unit_that_cannot_be_is_refused_and_changes_nothing(
    world: World, units: dict[str, str], drop: tuple[str, ...], reason: str
) -> None:
    table = world.alter(world.create(), add=[SEEN])
    with pytest.raises(InvalidRequestError, match=reason):
        world.administer(AlterSchema("1", table.name, drop=drop, units=units))
    assert world.tables.get(table.id) == table
