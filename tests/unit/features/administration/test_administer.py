"""What administrators ask for happens once, whole, or not at all, however often it is delivered."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, get_args, get_type_hints

import pytest

from dormouse.errors import AlreadyExistsError, ContendedError, InvalidRequestError, NotFoundError
from dormouse.features.administration import administer
from dormouse.features.deletion import delete_whole_table
from dormouse.features.rebuild import rebuild
from dormouse.features.requests import RequestResult
from dormouse.messages.requests import (
    AdminRequest,
    CreateTable,
    DeleteTable,
    ReinitialiseTable,
    RenameTable,
    Request,
    SetDefaults,
    SetProperties,
)
from dormouse.messages.stages import load
from dormouse.ports import Services
from dormouse.tables.table import Table
from tests.support.world import LETTERS, Crash, World, letters


def now(world: World, table: Table) -> Table:
    found = world.tables.get(table.id)
    assert found is not None
    return found


@pytest.mark.parametrize("kind", get_args(AdminRequest))
def test_what_carries_a_request_out_takes_requests_of_its_type(kind: type[Request]) -> None:
    function = load(kind.path)
    services, *table, request = inspect.signature(function).parameters
    hints = get_type_hints(function)
    assert (hints[services], hints[request]) == (Services, kind)
    assert [hints[name] for name in table] in ([], [Table])
    assert hints["return"] is RequestResult or not kind.causes_jobs


@pytest.mark.parametrize(
    "request_",
    [
        CreateTable("r", "caf\udce9", LETTERS.to_json()),
        DeleteTable("r", "caf\udce9"),
        SetProperties("r", "letters", {"csv_null": "\udce9"}),
        SetDefaults("r", {"csv_null": "\udce9"}),
    ],
)
def test_text_that_no_message_could_have_is_refused(world: World, request_: AdminRequest) -> None:
    world.create()
    with pytest.raises(InvalidRequestError, match="is not UTF-8"):
        administer(world.services, request_)


class TestCreating:
    @pytest.mark.parametrize("old_name_is_taken", [False, True])
    def test_a_redelivery_leaves_a_table_alone_that_has_another_name_by_now(
        self, world: World, old_name_is_taken: bool
    ) -> None:
        table = world.create("letters")
        world.drop("letters/1.parquet", letters("abc"))
        world.settle()
        world.administer(RenameTable("rename", "letters", "others"))
        if old_name_is_taken:
            world.administer(CreateTable("another", "letters", LETTERS.to_json()))
        world.delete_job_record("create-letters")
        world.administer(CreateTable("create-letters", "letters", LETTERS.to_json()))
        assert world.names(now(world, table)) == "abc"
        assert [t.name for t in world.tables.all() if t.id == table.id] == ["others"]

    def test_a_name_taken_at_the_last_moment_harms_no_other_delivery_of_the_request(
        self, world: World
    ) -> None:
        request = CreateTable("create-letters", "letters", LETTERS.to_json())

        def made_and_renamed_by_another_delivery() -> None:
            table = world.create("letters")
            world.administer(RenameTable("rename", "letters", "others"))
            world.administer(CreateTable("another", "letters", LETTERS.to_json()))
            assert len(world.state(now(world, table)).partitions) == 1

        world.before_next_commit(made_and_renamed_by_another_delivery)
        world.administer(request)
        (table,) = (t for t in world.tables.all() if t.name == "others")
        assert len(world.state(table).partitions) == 1


class TestDeleting:
    def test_who_looks_at_a_table_that_is_being_deleted_is_told_that_it_is_gone(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table, delete = world.create("letters"), world.storage.delete
        world.drop("letters/1.parquet", letters("abc"))
        world.settle()
        errors = []

        def delete_and_look(paths: Sequence[str]) -> None:
            delete(paths)
            with pytest.raises(NotFoundError) as error:
                world.new_store(table).current()
            errors.append(error)

        monkeypatch.setattr(world.storage, "delete", delete_and_look)
        world.delete(table)
        assert errors


class TestRenaming:
    def test_a_renamed_table_has_its_rows_and_takes_files_under_its_new_name(
        self, world: World
    ) -> None:
        table = world.create("letters")
        world.drop("letters/1.parquet", letters("ab"))
        world.settle()
        world.administer(RenameTable("r", "letters", "words"))
        world.drop("words/2.parquet", letters("cd"))
        world.drop("letters/3.parquet", letters("ef"))
        world.settle()
        assert world.names(now(world, table)) == "abcd"
        (refused,) = [r for r in world.tracker.records("-") if r.state == "refused"]
        assert refused.subject == "letters/3.parquet"
        assert "no table 'letters'" in refused.reason

    def test_a_job_made_under_the_old_name_is_finished_under_the_new_one(
        self, world: World
    ) -> None:
        table = world.create("letters")
        world.drop("letters/1.parquet", letters("ab"))
        world.administer(RenameTable("r", "letters", "words"))
        world.settle()
        assert world.names(now(world, table)) == "ab"

    def test_a_redelivery_that_finds_the_old_name_gone_knows_its_own_work(
        self, world: World
    ) -> None:
        table = world.create("letters")
        request = RenameTable("r", "letters", "words")
        world.administer(request)
        world.tracker.kept.clear()  # as if cut off before it was recorded
        world.administer(request)
        assert now(world, table).name == "words"

    def test_a_late_redelivery_does_not_undo_a_later_renaming(self, world: World) -> None:
        table = world.create("letters")
        world.administer(RenameTable("r1", "letters", "words"))
        world.administer(RenameTable("r2", "words", "letters"))
        world.tracker.kept.clear()
        world.administer(RenameTable("r1", "letters", "words"))
        assert now(world, table).name == "letters"

    @pytest.mark.parametrize(
        ("old", "new", "error", "said"),
        [
            ("letters", "words", AlreadyExistsError, "words"),
            ("nobody", "other", NotFoundError, "nobody"),
            ("letters", "../up", InvalidRequestError, "../up"),
        ],
    )
    def test_a_renaming_that_cannot_be_is_refused_with_the_reason(
        self, world: World, old: str, new: str, error: type[Exception], said: str
    ) -> None:
        world.create("letters")
        world.create("words")
        with pytest.raises(error, match=said):
            administer(world.services, RenameTable("r", old, new))
        record = world.job_record("r")
        assert record is not None
        assert (record.state, said in record.reason) == ("refused", True)
        assert sorted(t.name for t in world.tables.all()) == ["letters", "words"]


class TestProperties:
    def test_a_table_has_its_own_then_the_instances_then_the_default(self, world: World) -> None:
        table = world.create("letters", compaction_files=5)
        world.administer(SetDefaults("d", {"compaction_files": 7, "gc_delay_seconds": 8}))
        world.administer(SetProperties("s", "letters", {"split_threshold_rows": 100}))
        properties = now(world, table).properties
        assert properties.compaction_files == 5
        assert properties.gc_delay_seconds == 8
        assert properties.split_threshold_rows == 100
        world.administer(SetProperties("u", "letters", {}, ("compaction_files",)))
        assert now(world, table).properties.compaction_files == 7
        world.administer(SetDefaults("e", {}, ("compaction_files",)))
        assert now(world, table).properties.compaction_files == 12

    @pytest.mark.parametrize(
        ("properties", "unset", "said"),
        [
            ({"compaction_file": 3}, (), "did you mean compaction_files"),
            ({"compaction_files": 1}, (), "at least 2"),
            ({"compaction_files": "3"}, (), "whole number"),
            ({"compaction_files": True}, (), "whole number"),
            ({"ingest_file_strategy": "automatic"}, (), "did you mean auto"),
            ({"state_store": "dynamodb"}, (), "cannot change"),
            ({"filters": "ageOff(nothing,1)"}, (), "nothing"),
            ({}, ("compaction_file",), "did you mean compaction_files"),
            ({"compaction_files": 3}, ("compaction_files",), "set and unset"),
        ],
    )
    def test_what_cannot_be_set_is_refused_with_what_could(
        self, world: World, properties: dict[str, object], unset: tuple[str, ...], said: str
    ) -> None:
        table = world.create("letters")
        with pytest.raises(InvalidRequestError) as refused:
            administer(world.services, SetProperties("s", "letters", properties, unset))
        assert said in refused.value.explanation
        assert now(world, table) == table

    def test_the_instance_cannot_have_what_one_of_its_tables_cannot(self, world: World) -> None:
        world.create("letters")
        for properties in ({"state_store": "dynamodb"}, {"filters": "ageOff(nothing,1)"}):
            with pytest.raises(InvalidRequestError):
                administer(world.services, SetDefaults("d", properties))
        assert world.tables.defaults() == {}


class TestReinitialising:
    def test_an_emptied_table_has_no_rows_and_goes_on(self, world: World) -> None:
        table = world.create("letters", splits=[("m",)])
        world.drop("letters/1.parquet", letters("az"))
        world.settle()
        world.administer(ReinitialiseTable("r", "letters"))
        assert world.names(now(world, table)) == ""
        assert len(world.state(now(world, table)).partitions) == 3
        world.drop("letters/2.parquet", letters("bc"))
        world.settle()
        assert world.names(now(world, table)) == "bc"

    def test_its_partitions_can_be_given_anew(self, world: World) -> None:
        table = world.create("letters", splits=[("m",)])
        world.administer(ReinitialiseTable("r", "letters", False, (("g",), ("t",))))
        leaves = world.state(now(world, table)).partitions.leaves()
        assert [leaf.range.min for leaf in leaves] == [(), ("g",), ("t",)]

    def test_a_redelivery_does_not_empty_it_again(self, world: World) -> None:
        table = world.create("letters")
        request = ReinitialiseTable("r", "letters")
        world.administer(request)
        world.drop("letters/1.parquet", letters("ab"))
        world.settle()
        world.tracker.kept.clear()
        world.administer(request)
        world.settle()
        assert world.names(now(world, table)) == "ab"

    def test_one_cut_off_before_its_commit_is_finished_by_the_redelivery(
        self, world: World
    ) -> None:
        table = world.create("letters")
        world.drop("letters/1.parquet", letters("ab"))
        world.settle()
        request = ReinitialiseTable("r", "letters")
        world.before_next_commit(world.crash)
        with pytest.raises(Crash):
            administer(world.services, request)
        world.administer(request)
        assert world.names(now(world, table)) == ""
        assert world.state(now(world, table)).generation == 1

    def test_files_dropped_before_are_not_ingested_after(self, world: World) -> None:
        table = world.create("letters")
        world.drop("letters/1.parquet", letters("ab"))
        world.settle()
        world.drop("letters/2.parquet", letters("cd"))  # its job is queued
        world.clock.advance(seconds=1)
        world.administer(ReinitialiseTable("r", "letters"))
        world.settle()
        world.sweep(audit=True)
        world.settle()
        assert world.names(now(world, table)) == ""
        assert any("was reset" in r.reason for r in world.tracker.records(table.id))

    def test_a_job_for_a_generation_that_is_yet_to_begin_waits_for_it(self, world: World) -> None:
        table = world.create("letters")
        request = ReinitialiseTable("r", "letters")
        world.before_next_commit(world.crash)
        with pytest.raises(Crash):
            administer(world.services, request)
        world.drop("letters/1.parquet", letters("ab"))
        with pytest.raises(ContendedError, match="about to be reset"):
            world.deliver(world.queue[0])
        world.administer(request)
        world.settle()
        assert world.names(now(world, table)) == "ab"

    def test_the_shards_of_an_emptied_table_are_deleted_after_the_delay(self, world: World) -> None:
        table = world.create("letters")
        world.drop("letters/1.parquet", letters("ab"))
        world.settle()
        world.age_objects(seconds=0)
        world.clock.advance(seconds=3600)
        world.administer(ReinitialiseTable("r", "letters"))
        world.sweep(audit=True)
        assert world.shard_objects(table)
        world.clock.advance(seconds=3600)
        world.sweep(audit=True)
        assert not world.shard_objects(table)

    def test_a_rebuild_does_not_bring_back_what_was_there_before(self, world: World) -> None:
        table = world.create("letters")
        world.drop("letters/1.parquet", letters("ab"))
        world.settle()
        world.administer(ReinitialiseTable("r", "letters"))
        world.drop("letters/2.parquet", letters("cd"))
        world.settle()
        assert len(world.shard_objects(table)) == 2
        rebuilt, _ = rebuild(world.services, now(world, table))
        assert [reason for _, reason in rebuilt.left_out] == [
            "it was written before the table was reset"
        ]
        assert world.names(now(world, table)) == "cd"
        world.drop("letters/3.parquet", letters("e"))
        world.settle()
        assert world.names(now(world, table)) == "cde"


def test_a_deletion_that_another_delivery_finishes_is_finished(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = world.create("letters")
    inner = world.tables.change

    def meanwhile(*arguments: Any, **named: Any) -> Table:
        monkeypatch.setattr(world.tables, "change", inner)
        delete_whole_table(
            world.services, table
        )  # by another delivery, which has not recorded it yet
        return inner(*arguments, **named)

    monkeypatch.setattr(world.tables, "change", meanwhile)
    world.administer(DeleteTable("twice", "letters"))
    record = world.job_record("twice")
    assert record is not None and record.state == "finished"
