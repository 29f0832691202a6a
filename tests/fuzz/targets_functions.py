"""The functions on batches with a poisoned message, and queries with keys of any kind."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import strategies as st

from dormouse import messages
from dormouse.aws import handling
from dormouse.client.keys import ranges_of
from dormouse.errors import DormouseError, InvalidRequestError, InvariantError
from dormouse.messages import Message
from dormouse.model.invariants import broken_invariants
from dormouse.model.sources import Source
from dormouse.ports import NO_TABLE
from dormouse.requests import SetOnline
from dormouse.shards.querying import query_rows
from tests.functions.conftest import TABLE_ID, Functions, instance_in
from tests.fuzz import samples
from tests.fuzz.mutations import ODD_VALUES, mangled_json
from tests.fuzz.targets import Target, told
from tests.support.lambda_context import Context
from tests.support.world import World, letters

_ROWS = b"letter,at,note\na,1,x\n"


@contextmanager
def _instance() -> Iterator[Functions]:
    with tempfile.TemporaryDirectory(prefix="dormouse-fuzz-") as folder:
        functions, wired = instance_in(Path(folder))
        with patch.object(handling, "wiring", lambda: wired):
            yield functions


def _good(functions: Functions, stage: str) -> list[Message | str]:
    """Give two messages whose effect can be looked for."""
    world = functions.world
    if stage == "administer":
        return [SetOnline("a", "letters", False), SetOnline("b", "letters", True)]
    sources = [world.sources.drop(f"letters/{name}.csv", _ROWS) for name in "ab"]
    if stage == "ingest":
        return [messages.IngestJob(TABLE_ID, 0, f"job{i}", (s,)) for i, s in enumerate(sources)]
    return [json.dumps({"Records": [_created(source)]}) for source in sources]


def _created(source: Source) -> dict[str, object]:
    dropped = {"key": source.key, "eTag": source.etag, "size": source.size_bytes}
    entity = {"bucket": {"name": source.bucket}, "object": dropped}
    return {"eventName": "ObjectCreated:Put", "s3": entity}


def _check_good(functions: Functions, stage: str) -> None:
    """Check that the messages beside the poisoned one had their effect."""
    if stage == "ingest":
        assert len(functions.world.rows(functions.table)) >= 2
    elif stage == "administer":
        done = {r.job_id: r.state for r in functions.world.tracker.records(NO_TABLE)}
        assert done.get("a") == "finished", done
        assert "b" in done, done  # the poisoned one may have been to delete the table
    else:
        keys = {s.key for o in functions.sent() for s in getattr(o.message, "sources", ())}
        assert {"letters/a.csv", "letters/b.csv"} <= keys


def _record(number: int, body: str) -> dict[str, object]:
    attributes = {"ApproximateReceiveCount": "1"}
    return {"messageId": str(number), "receiptHandle": "r", "body": body, "attributes": attributes}


def _poisoned(stage: str, poison: bytes) -> None:
    """A poisoned message is given up with its reason or comes again for one that we know, and its
    neighbours in the batch have their effect.
    """
    seen: list[BaseException] = []
    with _instance() as functions:
        neighbours = _good(functions, stage) if stage in _LOOKED_FOR else ["", ""]
        first, last = (g if isinstance(g, str) else messages.encode(g) for g in neighbours)
        records = [_record(0, first), _record(1, poison.decode(errors="replace")), _record(2, last)]
        event = {"Records": records if first else records[1:2]}
        handler = import_module(f"functions.{stage}.handler")
        with patch.object(handling, "logger", _Log(seen)):
            answer = handler.handle(event, Context(300_000))
        again = {failed["itemIdentifier"] for failed in answer["batchItemFailures"]}
        for error in seen:
            assert isinstance(error, DormouseError), error
            assert not isinstance(error, InvariantError), error
        assert again <= {"1"}, again
        assert all(reason for _, _, reason in functions.outbox.dead)
        if first:
            _check_good(functions, stage)
        _check_instance(functions.world)


class _Log:
    """Keeps the errors that are logged, and nothing else."""

    def __init__(self, errors: list[BaseException]) -> None:
        self._errors = errors

    def exception(self, *_: object, **__: object) -> None:
        error = sys.exc_info()[1]
        assert error is not None
        self._errors.append(error)

    def info(self, *_: object, **__: object) -> None:
        pass

    warning = error = info


def _check_instance(world: World) -> None:
    for table in world.tables.all():
        if not table.deleting:
            assert not broken_invariants(world.new_store(table).current())


@cache
def _filled() -> World:
    world = World(Path(tempfile.mkdtemp(prefix="dormouse-fuzz-")))
    world.create("letters", splits=[("g",)])
    world.drop("letters/1.parquet", letters("abcxyz"))
    world.settle()
    return world


def _queried(asked: tuple[Any, list[tuple[Any, Any]], int | None]) -> None:
    world = _filled()
    table = world.tables.named("letters")
    assert table is not None
    exact, ranges, limit = asked
    with told(InvalidRequestError):
        wanted = ranges_of(table.schema, ranges, exact)
        result = query_rows(
            world.storage,
            table,
            world.state(table),
            wanted,
            limit=limit,
            now_ms=world.clock.now_ms(),
            memory_bytes=64 * 1024 * 1024,
        )
        assert result.reader.read_all().num_rows <= 6


_LOOKED_FOR = ("ingest", "administer", "batch_files")
_IDS = {"table_id": TABLE_ID}
_bodies: list[Any] = [
    body | _IDS if "table_id" in (body := json.loads(messages.encode(message))) else body
    for message in samples.MESSAGES
]
_POISON: dict[str, list[Any]] = {
    "administer": [json.loads(messages.encode(request)) for request in samples.REQUESTS],
    "batch_files": [*samples.NOTIFICATIONS, _bodies[1]],
    "ingest": _bodies[:1],
    "plan_table": _bodies[2:3],
    "compact": _bodies[3:4],
    "split_partition": _bodies[4:5],
    "collect_garbage": _bodies[5:6],
    "purge_rows": _bodies[6:7],
    "export_rows": _bodies[7:8],
    "dispatch_spark": [_bodies[0], _bodies[3]],
    "track_spark": samples.NOTIFICATIONS[-1:],
}
_part = st.sampled_from(ODD_VALUES) | st.text(max_size=3) | st.binary(max_size=3) | st.datetimes()
_key = (
    _part
    | st.tuples(_part)
    | st.tuples(_part, _part)
    | st.dictionaries(st.sampled_from(["letter", "at", "x"]), _part, max_size=2)
)

TARGETS: dict[str, Target] = {
    **{
        f"function {stage}": Target(mangled_json(good), partial(_poisoned, stage), quick=25)
        for stage, good in _POISON.items()
    },
    "queries": Target(
        st.tuples(
            st.none() | _key,
            st.lists(st.tuples(st.none() | _key, st.none() | _key), max_size=2),
            st.none() | st.integers(0, 9),
        ),
        _queried,
        quick=60,
    ),
}
