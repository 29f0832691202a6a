"""Processes of a simulated instance: every call one makes to the outside passes its gate.

The gate decides what becomes of a call: it may land, be refused, land without an answer, or be the
last thing the process does. A gate may also let other processes run before it decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from enum import Enum
from functools import wraps
from types import GeneratorType
from typing import Any, BinaryIO, TypeVar, cast

from dormouse.errors import OutcomeUnknownError, UnavailableError
from dormouse.ports import Objects, SparkRun, StreamedObjects
from dormouse.state.jobs import JobRecord
from dormouse.state.sources import Source
from dormouse.storage import SeekableFile
from dormouse.tables.table import Table
from tests.support.memory_dynamodb import MemoryDynamoDB

_Port = TypeVar("_Port")

READS = frozenset(
    {
        "all",
        "at",
        "defaults",
        "download",
        "get",
        "head",
        "list",
        "list_readable",
        "describe",
        "named",
        "open",
        "page",
    }
    | {"batch_get_item", "query", "read", "records", "receive", "take"}
)
"""The methods of ports that change nothing."""
NEVER_UNKNOWN = frozenset({"sqs", "items"})
"""Services whose failed writes raise UnavailableError though they may have landed."""
NEVER_REPEATED = frozenset({"pages", "items"})
"""Services whose client does not repeat a request by itself, or can distinguish the repetition."""


NATIVE = "engine"
"""The pseudo-service for native code: never refused, but a process may die in it."""


class Died(BaseException):
    """The process is dead: no handler of errors catches this, and no later call gets out."""


class Fate(Enum):
    """What becomes of a call."""

    LANDS = "lands"
    REFUSED = "is refused"
    UNANSWERED = "lands unanswered"
    DIES_BEFORE = "is not made: the process dies"
    DIES_AFTER = "lands, then the process dies"
    REPEAT_PREFIX = "lands, and is repeated by the SDK for want of an answer"
    PARTLY = "lands for one half"


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a process to a service; `subject` is what it is about: a path, a queue, an id.

    `has_halves` if it is about several things, and can be done for some of them alone.
    """

    process: str
    service: str
    method: str
    subject: str
    has_halves: bool = False

    @property
    def is_read(self) -> bool:
        """Return whether it changes nothing."""
        return self.method in READS

    @property
    def is_native(self) -> bool:
        """Return whether it goes to native code of the process itself."""
        return self.service == NATIVE

    def __str__(self) -> str:
        """Return it as a line of a trace."""
        return f"{self.process} {self.service}.{self.method} {self.subject}"


Gate = Callable[[Call], Fate]
Spoil = Callable[[Call, bytes], bytes]
"""What becomes of bytes on their way from a service: mostly nothing."""


def unspoiled(_: Call, body: bytes) -> bytes:
    """Let bytes arrive as they are."""
    return body


class Process:
    """One process. When it died it makes no call any more, whatever its code still does."""

    def __init__(self, name: str, gate: Gate, spoil: Spoil = unspoiled) -> None:
        """Ask `gate` about each call; what comes of it goes through `spoil`."""
        self.name, self._gate, self._spoil, self.is_dead = name, gate, spoil, False
        self.gates_pins = False

    def call(
        self,
        service: str,
        method: str,
        subject: str,
        make: Callable[[], object],
        make_half: Callable[[], object] | None = None,
    ) -> object:
        """Make a call, if its fate lets it; `make_half` makes it for half of what it is about.

        Raises:
            Died: the process died now or before.
            UnavailableError: the call was refused; or it is of a service that cannot tell.
            OutcomeUnknownError: it was not answered.
        """
        call = Call(self.name, service, method, subject, has_halves=make_half is not None)
        fate = self.begin(call)
        if fate is Fate.PARTLY and make_half is not None:
            make_half()
            raise UnavailableError(f"{call}: only half of it was done")
        result = make()
        if fate is Fate.REPEAT_PREFIX and service not in NEVER_REPEATED:
            result = make()
        self.end(call, fate)
        return self._spoil(call, result) if isinstance(result, bytes) else result

    def begin(self, call: Call) -> Fate:
        """Ask for the fate of a call that is about to be made, and raise if it is not to be."""
        if self.is_dead:
            raise Died
        fate = self._gate(call)
        if self.is_dead or fate is Fate.DIES_BEFORE:
            raise self._died()
        if fate is Fate.REFUSED:
            raise UnavailableError(f"{call}: refused")
        return fate

    def end(self, call: Call, fate: Fate) -> None:
        """Raise what the process sees of a call that has landed, if that is not its answer."""
        if fate is Fate.DIES_AFTER:
            raise self._died()
        if fate is Fate.UNANSWERED:
            if call.is_read or call.service in NEVER_UNKNOWN:
                raise UnavailableError(f"{call}: not answered")
            raise OutcomeUnknownError(f"{call}: not answered")

    def hook(self, service: str) -> Callable[[str], None]:
        """Return a hook for an adapter that calls it ``before`` and ``after`` its requests."""
        fates: list[Fate] = []

        def pass_by(place: str) -> None:
            when, _, method = place.partition(" ")
            call = Call(self.name, service, method, "")
            if when == "before":
                fates[:] = [self.begin(call)]
            else:
                self.end(call, *fates)

        return pass_by

    def _died(self) -> Died:
        self.is_dead = True
        return Died(self.name)


