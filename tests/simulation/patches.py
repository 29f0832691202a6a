"""What must be another way for a run to be the same each time: threads, and who logs.

A process of the simulation is one thread. What the product does on threads of its own is done at
once, in the thread that asks for it, in the order asked for. Before each batch that the engine
makes, and each that is written, the process may die or be frozen, as within native code.
"""

from __future__ import annotations

import logging
import pkgutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any, TypeVar
from unittest.mock import patch

import pyarrow as pa

import dormouse
from dormouse.aws import handling
from dormouse.aws import handling as deliveries
from dormouse.aws.logs import logger
from dormouse.aws.wiring import Wiring
from dormouse.features import seal_sources as sealing
from dormouse.features.seal_sources import seal_sources
from dormouse.log import increments, snapshot
from dormouse.rows import datafusion as engine
from dormouse.shards import reading
from dormouse.shards.writer import ShardWriter
from tests.unit.statestore.faults import small_items, small_pages
from tests.unit.statestore.parts import indexed_early

_Result = TypeVar("_Result")

PAGE_CAPACITY = 4
"""Ids in a page of a log: so that short runs consolidate, keep snapshots and collect, too."""

SEALED = 3
"""So few sources are sealed already, and few segments of them merged."""


DECODED = ((snapshot, "decode_snapshot"), (increments, "decode_increment"), (increments, "joined"))
MOST_DECODED = 500


class AtOnce(Executor):
    """Stands for a pool of threads: does what it is given when it is given it."""

    def __init__(self, *_: object, **__: object) -> None:
        """Take no notice of how many threads are wanted."""

    def submit(self, fn: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        """Do it; the future has the outcome."""
        future: Future[_Result] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # also a process's death: every process that reads it dies
            future.set_exception(error)
        return future


class _Log:
    """Replaces the log of the handlers: reports what they log as failed."""

    def __init__(self, failed: Callable[[], None]) -> None:
        self._failed = failed

    def exception(self, *_: object, **__: object) -> None:
        self._failed()

    def error(self, *_: object, **__: object) -> None:
        """Say nothing."""

    warning = info = error


@contextmanager
def deterministic(
    wiring: Callable[[], Wiring], failed: Callable[[], None], native: Callable[[str], None]
) -> Iterator[None]:
    """Let handlers ask `wiring` for the process they run in, and nothing run on another thread.

    `failed` is called with the error at hand when a handler logs one, `native` before each piece of
    work of native code.
    """
    level = logger.level
    with ExitStack() as stack:
        stack.enter_context(patch.object(handling, "wiring", wiring))
        for module in (deliveries, handling):
            stack.enter_context(patch.object(module, "logger", _Log(failed)))
        stack.enter_context(patch.object(engine, "batches_of", _passing(native)))
        stack.enter_context(patch.object(ShardWriter, "write", _written(native)))
        stack.enter_context(patch.multiple(sealing, MIN_SEALED_SOURCES=SEALED, SEGMENT_FANOUT=2))
        stack.enter_context(patch.object(seal_sources, "__kwdefaults__", {"least": SEALED}))
        stack.enter_context(small_pages(PAGE_CAPACITY))
        stack.enter_context(indexed_early())
        stack.enter_context(small_items())
        for module, name in DECODED:
            stack.enter_context(patch.object(module, name, _decoded.once(getattr(module, name))))
        stack.enter_context(patch.object(reading, "_threads", AtOnce))
        for name in _modules_with_threads():
            stack.enter_context(patch.object(sys.modules[name], "ThreadPoolExecutor", AtOnce))
        logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            logger.setLevel(level)


class _Decoded:
    """What was decoded of which bytes: dozens of processes read each state.

    Decoding took a third of a run. A state is never changed, so all can share it. `StateChanges`
    are used up as they are applied: each reader gets its own, and `origins` says of which bytes.
    """

    def __init__(self) -> None:
        self._decoded: dict[object, object] = {}
        self._origins: dict[int, tuple[object, object]] = {}

    def once(self, decode: Callable[..., Any]) -> Callable[..., Any]:
        """Return what decodes the same bytes once."""

        def decoded(*given: Any, **named: Any) -> object:
            key = (decode, *map(self._origin, given), *named.items())
            if len(self._decoded) >= MOST_DECODED:
                self._decoded.clear()
                self._origins.clear()
            if key not in self._decoded:
                self._decoded[key] = decode(*given, **named)
            answer = self._decoded[key]
            if isinstance(answer, increments.StateChanges):
                answer = replace(answer, rows=dict(answer.rows))
                self._origins[id(answer)] = key, answer
            return answer

        return decoded

    def _origin(self, given: object) -> object:
        if not isinstance(given, increments.StateChanges):
            return given
        return self._origins[id(given)][0] if id(given) in self._origins else object()


_decoded = _Decoded()


def _passing(native: Callable[[str], None]) -> Callable[..., Iterator[pa.RecordBatch]]:
    """Return what runs a stream of the engine, past `native` before each batch."""
    batches = engine.batches_of

    def passing(stream: Any) -> Iterator[pa.RecordBatch]:
        native("begins")
        for batch in batches(stream):
            native("batch")
            yield batch

    return passing


def _written(native: Callable[[str], None]) -> Callable[..., None]:
    """Return what writes rows to a shard, past `native`."""
    write = ShardWriter.write

    def written(draft: ShardWriter, *given: Any) -> None:
        native("write")
        write(draft, *given)

    return written


@cache
def _modules_with_threads() -> tuple[str, ...]:
    names = [m.name for m in pkgutil.walk_packages(dormouse.__path__, "dormouse.")]
    return tuple(n for n in names if hasattr(import_module(n), "ThreadPoolExecutor"))
