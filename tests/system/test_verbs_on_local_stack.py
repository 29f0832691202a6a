"""What people ask for, by command and by message, against the real functions."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from dormouse.client.table import TableHandle
from dormouse.features.batch_files import refusal_of
from dormouse.messages.requests import (
    AdminRequest,
    AlterSchema,
    ClearAccess,
    CollectGarbage,
    CompactTable,
    CreateTable,
    DeleteTable,
    GrantAccess,
    PurgeRows,
    ReinitialiseTable,
    RenameTable,
    RevokeAccess,
    SetDefaults,
    SetOnline,
    SetProperties,
    SplitPartitions,
    verb_of,
)
from dormouse.messages.stages import SelectionMessage, encode
from dormouse.ports import NO_TABLE
from dormouse.schema.schema import Schema
from dormouse.stored.paths import table_prefix
from dormouse_cli.main import app
from tests.support.waiting import LIMIT_SECONDS
from tests.system.admin import ACCEPTED, Admin
from tests.system.conftest import System

SCHEMA: dict[str, Any] = {
    "rowKeyFields": [{"name": "n", "type": "LongType"}],
    "valueFields": [{"name": "note", "type": "StringType", "nullable": True}],
}
COLUMN = {"name": "more", "type": "LongType", "nullable": True}
IDS = (f"request-{number}" for number in itertools.count())
Ask = Callable[[AdminRequest, Sequence[str]], None]
Step = Callable[[str, str], tuple[AdminRequest, Sequence[str]]]


def rows(first: int, last: int) -> pa.Table:
    numbers = range(first, last)
    return pa.table({"n": pa.array(numbers, pa.int64()), "note": [f"note {n}" for n in numbers]})


def until(system: System, what: Callable[[], object]) -> None:
    system.instance.polling.until_nothing(
        lambda: int(not what()), timeout_seconds=LIMIT_SECONDS, looks=1
    )


@pytest.fixture(scope="module")
def admin(system: System) -> Admin:
    return Admin()


def by_command(request: AdminRequest, arguments: Sequence[str]) -> None:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output


def by_message(admin: Admin) -> Ask:
    def ask(request: AdminRequest, arguments: Sequence[str]) -> None:
        admin.send(encode(request))
        first, reply = admin.first_reply(request.request_id), admin.reply(request.request_id)
        assert (reply["outcome"], reply["reason"]) == ("finished", ""), reply
        assert reply["request"] == verb_of(request)
        assert (first["outcome"] == ACCEPTED) == bool(reply["counts"].get("jobs"))

    return ask


STEPS: Mapping[str, Step] = {
    "rename": lambda i, t: (
        RenameTable(i, f"old-{t}", t, reply=True),
        ["table", "rename", f"old-{t}", t],
    ),
    "set": lambda i, t: (
        SetProperties(i, t, {"compaction_files": 9, "gc_delay_seconds": 0}, reply=True),
        ["table", "set", t, "compaction_files=9", "gc_delay_seconds=0"],
    ),
    "unset": lambda i, t: (
        SetProperties(i, t, unset=("compaction_files",), reply=True),
        ["table", "unset", t, "compaction_files"],
    ),
    "defaults": lambda i, t: (
        SetDefaults(i, {"compaction_files": 11}, reply=True),
        ["instance", "set", "compaction_files=11"],
    ),
    "defaults unset": lambda i, t: (
        SetDefaults(i, unset=("compaction_files",), reply=True),
        ["instance", "unset", "compaction_files"],
    ),
    "grant": lambda i, t: (
        GrantAccess(i, "local", t, ("read",), ("note",), reply=True),
        ["access", "grant", "local", t, "read", "--hide", "note", "--force"],
    ),
    "revoke": lambda i, t: (
        RevokeAccess(i, "local", t, reply=True),
        ["access", "revoke", "local", t],
    ),
    "access off": lambda i, t: (ClearAccess(i, reply=True), ["access", "off", "--force"]),
    "alter": lambda i, t: (
        AlterSchema(i, t, (COLUMN,), rename={"note": "text"}, reply=True),
        ["table", "alter", t, "--add-field", "more:long", "--rename-field", "note=text"],
    ),
    "offline": lambda i, t: (SetOnline(i, t, False, reply=True), ["table", "offline", t]),
    "split": lambda i, t: (
        SplitPartitions(i, t, forced=True, reply=True),
        ["split", t, "--forced"],
    ),
    "compact": lambda i, t: (CompactTable(i, t, all=True, reply=True), ["compact", t, "--all"]),
    "gc": lambda i, t: (CollectGarbage(i, t, reply=True), ["gc", t]),
    "purge": lambda i, t: (
        PurgeRows(i, t, SelectionMessage(where="n = 3"), reply=True),
        ["table", "purge", t, "--where", "n = 3", "--force"],
    ),
    "reinitialise": lambda i, t: (
        ReinitialiseTable(i, t, False, ((10,), (20,)), reply=True),
        ["table", "reinitialise", t, "--splits", "splits.txt", "--force"],
    ),
    "online": lambda i, t: (SetOnline(i, t, True, reply=True), ["table", "online", t]),
}


WORK = ("split", "compact", "purge")
"""The verbs that functions go on with."""


def seen(table: TableHandle) -> dict[str, object]:
    """What a person sees of a table."""
    state = table.state()
    return {
        "schema": table.schema.to_json(),
        "settings": table.table.settings,
        "files": table.table.properties.compaction_files,
        "online": table.table.online,
        "leaves": [leaf.range.min for leaf in state.partitions.leaves()],
        "references": state.reference_count,
        "garbage": len(state.unreferenced),
        "rows": table.count(),
    }


def life(system: System, name: str, ask: Ask) -> dict[str, dict[str, object]]:
    """Create a table and send every verb; return what is seen after each."""
    old = f"old-{name}"
    create = CreateTable(next(IDS), old, SCHEMA, {}, ((15,),), reply=True)
    arguments = ["table", "add", old, "--schema", "schema.json", "--splits", "first.txt"]
    ask(create, arguments)
    table = system.instance.table(old)
    for first in (0, 10):
        table.ingest(rows(first, first + 20)).wait(LIMIT_SECONDS)
    found: dict[str, dict[str, object]] = {}
    for verb, step in STEPS.items():
        ask(*step(next(IDS), name))
        if verb in WORK:
            system.instance.wait(LIMIT_SECONDS)
            until(system, lambda: not system.instance.table(name).state().unreferenced)
        found[verb] = seen(system.instance.table(name))
        found[verb]["rules"] = len(system.instance.access_rules() or ())
    ask(DeleteTable(next(IDS), name, reply=True), ["table", "delete", name, "--force"])
    assert name not in [table.name for table in system.instance.tables()]
    assert not list(system.instance.services.storage.list(table_prefix(table.table.id)))
    return found


def test_a_message_does_what_the_command_does(
    system: System, admin: Admin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("schema.json").write_text(json.dumps(SCHEMA))
    Path("first.txt").write_text("15\n")
    Path("splits.txt").write_text("10\n20\n")
    commanded = life(system, "commanded", by_command)
    assert life(system, "asked", by_message(admin)) == commanded
    assert commanded["set"]["files"] == 9
    assert commanded["defaults"]["files"] == 11
    assert commanded["defaults unset"]["files"] == 12
    rules = [commanded[verb]["rules"] for verb in ("grant", "revoke", "access off")]
    assert rules == [1, 0, 0]
    assert commanded["split"]["leaves"] == [(), (10,), (15,), (20,)]
    assert commanded["compact"]["references"] == 4
    assert commanded["gc"]["rows"] == 40
    assert commanded["purge"]["rows"] == 39
    assert (commanded["reinitialise"]["rows"], commanded["reinitialise"]["leaves"]) == (
        0,
        [(), (10,), (20,)],
    )


def test_what_a_request_cannot_have_is_replied(system: System, admin: Admin) -> None:
    admin.send(encode(RenameTable("refused", "nobody", "somebody", reply=True)))
    reply = admin.reply("refused")
    assert (reply["outcome"], reply["request"]) == ("refused", "rename_table")
    assert "there is no table 'nobody'" in reply["reason"]


def dead_letters(system: System) -> dict[str, str]:
    letters = system.instance.dead_letters().show("admin")
    return {letter.body: letter.reason for letter in letters}


def test_a_malformed_request_is_a_dead_letter_with_its_reason(system: System, admin: Admin) -> None:
    bad = {
        "not JSON": "not JSON at all",
        "no type": '{"request_id": "x", "name": "t"}',
        "unknown type": '{"type": "drop_everything", "request_id": "x"}',
        "unknown field": '{"type": "delete_table", "request_id": "x", "name": "t", "now": true}',
        "missing field": '{"type": "delete_table", "request_id": "x"}',
        "wrong version": '{"type": "delete_table", "request_id": "x", "name": "t", "v": 2}',
        "wrong kind": '{"type": "set_online", "request_id": "x", "name": "t", "online": "no"}',
        "no id": '{"type": "delete_table", "request_id": "", "name": "t"}',
        "a list": "[]",
        "huge": json.dumps({"type": "delete_table", "request_id": "x", "nam": "t" * 200_000}),
    }
    expected = {
        "not JSON": "JSON is malformed",
        "no type": "missing required field `type`",
        "unknown type": "Invalid value 'drop_everything'",
        "unknown field": "unknown field `now`",
        "missing field": "missing required field `name`",
        "wrong version": "$.v",
        "wrong kind": "$.online",
        "no id": "1 to 128 characters",
        "a list": "got `array`",
        "huge": "unknown field `nam`",
    }
    for body in bad.values():
        admin.send(body)
    try:
        until(system, lambda: dead_letters(system).keys() >= set(bad.values()))
        reasons = dead_letters(system)
        for name, said in expected.items():
            assert said in reasons[bad[name]], name
    finally:
        system.instance.dead_letters().discard("admin")


def test_every_file_dropped_while_a_table_is_renamed_is_ingested_or_refused(system: System) -> None:
    table = system.instance.create_table("moving", Schema.from_json(SCHEMA))
    dropped = [table.ingest(rows(10 * i, 10 * i + 10), f"{i}.parquet") for i in range(4)]
    moved = system.instance.rename_table("moving", "moved")
    dropped += [table.ingest(rows(10 * i, 10 * i + 10), f"{i}.parquet") for i in range(4, 6)]
    dropped += [moved.ingest(rows(10 * i, 10 * i + 10), f"{i}.parquet") for i in range(6, 8)]
    sources = [source for each in dropped for source in each.sources]

    def refused() -> list[object]:
        found = [refusal_of(moved.services, s, NO_TABLE, moved.table.id) for s in sources]
        return [record.reason for record in found if record is not None]

    until(system, lambda: moved.count() + 10 * len(refused()) >= 80)
    assert moved.count() + 10 * len(refused()) == 80
    assert moved.count(exact=75) == 1
    assert all("there is no table 'moving'" in str(reason) for reason in refused())


def test_an_offline_table_ingests_and_answers_but_rests_until_it_is_online(system: System) -> None:
    properties = {"compaction_strategy": "batch", "compaction_files": 2, "split_threshold_rows": 25}
    table = system.instance.create_table("resting", Schema.from_json(SCHEMA), properties)
    system.instance.set_online("resting", False)
    for first in (0, 10, 20):
        table.ingest(rows(first, first + 10)).wait(LIMIT_SECONDS)
    table.wait(LIMIT_SECONDS)
    state = table.state()
    assert (state.reference_count, len(state.partitions), table.count()) == (3, 1, 30)
    system.instance.set_online("resting", True)
    table.wait(LIMIT_SECONDS)
    state = table.state()
    assert (len(state.partitions) > 1, table.count()) == (True, 30)


def test_a_table_deleted_with_work_queued_leaves_nothing_and_its_name_is_free(
    system: System,
) -> None:
    properties = {"compaction_strategy": "batch", "compaction_files": 2}
    schema = Schema.from_json(SCHEMA)
    table = system.instance.create_table("doomed", schema, properties)
    before = sum(each.dead for each in system.instance.queue_states()[0])
    table.ingest(rows(0, 10)).wait(LIMIT_SECONDS)
    table.ingest(rows(10, 20))
    system.instance.compact("doomed", everything=True)
    system.instance.delete_table("doomed")
    again = system.instance.create_table("doomed", schema)
    again.ingest(rows(30, 33)).wait(LIMIT_SECONDS)
    # Not until nothing is pending: a job that lost its table midway comes again only in a while.
    storage = system.instance.services.storage
    prefix = table_prefix(table.table.id)
    system.instance.polling.until_nothing(
        lambda: len(list(storage.list(prefix))), timeout_seconds=LIMIT_SECONDS
    )
    found = {row["n"] for row in again.query().read_all().to_pylist()}
    assert found <= {*range(10, 20), 30, 31, 32} and found >= {30, 31, 32}
    assert sum(each.dead for each in system.instance.queue_states()[0]) == before
