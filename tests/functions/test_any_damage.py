"""Any object that is damaged: others go on, its table's doors name it and say what to do.

Kinds of objects, each with all damages, at all doors: what they say mends notes is held to it by
the tests of their features. Items are held to the same in tests/contract/test_damaged_registry.py
and test_damaged_state.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import Result

from dormouse.aws import handling
from dormouse.aws.wiring import Wiring
from dormouse.errors import CorruptDataError, DormouseError
from dormouse.messages.stages import (
    CompactionJob,
    ExportTask,
    GarbageCandidates,
    OfTable,
    OutboundMessage,
    PurgeStep,
    RequestStep,
    SparkJobStep,
    TableChanged,
)
from dormouse.settings import Settings
from tests.functions.conftest import Functions, Outbox
from tests.support.command import run_command
from tests.support.damage import DAMAGE, rewrite
from tests.support.depth import in_turn
from tests.support.everything import Everything, in_memory
from tests.support.instances import InMemory
from tests.support.world import letters

REPORTED = {
    "shard": "letters/data/*",
    "delta": "halfway/state/deltas/*/*",
    "snapshot": "letters/state/snapshots/*",
    "sealed sources": "letters/state/sources/*",
    "tree": "halfway/state/trees/*",
    "restored version": "earlier/state/restored/*",
    "run marker": "letters/run-markers/*",
    "purge": "letters/purges/*.json",
    "export": "letters/exports/*.json",
    "Spark request": "letters/spark/*.json",
    "request": "letters/requests/*.json",
}
"""Where the objects are that are missed if one is damaged; below the name of a table its id."""
UNREPORTED = {
    "segment": "letters/state/segments/*",
    "verdicts of a purge": "letters/purges/*/*.json",
    "task of an export": "letters/exports/*/*/00000.json",
    "try": "letters/exports/*/tries/*/*",
    "Spark run": "letters/spark/*/*",
    "step": "letters/jobs/*/steps/*",
    "set aside": "letters/jobs/*/set-aside-*",
    "left by a purge": "letters/requests/*/left.json",
    "reply": "letters/requests/*/reply.json",
    "manifest": "../results/*/_manifest.json",
    "exported file": "../results/*/part-*",
}
"""Of those that are made once more, or that only the past or a failed job needs."""
LISTINGS = (["table", "list"], ["metrics"], ["queues"], ["jobs"], ["table", "unregistered"])
FEW = ("a flipped bit", "that of another", "missing")
ANY_BYTES = ("a flipped bit", "cut short", "emptied")
"""The damages of objects that are no envelopes of JSON."""
OF_TABLE = (["status"], ["jobs"], ["check", "--bytes"], ["query"])


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Everything:
    return in_memory(tmp_path_factory.mktemp("everything") / "world")


@pytest.fixture
def instance(built: Everything, monkeypatch: pytest.MonkeyPatch) -> Iterator[Everything]:
    """The instance as it was built, which functions of it and the command are wired to."""
    built.restore()
    outbox = Outbox()
    settings = Settings("local", "123456789012", built.world.folder)
    wired = Wiring(settings, built.world.services, outbox)  # type: ignore[arg-type]  # a fake
    monkeypatch.setattr(handling, "wiring", lambda: wired)
    yield built
    built.restore()


def dormouse(instance: Everything, *arguments: str) -> Result:
    """Run the command in a new process, so to speak."""
    instance.new_processes()
    return run_command(InMemory.over(instance.world).instance, *arguments)


def damages(instance: Everything, pattern: str) -> Iterator[tuple[str, Path, Callable[[], object]]]:
    """Yield each damage to an object of a kind: its name, the object, and what does it."""
    name, _, below = pattern.partition("/")
    table = instance.tables.get(name)
    data = instance.world.folder / "data"
    found = sorted(data.glob(f"{table.id}/{below}" if table else pattern))
    file = next(file for file in found if file.is_file())
    body = file.read_bytes()
    other = next((f.read_bytes() for f in found[1:] if f.is_file()), b"{}")
    for what, damage in DAMAGE.items():
        if body and (b'"body"' in body or what in ANY_BYTES):
            damaged = damage(body, other)
            yield what, file, lambda damaged=damaged: rewrite(file, damaged)  # type: ignore[misc]
    yield "something else", file, lambda: rewrite(file, b'{"some": "thing"}')
    yield "missing", file, file.unlink


def work(instance: Everything) -> Iterator[OutboundMessage]:
    """Yield a message for all that is to be done with the damaged tables."""
    table, *unfinished = (instance.tables[name] for name in ("letters", "halfway", "earlier"))
    messages = {
        "purges": lambda purge: OutboundMessage("purges", PurgeStep(table.id, purge)),
        "exports": lambda export: OutboundMessage("exports", ExportTask(table.id, export, 0)),
        "requests": lambda key: OutboundMessage("admin", RequestStep(table.id, key)),
    }
    listed = instance.kept["objects"]
    paths = [
        file.relative_to(instance.world.folder / "data") for file in listed if "data" in file.parts
    ]
    for path in (str(path) for path in paths if str(path).startswith(table.id)):
        _, folder, *below = path.removesuffix(".json").split("/")
        if len(below) == 1 and folder in messages:
            yield messages[folder](below[0])
    yield OutboundMessage("spark-jobs", SparkJobStep(table.id, "with-spark"))
    yield OutboundMessage("compaction-jobs", CompactionJob(table.id, 0, "in-steps"))
    yield OutboundMessage("gc-candidates", GarbageCandidates(table.id, 0, ("none-0",)))
    yield from (
        OutboundMessage("table-changes", TableChanged(each.id)) for each in (table, *unfinished)
    )


def raised_by_stages(instance: Everything) -> list[CorruptDataError]:
    """Do all work of the damaged tables; return what is said of damage.

    An error that is none of the library's ends the test.
    """
    said = []
    for message in work(instance):
        instance.new_processes()
        try:
            instance.world.deliver(message)
        except CorruptDataError as error:
            said.append(error)
        except DormouseError as error:
            assert error.explanation
    return said


def raised_by_schedules(instance: Everything) -> list[CorruptDataError]:
    """Run what schedules run; return what is said of damage, and see that others had their turn."""
    functions = Functions(instance.world, handling.wiring().outbox, instance.tables["letters"])  # type: ignore[arg-type]  # a fake
    words, said = instance.tables["words"], []
    for function, event in (("measure", "good"), ("sweep", "good"), ("sweep", "audit")):
        instance.new_processes()
        instance.world.metrics.emitted.clear()
        try:
            functions.invoke(function, event)
        except ExceptionGroup as group:
            said += group.exceptions
        reached = {o.message.table_id for o in functions.sent() if isinstance(o.message, OfTable)}
        measured = {name for name, _ in instance.world.metrics.emitted}
        assert words.id in reached or words.name in measured, function
    assert all(isinstance(error, CorruptDataError) for error in said), said
    return said  # type: ignore[return-value]  # as was just seen


def printed_by_commands(instance: Everything) -> list[str]:
    """Run verbs about all tables and about the damaged ones; return what is said of damage.

    Each ends with a code of its own and says what to do; what can be known is shown.
    """
    said = []
    damaged = ("letters", "halfway", "earlier")
    of_table = ([verb, name, *options] for verb, *options in OF_TABLE for name in damaged)
    for verb in (*LISTINGS, *of_table):
        result = dormouse(instance, *verb)
        assert result.exit_code in (0, 1, 3), (verb, result.output)
        if result.exit_code:
            said.append(result.output)
            assert verb[0] == "check" or "hint: " in result.stderr, (verb, result.output)
        if verb in (["table", "list"], ["metrics"]):
            assert "words" in result.stdout
    return said


def others_go_on(instance: Everything) -> None:
    """See that the table `words` answers, takes files in, and is waited for."""
    for verb, *options in OF_TABLE:
        result = dormouse(instance, verb, "words", *options)
        assert result.exit_code == 0, result.output
    instance.world.drop("words/more.parquet", letters("w"))
    instance.world.settle()
    assert dormouse(instance, "query", "words", "--count").stdout == "4\n"
    assert dormouse(instance, "wait", "words", "--timeout", "9").exit_code == 0


@pytest.mark.parametrize("kind", [*REPORTED, *UNREPORTED])
def test_any_damage_to_an_object_is_its_tables_alone(instance: Everything, kind: str) -> None:
    pattern = REPORTED.get(kind) or UNREPORTED[kind]
    for what, file, damage in in_turn(list(damages(instance, pattern)), parts=3):
        if kind in UNREPORTED and what not in FEW:
            continue
        instance.restore()
        damage()
        commands = printed_by_commands(instance)
        errors = raised_by_schedules(instance)
        others_go_on(instance)
        errors += raised_by_stages(instance)
        assert all(error.hint for error in errors), (what, errors)
        if what != "missing" and kind in REPORTED:
            said = (*commands, *map(str, errors))
            assert any(file.name.partition(".")[0] in each for each in said), (what, said)


def test_an_instance_that_is_whole_says_nothing_of_damage(instance: Everything) -> None:
    assert printed_by_commands(instance) == []
    assert raised_by_schedules(instance) == []
    others_go_on(instance)
    assert raised_by_stages(instance) == []


@pytest.mark.parametrize("kind", ["delta", "snapshot"])
def test_a_rebuild_mends_any_damage_to_a_state(instance: Everything, kind: str) -> None:
    before = dormouse(instance, "query", "letters").stdout
    for what, _, damage in damages(instance, REPORTED[kind]):
        instance.restore()
        damage()
        rebuilt = dormouse(instance, "rebuild", "letters", "--force")
        assert rebuilt.exit_code == 0, (what, rebuilt.output)
        assert dormouse(instance, "query", "letters").stdout == before
        assert dormouse(instance, "check", "letters").exit_code == 0
