"""The queues of an instance in numbers, and its dead letters: shown, redriven, discarded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from msgspec import Struct

from dormouse.client.waiting import QueueAges, Queues, SparkApplication
from dormouse.errors import InvalidRequestError, UnavailableError
from dormouse.key_codec import KeyCodec
from dormouse.keys import Key
from dormouse.messages import requests
from dormouse.messages.stages import QUEUES
from dormouse.ports import DeadLetter, Services, Storage
from dormouse.schema.schema import Schema
from dormouse.settings import library_version
from dormouse.stored.decoding import convert_plain
from dormouse.stored.paths import SPARK_CODE, dead_letter_queue
from dormouse.tables.properties import parse_settings, property_named

if TYPE_CHECKING:
    from dormouse.features.dead_letters import Redriven
    from dormouse.features.spark import SparkPackage
    from dormouse.tables.declaring import DeclaredChange, TableDeclaration


SAMPLE = 50
"""How many dead letters of a queue are read for a summary."""


class Queue(Struct, frozen=True):
    """A queue: its messages, some seconds ago. `oldest_seconds` is null if it is unknown."""

    queue: str
    waiting: int
    in_flight: int
    delayed: int
    dead: int
    oldest_seconds: float | None


@dataclass(frozen=True, slots=True)
class DeadSummary:
    """The dead letters of a queue: how many, since when, and why, the commonest reason first.

    `oldest_ms` and `reasons` are of the first fifty at most; None if none can be read.
    """

    queue: str
    dead: int
    oldest_ms: int | None
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeadLetterQueues:
    """All dead letters of an instance. Queues are named as in `messages.QUEUES`."""

    services: Services
    queues: Queues

    def summary(self) -> list[DeadSummary]:
        """Return every queue with its dead letters, in the order of the flow."""
        depths = self.queues.depths([dead_letter_queue(queue) for queue in QUEUES])
        return [self._summary(queue, depths[dead_letter_queue(queue)]) for queue in QUEUES]

    def show(self, queue: str) -> list[DeadLetter]:
        """Return the dead letters of a queue, the oldest first; they stay where they are.
        Raises NotFoundError: there is no such queue.
        """
        from dormouse.features.dead_letters import list_letters, resolve_queue

        return list_letters(self.services, resolve_queue(queue))

    def redrive(self, queue: str, ids: Collection[str] = ()) -> Redriven:
        """Send dead letters back to their queue, those of `ids` or all, and delete them here.

        Raises:
            NotFoundError: there is no such queue, or no dead letter has one of the ids.
            UnavailableError: the queues do not answer; call it again for what is left.
        """
        from dormouse.features.dead_letters import redrive, resolve_queue

        return redrive(self.services, resolve_queue(queue), ids)

    def discard(self, queue: str, ids: Collection[str] = ()) -> Redriven:
        """Delete dead letters for good, those of `ids` or all; what they ask for is never done.

        Raises:
            NotFoundError: there is no such queue, or no dead letter has one of the ids.
            UnavailableError: the queues do not answer; call it again for what is left.
        """
        from dormouse.features.dead_letters import discard, resolve_queue

        return discard(self.services, resolve_queue(queue), ids)

    def _summary(self, queue: str, dead: int) -> DeadSummary:
        from dormouse.features.dead_letters import list_letters

        letters = list_letters(self.services, queue, SAMPLE)
        reasons = Counter(letter.reason for letter in letters).most_common()
        return DeadSummary(
            queue,
            max(dead, len(letters)),
            min((letter.sent_ms for letter in letters), default=None),
            tuple(reason for reason, _ in reasons),
        )


def queue_states(queues: Queues, ages: QueueAges, now_ms: int) -> tuple[list[Queue], str]:
    """Return every queue in the order of the flow; and why ages are unknown, if they are."""
    names = [*QUEUES, *map(dead_letter_queue, QUEUES)]
    counts, unknown = queues.counts(names), ""
    try:
        seconds = ages(QUEUES, now_ms)
    except UnavailableError as error:  # the counts are worth showing without them
        seconds, unknown = {}, error.explanation
    states = []
    for queue in QUEUES:
        live, dead = counts[queue], counts[dead_letter_queue(queue)]
        letters, oldest = dead.waiting + dead.in_flight, seconds.get(queue)
        states.append(Queue(queue, live.waiting, live.in_flight, live.delayed, letters, oldest))
    return states, unknown


PackageVerdict = Literal["fits", "other version", "missing"]


@dataclass(frozen=True, slots=True)
class SparkStatus:
    """The Spark application of an instance, and the package of its jobs.

    `application` and `state` are empty if there is none, or if EMR does not answer: then `unknown`
    says why. `package` compares the package in the data bucket with the library of this process;
    it is missing until the first job uploads it. `version` is that of the package, `library` that
    of the library in it.
    """

    application: str
    state: str
    unknown: str
    package: PackageVerdict
    version: str = ""
    library: str = ""


def spark_status(storage: Storage, find: SparkApplication) -> SparkStatus:
    """Return the Spark application and package of an instance.
    Raises CorruptDataError: the description of a package is damaged.
    """
    application, state, unknown = "", "", ""
    try:
        application, state = find() or ("", "")
    except UnavailableError as error:
        unknown = error.explanation
    packages = _packages(storage)
    fitting = [each for each in packages if each.library == library_version()]
    best = next(reversed(fitting or packages), None)
    if best is None:
        return SparkStatus(application, state, unknown, "missing")
    verdict: PackageVerdict = "fits" if fitting else "other version"
    return SparkStatus(application, state, unknown, verdict, best.version, best.library)


def _packages(storage: Storage) -> list[SparkPackage]:
    """Return the complete packages in the data bucket, the oldest first."""
    from dormouse.features.spark import DESCRIPTION, decode_package

    objects = list(storage.list(f"{SPARK_CODE}/"))
    sizes = {item.path: item.size_bytes for item in objects}
    described = [item for item in objects if item.path.endswith(f"/{DESCRIPTION}")]
    packages = []
    for item in sorted(described, key=lambda item: item.modified_ms):
        package = decode_package(storage.get(item.path), item.path)
        folder = item.path.removesuffix(DESCRIPTION)
        if all(sizes.get(folder + name) == size for name, size in package.files.items()):
            packages.append(package)
    return packages


class _Tables(Struct, forbid_unknown_fields=True):
    tables: list[Any]


class _Written(Struct, forbid_unknown_fields=True):
    name: str
    schema: Any = None
    properties: dict[str, Any] | None = None
    online: bool | None = None
    splits: list[Any] | None = None


_Form = TypeVar("_Form", _Tables, _Written)
_EXAMPLE = "begin it with tables: and a list of names, schemas, properties, online, splits"


def parse_declarations(body: object, services: Services) -> list[TableDeclaration]:
    """Return the tables that a parsed file declares: ``{"tables": [{"name": …}, …]}``.

    `schema` is in its JSON form; a table that exists needs none. A split point is a list of key
    parts, or its first part alone. A property that is null is unset.
    Raises InvalidRequestError: it is malformed; the message says where.
    """
    tables = _read(body, _Tables, "a file of tables").tables
    written = [_read(each, _Written, f"tables[{i}]") for i, each in enumerate(tables)]
    return [_declared(each, services) for each in written]


def _read(body: object, form: type[_Form], what: str) -> _Form:
    try:
        return convert_plain(body, form)
    except ValueError as error:
        raise InvalidRequestError(f"{what}: {error}", hint=_EXAMPLE) from error


def plan_declared(services: Services, declared: Sequence[TableDeclaration]) -> list[DeclaredChange]:
    """Return the changes that make tables as declared; change nothing.

    Raises:
        InvalidRequestError: a declaration cannot be met; the message says which and why.
        CorruptDataError: the registry entry of a declared table is damaged.
    """
    from dormouse.tables.declaring import plan_table_changes

    tables, damaged = services.tables.list_readable()
    names = {each.name for each in declared}
    for error in damaged:  # an entry whose name is unknown may be one of them
        if error.name in names or error.table_id and not error.name:
            raise error
    with_splits = {each.name for each in declared if each.splits}
    split_keys = {}
    for table in tables:
        if table.name in with_splits:
            partitions = services.store(table).current().partitions.by_id.values()
            split_keys[table.name] = frozenset(p.range.min for p in partitions)
    return plan_table_changes(declared, tables, split_keys, services.tables.defaults())


def requests_of(change: DeclaredChange, services: Services) -> Iterator[requests.AdminRequest]:
    """Return the requests that make the change, in order."""
    new = services.ids.new
    put = {name: value for name, value in change.properties.items() if value is not None}
    if change.schema is not None:
        points = tuple(KeyCodec(change.schema).to_json(key) for key in change.splits)
        body = change.schema.to_json()
        yield requests.CreateTable(new(), change.name, body, dict(put), points)
    if change.add or change.units or change.types:
        add = tuple(item.to_json() for item in change.add)
        types = {path: kind.to_json() for path, kind in change.types.items()}
        yield requests.AlterSchema(new(), change.name, add, units=dict(change.units), types=types)
    if change.schema is None and change.properties:
        unset = tuple(sorted(change.properties.keys() - put.keys()))
        yield requests.SetProperties(new(), change.name, dict(put), unset)
    if change.online is not None:
        yield requests.SetOnline(new(), change.name, change.online)


def _declared(written: _Written, services: Services) -> TableDeclaration:
    from dormouse.tables.declaring import TableDeclaration

    try:
        schema = None if written.schema is None else Schema.from_json(written.schema)
        properties = _properties(written.properties or {})
        splits = _splits(written, schema, services)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"table {written.name!r}: {error}", hint=error.hint) from error
    return TableDeclaration(written.name, schema, properties, written.online, splits)


def _properties(values: Mapping[str, Any]) -> dict[str, int | str | None]:
    unset = {property_named(name).name: None for name, value in values.items() if value is None}
    return {**unset, **parse_settings({n: v for n, v in values.items() if v is not None})}


def _splits(written: _Written, schema: Schema | None, services: Services) -> tuple[Key, ...] | None:
    if written.splits is None:
        return None
    if schema is None:
        table = services.tables.named(written.name)
        if table is None:
            raise InvalidRequestError("it does not exist; a schema is needed to create it")
        schema = table.schema
    points = [tuple(each) if isinstance(each, list | tuple) else (each,) for each in written.splits]
    keys = KeyCodec(schema).split_points_from_json(points)
    if any(not low < high for low, high in zip(keys, keys[1:], strict=False)):
        raise InvalidRequestError("splits must ascend, without repeats")
    return tuple(keys)
