"""Every point at which one operation can be cut off: all its calls, and what can become of each.

An operation is one invocation of a function, or one run of a Spark driver, in an instance that was
brought just before it. For each of its calls to the outside a copy of that instance is made; there
the process dies before the call, or the call is refused, or it lands and is not answered, or that
and all later ones are refused. Dying after a call is dying before the next, so that is tried of
the last call only. Then the instance recovers, and is held to what it promised.

Cold processes recover, so all follows from what the instance holds. Most points leave what another
leaves, such as a call that is refused and made again: `distinct` tells which recover for all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from random import Random

from dormouse.errors import UnavailableError
from dormouse.messages.requests import AdminRequest
from tests.simulation.crash_recovery import (
    Rows,
    dangling,
    dies_at,
    problems,
    recover,
    rows_by_id,
    shape,
)
from tests.simulation.instance import Instance, Worker
from tests.simulation.processes import Call, Died, Fate
from tests.simulation.watched import WatchedTables, WatchedTracker
from tests.support.memory_items import MemoryItems

OUTAGE = "is refused, as are all calls after it"


@dataclass(frozen=True)
class Answer:
    """How the query ``q`` over messages is to end, and the rows if it is finished."""

    state: str
    rows: Rows = ()
    may_finish: bool = False


@dataclass(frozen=True)
class Operation:
    """What is cut off: `prepare` brings an instance just before it and gives the rows each table is
    to have in the end; `run` does it in the process given. `exported` is how many rows the export
    at ``out`` is to have, if there is one; `asked_again` what is asked for if dead letters are left
    in the end; `most_leaves` how many leaves are enough; `answer` what becomes of the query, if
    there is one.
    """

    name: str
    prepare: Callable[[Instance, Worker], dict[str, Rows]]
    run: Callable[[Instance, Worker], object]
    exported: int | None = None
    asked_again: AdminRequest | None = None
    most_leaves: int = 10**9
    answer: Answer | None = None


@dataclass(frozen=True)
class Point:
    """The call of that number, from 0, and what becomes of it. `again` is the call of the recovery
    at which the next process dies, too.
    """

    number: int
    call: Call
    fate: str
    again: int | None = None

    def __str__(self) -> str:
        """Return it as people read it."""
        twice = (
            f"; the next process dies at its call {self.again}" if self.again is not None else ""
        )
        return (
            f"call {self.number}, {self.call.service}.{self.call.method} {self.call.subject} "
            f"{self.fate}{twice}"
        )


@dataclass
class Ground:
    """An operation with its instance just before it, and the calls it makes where nothing fails.

    `before` and `after` are the rows of each table by its id, then and when it was done; `done` is
    what was held then, and `shape` what it has changed besides in the end.
    """

    operation: Operation
    base: Instance
    expected: dict[str, Rows]
    before: dict[str, Rows]
    after: dict[str, Rows] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    done: bytes = b""
    shape: object = None
    tried: int = 0

    def points(self) -> Iterator[Point]:
        """Return all points there are.

        Dying between two reads leaves what dying before the first of them does.
        """
        was_read = False
        for number, call in enumerate(self.calls):
            if not (call.is_read and was_read):
                yield Point(number, call, Fate.DIES_BEFORE.value)
            was_read = call.is_read
            if call.is_native:
                continue
            yield Point(number, call, Fate.REFUSED.value)
            if not call.is_read:
                yield Point(number, call, Fate.UNANSWERED.value)
                yield Point(number, call, OUTAGE)
            if call.has_halves:
                yield Point(number, call, Fate.PARTLY.value)
        if self.calls:
            yield Point(len(self.calls) - 1, self.calls[-1], Fate.DIES_AFTER.value)

    def distinct(self, points: Iterable[Point] | None = None) -> Iterator[Point]:
        """Return the points, all or those given, that leave what none before does nor all calls."""
        known = {(self.done, False)}
        for point in self.points() if points is None else points:
            with self._cut_off(point) as (instance, wrong):
                left = (held(instance), bool(wrong))
            if left not in known:
                yield point
            known.add(left)

    def attempt(self, point: Point) -> list[str]:
        """Try a point; return what was wrong after it."""
        with self._cut_off(point) as (instance, found):
            found += [f"at once: {problem}" for problem in dangling(instance)]
            found += [f"at once: {problem}" for problem in self._torn(rows_by_id(instance))]
            found += [f"at once: {problem}" for problem in self._unanswered(instance, at_once=True)]
            recover(instance, _workers(instance, point.again))
            if self.operation.asked_again is not None and instance.queues.dead():
                instance.ask(self.operation.asked_again)
                recover(instance, _workers(instance, None))
            found += problems(instance, self.expected, self.operation.exported)
            found += self._unanswered(instance, dies=point.again is not None)
            became = shape(instance, self.operation.most_leaves)
            if not found and became != self.shape:
                found.append(f"it is {became}, not {self.shape}")
            return found

    @contextmanager
    def _cut_off(self, point: Point) -> Iterator[tuple[Instance, list[str]]]:
        """Let an instance run that the operation was cut off in; also what is wrong with that."""
        self.tried += 1
        instance = copied(self.base, self.base.folder / f"point-{self.tried}")
        with instance.running():
            victim = instance.worker("victim", _gate(point))
            with suppress(Died, ExceptionGroup, UnavailableError):  # the last two: of schedules
                self.operation.run(instance, victim)
            is_left = not victim.process.is_dead and any(
                path.is_file() for path in victim.scratch.rglob("*")
            )
            yield instance, ["files were left in the scratch folder"] if is_left else []
        if instance.database is not None:
            instance.database.close()

    def _unanswered(
        self, instance: Instance, *, at_once: bool = False, dies: bool = False
    ) -> Iterator[str]:
        from tests.simulation.crash_queries import unanswered  # it needs operations

        answer = self.operation.answer
        return unanswered(instance, answer, at_once=at_once, dies=dies) if answer else iter(())

    def _torn(self, there: dict[str, Rows]) -> Iterator[str]:
        """Return what is wrong with rows while the operation is done in part."""
        for table_id, rows in there.items():
            if rows not in (self.before.get(table_id), self.after.get(table_id)):
                yield f"table {table_id} has the rows {rows}"


def ground(operation: Operation, folder: Path, store: str) -> Ground:
    """Prepare an operation with a state store, and see which calls it makes."""
    base = Instance(folder, Random(operation.name), in_folder=store == "folder")
    if store != "folder":
        base.tables.settings = {"state_store": store}
    with base.running():
        expected = operation.prepare(base, base.worker("prepares"))
        found = Ground(operation, base, expected, rows_by_id(base))

    def noted(call: Call) -> Fate:
        found.calls.append(replace(call, process=""))
        return Fate.LANDS

    instance = copied(base, folder / "whole")
    with instance.running():
        operation.run(instance, instance.worker("victim", noted))
        assert found.calls, f"{operation.name} calls nothing"
        found.after = rows_by_id(instance)
        found.done = held(instance)
        recover(instance, lambda: instance.worker("recovers"))
        wrong = list(problems(instance, expected, operation.exported))
        wrong += found._unanswered(instance)
        assert not wrong, f"{operation.name}, though nothing fails: {wrong}"
        found.shape = shape(instance, operation.most_leaves)
    return found


def sampled(points: Sequence[Point], most: int, random: Random, twice: int) -> list[Point]:
    """Choose points; `twice` of them with a second death in the recovery."""
    chosen = list(points) if len(points) <= most else random.sample(points, most)
    twice = twice if chosen else 0  # of an operation of few calls, a turn may have none
    again = [replace(p, again=random.randrange(60)) for p in random.choices(chosen, k=twice)]
    return [*chosen, *again]


def _gate(point: Point) -> Callable[[Call], Fate]:
    numbers = iter(range(10**9))
    fates = {fate.value: fate for fate in Fate}

    def gate(_: Call) -> Fate:
        number = next(numbers)
        if point.fate == OUTAGE:
            return Fate.REFUSED if number >= point.number else Fate.LANDS
        return fates[point.fate] if number == point.number else Fate.LANDS

    return gate


def _workers(instance: Instance, dies: int | None) -> Callable[[], Worker]:
    gates = [] if dies is None else [dies_at(dies)]
    made = iter(range(100))

    def new_worker() -> Worker:
        name = f"recovers-{next(made)}"
        return instance.worker(name, gates.pop()) if gates else instance.worker(name)

    return new_worker


def held(instance: Instance) -> bytes:
    """Return a digest of all that processes which begin now can find.

    Records say which call failed: nothing follows from that.
    """
    runs = {run_id: replace(run, package="") for run_id, run in instance.spark.runs.items()}
    parts: list[object] = [
        instance.clock.ms,
        instance.storage._objects,
        instance.storage._uploads,
        instance.results._objects,
        instance.sources.objects,
        instance.dynamodb.kept,
        instance.queues.messages,
        vars(instance.answers),
        (runs, instance.spark.ended, sorted(instance.driven)),
    ]
    if instance.database is not None:
        with instance.database.reading() as connection:
            parts += connection.iterdump()
    else:
        tables, tracker = instance.tables, instance.tracker
        assert isinstance(tables, WatchedTables) and isinstance(tracker, WatchedTracker)
        parts += [tables.by_id, tables.settings, tables.buried, tracker.kept, tracker.bound]
        parts.append(_in_memory(instance).kept)
    return sha256(re.sub(r"victim [^:]*: ", "", repr(parts)).encode()).digest()


def copied(base: Instance, folder: Path) -> Instance:
    """Return an instance of its own that holds what `base` does."""
    copy = Instance(folder, Random(), in_folder=base.in_folder)
    copy.random.setstate(base.random.getstate())
    copy.jitter = Random(0)
    copy.clock.ms = base.clock.ms
    copy.storage._objects.update(base.storage._objects)
    copy.results._objects.update(base.results._objects)
    copy.sources.objects.update(base.sources.objects)
    _copy_state(base, copy)
    copy.dynamodb.kept.update(base.dynamodb.kept)
    copy.tables.created = set(base.tables.created)
    copy.spark.runs, copy.spark.ended = dict(base.spark.runs), dict(base.spark.ended)
    copy.queues.messages = {
        q: [replace(m) for m in found] for q, found in base.queues.messages.items()
    }
    copy.queues.count = base.queues.count
    copy.driven, copy.has_spark = set(base.driven), base.has_spark
    return copy


def _in_memory(instance: Instance) -> MemoryItems:
    assert isinstance(instance.items, MemoryItems)
    return instance.items


def _copy_state(base: Instance, copy: Instance) -> None:
    """Copy registry, records of jobs and logs."""
    if base.database is not None and copy.database is not None:
        copy.database.copy_from(base.database)
        return
    _in_memory(copy).kept.update(_in_memory(base).kept)
    tables, tracker = base.tables, base.tracker
    assert isinstance(tables, WatchedTables) and isinstance(tracker, WatchedTracker)
    assert isinstance(copy.tables, WatchedTables) and isinstance(copy.tracker, WatchedTracker)
    copy.tables.by_id, copy.tables.settings = dict(tables.by_id), dict(tables.settings)
    copy.tables.buried = dict(tables.buried)
    copy.tracker.kept, copy.tracker.bound = dict(tracker.kept), dict(tracker.bound)
