"""The functions on batches with a poisoned message, on odd events, and on odd schedules."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any
from unittest.mock import patch

from hypothesis import strategies as st

from dormouse.aws import handling
from dormouse.aws import handling as deliveries
from dormouse.aws.handling import changed_run, created_objects
from dormouse.errors import ContendedError, DormouseError, InvalidRequestError, InvariantError
from dormouse.messages import stages as m
from dormouse.messages.requests import decode_admin
from dormouse.state.validation import broken_invariants
from tests.functions.conftest import TABLE_ID, Functions, record
from tests.fuzz.batches import BESIDE, MIDDLE, STAGES, Batch, batch, instance, to_damage
from tests.fuzz.mutations import mangled_json, odd_tree, odd_values
from tests.fuzz.samples import BUCKET
from tests.fuzz.targets import Target
from tests.support.lambda_context import Context
from tests.support.world import World
from tests.template.conftest import QUEUE_OF


def _files(body: str) -> object:
    try:
        return m.decode(body, m.FilesWaiting)
    except InvalidRequestError:
        return created_objects(body, BUCKET)


_DECODERS: dict[str, Callable[[str], object]] = {
    **{stage.name: stage.decode for stage in m.STAGES},
    "administer": decode_admin,
    "batch_files": _files,
    "track_spark": changed_run,
}


def says_something(stage: str, body: str) -> bool:
    """Return whether a function can read a message."""
    try:
        _DECODERS[stage](body)
    except InvalidRequestError:
        return False
    return True


def _poisoned(stage: str, poison: bytes) -> None:
    """Who cannot be read is a dead letter with its reason, and does not come again; who can be is
    done, or comes again because its time is yet to come. Its neighbours have their effect.
    """
    body = poison.decode(errors="replace")
    with instance() as functions, failures() as seen:
        good = batch(functions, stage)
        before = rows_of(functions)
        again = functions.deliver(stage, good.bodies[0], body, good.bodies[2])
        letters = [(queue, text) for queue, text, reason in functions.outbox.dead if reason.strip()]
        if says_something(stage, body):
            assert letters == []
            assert all(isinstance(error, ContendedError) for error in seen), seen
            assert again == [str(MIDDLE)] * len(seen), again
        else:
            assert letters == [(QUEUE_OF[stage], body)], functions.outbox.dead
            assert (again, seen) == ([], [])
        check_beside(functions, good)
        if stage != "administer":
            assert not before - rows_of(functions), "rows are lost"


def _enveloped(stage: str, data: st.DataObject) -> None:
    """An event of a form that Lambda never sends may end in an exception: then all of it comes
    again. No message that it has whole is deleted undone, nor one without a body, and when all
    come again, as they are, all is done and no row is lost. One without records is one without
    messages.
    """
    with instance() as functions, failures():
        good = batch(functions, stage)
        before = rows_of(functions)
        records = [record(str(number), body) for number, body in enumerate(good.bodies)]
        event = data.draw(_odd_events(records))
        handler = import_module(f"functions.{stage}.handler")
        try:
            failed = handler.handle(event, Context())["batchItemFailures"]
        except Exception as error:
            assert not isinstance(error, InvariantError), error
            failed = [{"itemIdentifier": each["messageId"]} for each in records]
        kept = {each["itemIdentifier"] for each in failed}
        for number, each in enumerate(records):
            if each in records_in(event) and each["messageId"] not in kept:
                assert good.is_done(number), number
        for each in records_in(event):
            if not isinstance(each.get("body"), str) and each.get("messageId") in ("0", "1", "2"):
                assert each["messageId"] in kept, each
        assert functions.deliver(stage, *good.bodies) == []
        check_beside(functions, good)
        assert good.is_done(MIDDLE)
        if stage != "collect_garbage":
            assert not before - rows_of(functions), "rows are lost"


def _odd_events(records: list[dict[str, object]]) -> st.SearchStrategy[Any]:
    """Return events whose record in the middle lacks something or has it oddly, or odd anywhere."""
    first, middle, last = records

    def lacking(name: str) -> dict[str, object]:
        return {key: value for key, value in middle.items() if key != name}

    name = st.sampled_from(["body", "body", "body", *sorted(middle)])
    in_middle = name.map(lacking) | st.tuples(name, odd_values).map(
        lambda odd: middle | dict([odd])
    )
    in_event = in_middle.map(lambda odd: {"Records": [first, odd, last]})
    anywhere = odd_tree([{"Records": records}])
    return st.sampled_from([in_event, in_event, in_event, anywhere]).flatmap(lambda chosen: chosen)


def records_in(event: Any) -> list[dict[str, Any]]:
    """Return the records of an event, whatever it is."""
    records = event.get("Records") if isinstance(event, dict) else None
    found = records if isinstance(records, list) else []
    return [each for each in found if isinstance(each, dict)]


def _swept(event: Any) -> None:
    """Whatever the schedule says, every table is swept, and audited only if it says so. What is no
    object, which no schedule sends, may end in an exception, before anything was done.
    """
    with instance() as functions, failures():
        functions.world.sources.drop("letters/missed.csv", b"letter,at\nq,1\n")
        functions.outbox.sent.clear()
        handler = import_module("functions.sweep.handler")
        try:
            handler.handle(event, Context())
        except AttributeError:
            assert not isinstance(event, dict)
            assert functions.outbox.sent == []
            return
        queues = [outgoing.queue for outgoing in functions.outbox.sent]
        audited = ["ingest-jobs"] if event.get("audit") is True else []
        assert queues == ["table-changes", *audited], queues
        check_states(functions.world)


def _measured(event: Any) -> None:
    """What starts the measuring does not matter."""
    with instance() as functions, failures():
        functions.world.metrics.emitted.clear()
        import_module("functions.measure.handler").handle(event, Context())
        assert [name for name, _ in functions.world.metrics.emitted] == ["letters"]


def check_beside(functions: Functions, good: Batch) -> None:
    """Check that the messages beside the one in the middle were done, and states are consistent."""
    assert [good.is_done(number) for number in BESIDE] == [True, True]
    check_states(functions.world)


def check_states(world: World) -> None:
    """Check that the state of every table is consistent."""
    for table in world.tables.all():
        if not table.deleting:
            assert not broken_invariants(world.new_store(table).current())


def rows_of(functions: Functions) -> Counter[str]:
    """Count the rows of the table of letters by their letter; none if the table is gone."""
    table = functions.world.tables.get(TABLE_ID)
    return Counter(functions.world.names(table) if table and not table.deleting else "")


@contextmanager
def failures() -> Iterator[list[DormouseError]]:
    """Return what the functions log as failed; any error but our own is a finding."""
    seen: list[DormouseError] = []
    log = _Log(seen)
    with patch.object(handling, "logger", log), patch.object(deliveries, "logger", log):
        yield seen


class _Log:
    """Keeps the errors that are logged, those of a group one by one, and nothing else."""

    def __init__(self, errors: list[DormouseError]) -> None:
        self._errors = errors

    def exception(self, *_: object, **__: object) -> None:
        error = sys.exc_info()[1]
        found = error.exceptions if isinstance(error, ExceptionGroup) else [error]
        for each in found:
            self._keep(each)

    def _keep(self, error: BaseException | None) -> None:
        self._errors.append(error)  # type: ignore[arg-type]  # looked at by who asks for them

    def info(self, *_: object, **__: object) -> None:
        pass

    warning = error = info


def _damaged(stage: str) -> st.SearchStrategy[bytes]:
    return st.deferred(lambda: mangled_json(to_damage(stage)))


_TIMES: list[Any] = [{"audit": True}, {"version": "0", "detail-type": "Scheduled Event"}]
_odd_event = odd_tree(_TIMES) | odd_values

TARGETS: dict[str, Target] = {
    **{
        f"function {stage}": Target(_damaged(stage), partial(_poisoned, stage), quick=15)
        for stage in STAGES
    },
    **{
        f"envelope of {stage}": Target(st.data(), partial(_enveloped, stage), quick=20)
        for stage in ("administer", "batch_files", "ingest", "plan_table", "collect_garbage")
    },
    "schedule of sweep": Target(_odd_event, _swept, quick=20),
    "schedule of measure": Target(_odd_event, _measured, quick=10),
}
