"""Processes of a simulated instance: every call one makes to the outside passes its gate.

The gate decides what becomes of a call: it may land, be refused, land without an answer, or be the
last thing the process does. A gate may also let other processes run before it decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import wraps
from typing import Any, TypeVar, cast

from dormouse.errors import OutcomeUnknownError, UnavailableError

_Port = TypeVar("_Port")

READS = frozenset(
    {"all", "at", "defaults", "download", "get", "head", "list", "look", "named", "open", "page"}
    | {"query", "records", "take"}
)
"""The methods of ports that change nothing."""
NEVER_UNKNOWN = frozenset({"sqs", "items"})
"""Services whose failed writes raise UnavailableError though they may have landed."""


class Died(BaseException):
    """The process is dead: no handler of errors catches this, and no later call gets out."""


class Fate(Enum):
    """What becomes of a call."""

    LANDS = "lands"
    REFUSED = "is refused"
    UNANSWERED = "lands unanswered"
    DIES_BEFORE = "is not made: the process dies"
    DIES_AFTER = "lands, then the process dies"


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a process to a service; `subject` is what it is about: a path, a queue, an id."""

    process: str
    service: str
    method: str
    subject: str

    @property
    def is_read(self) -> bool:
        """Tell whether it changes nothing."""
        return self.method in READS

    def __str__(self) -> str:
        """Give it as a line of a trace."""
        return f"{self.process} {self.service}.{self.method} {self.subject}"


Gate = Callable[[Call], Fate]


class Process:
    """One process. When it died it makes no call any more, whatever its code still does."""

    def __init__(self, name: str, gate: Gate) -> None:
        """Ask `gate` about each call."""
        self.name, self._gate, self.is_dead = name, gate, False

    def call(self, service: str, method: str, subject: str, make: Callable[[], object]) -> object:
        """Make a call, if its fate lets it.

        Raises:
            Died: the process died now or before.
            UnavailableError: the call was refused; or it is of a service that cannot tell.
            OutcomeUnknownError: it was not answered.
        """
        if self.is_dead:
            raise Died
        call = Call(self.name, service, method, subject)
        fate = self._gate(call)
        if self.is_dead or fate is Fate.DIES_BEFORE:
            raise self._died()
        if fate is Fate.REFUSED:
            raise UnavailableError(f"{call}: refused")
        result = make()
        if fate is Fate.DIES_AFTER:
            raise self._died()
        if fate is Fate.UNANSWERED:
            if call.is_read or service in NEVER_UNKNOWN:
                raise UnavailableError(f"{call}: not answered")
            raise OutcomeUnknownError(f"{call}: not answered")
        return result

    def _died(self) -> Died:
        self.is_dead = True
        return Died(self.name)


def guarded(process: Process, service: str, port: _Port) -> _Port:
    """Give an adapter whose every method is a call of `process`; what is listed comes at once."""
    return cast(_Port, _Guarded(process, service, port))


class _Guarded:
    def __init__(self, process: Process, service: str, port: object) -> None:
        self._process, self._service, self._port = process, service, port

    def __getattr__(self, name: str) -> object:
        found = getattr(self._port, name)
        if not callable(found):
            return found
        method = cast("Callable[..., Any]", found)

        @wraps(method)
        def call(*args: object, **kwargs: object) -> object:
            def make() -> object:
                result = method(*args, **kwargs)
                return iter(list(result)) if isinstance(result, Iterator) else result

            return self._process.call(self._service, name, _subject(args), make)

        return call


def _subject(args: tuple[object, ...]) -> str:
    """Name what a call is about by its plain arguments."""
    plain = [str(arg) for arg in args if isinstance(arg, str | int)]
    return " ".join(plain) or " ".join(type(arg).__name__ for arg in args)