def guarded(process: Process, service: str, port: _Port) -> _Port:
    """Return an adapter whose every method is a call of `process`; what is listed comes at once."""
    return cast(_Port, _Guarded(process, service, port))


def guarded_items(process: Process, dynamodb: MemoryDynamoDB) -> MemoryDynamoDB:
    """Return a client each of whose requests is a call of `process`."""
    view = copy(dynamodb)
    view.hook = process.hook("items")
    return view


class _Guarded:
    def __init__(self, process: Process, service: str, port: object) -> None:
        self._process, self._service, self._port = process, service, port

    def __getattr__(self, name: str) -> object:
        found = getattr(self._port, name)
        if name == "pins" and self._process.gates_pins:
            return _Guarded(self._process, self._service, found)
        if not callable(found):
            return found
        if name == "with_commits":  # what is put is there at once
            return lambda: self
        if name == "open":
            return self._open
        if name == "stream":
            return self._stream
        method = cast("Callable[..., Any]", found)

        @wraps(method)
        def call(*args: object, **kwargs: object) -> object:
            def make() -> object:
                result = method(*args, **kwargs)
                return iter(list(result)) if isinstance(result, GeneratorType) else result

            return self._process.call(self._service, name, _subject(args), make, half(args))

        def half(args: tuple[object, ...]) -> Callable[[], object] | None:
            if name != "delete" or isinstance(args[0], str) or not isinstance(args[0], Sequence):
                return None
            if len(args[0]) < 2:
                return None
            paths = args[0][: len(args[0]) // 2]
            return lambda: method(paths)

        return call

    def _open(self, path: str, size_bytes: int) -> BinaryIO:
        """Open an object without a call: each read of it is one."""

        def read(start: int, end: int) -> bytes:
            with cast(Objects, self._port).open(path, size_bytes) as file:
                file.seek(start)
                return file.read(end - start)

        def ranged(start: int, end: int) -> bytes:
            made = self._process.call(self._service, "read", path, lambda: read(start, end))
            return cast(bytes, made)

        return cast(BinaryIO, _RangedFile(size_bytes, ranged))

    def _stream(self, path: str, size_bytes: int, start: int, end: int) -> Iterator[bytes]:
        """Yield a part of an object, which one call reads."""

        def read() -> bytes:
            objects = cast(StreamedObjects, self._port)
            return b"".join(objects.stream(path, size_bytes, start, end))

        yield cast(bytes, self._process.call(self._service, "read", path, read))


class _RangedFile(SeekableFile):
    """An object that is read range by range; it may be deleted in between."""

    def __init__(self, size_bytes: int, ranged: Callable[[int, int], bytes]) -> None:
        super().__init__(size_bytes)
        self._ranged = ranged

    def read(self, size: int = -1) -> bytes:
        end = self._size_bytes if size < 0 else min(self._size_bytes, self._at + size)
        found = self._ranged(self._at, end)
        self._at += len(found)
        return found


def _subject(args: tuple[object, ...]) -> str:
    """Name what a call is about by its plain arguments."""
    plain = [_plain(arg) for arg in args]
    return " ".join(text for text in plain if text) or " ".join(type(arg).__name__ for arg in args)


def _plain(arg: object) -> str:
    if isinstance(arg, str | int):
        return str(arg)
    if isinstance(arg, Source):
        return arg.key
    if isinstance(arg, Table):
        return f"{arg.id} {arg.name}"
    if isinstance(arg, JobRecord):
        return f"{arg.table_id} {arg.job_id} {arg.kind} {arg.state}"
    if isinstance(arg, SparkRun):
        return f"{arg.table_id} {arg.job_id} attempt {arg.attempt}"
    if isinstance(arg, Sequence) and arg and isinstance(arg[0], str):
        return f"{arg[0]} and {len(arg) - 1} more" if len(arg) > 1 else str(arg[0])
    return ""
