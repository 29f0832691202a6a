"""WebSockets of clients as a sender knows them: by an id, in whichever process they end.

The process that has something to say is seldom the one that holds the connection: on AWS it ends at
API Gateway, on a machine in the server's process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol

import msgspec

from dormouse.errors import NotFoundError

MOST_FRAME_BYTES = 128 * 1024
"""How long a message on a connection can be, as of API Gateway."""
IDLE_SECONDS = 600
"""A connection on which nothing is sent for so long is closed, as of API Gateway."""
MOST_SECONDS = 7200
"""A connection is closed after so long, whatever is sent on it, as of API Gateway."""


class ConnectionGoneError(NotFoundError):
    """A connection is closed, or its other side does not take what is sent."""


class Connections(Protocol):
    """Sends on the connections of an instance."""

    def send(self, connection: str, text: str) -> None:
        """Send a message of up to `MOST_FRAME_BYTES`.

        Raises:
            ConnectionGoneError: the connection is closed.
            UnavailableError: it may not have been sent.
        """

    def close(self, connection: str) -> None:
        """Close a connection, unless it is closed. Raises UnavailableError."""

    def address_for(self, principal: str) -> str:
        """Return an address at which a caller who has a token can connect within a minute, as this
        principal; of others, one for which they sign. Empty if this process knows none.
        """


class NoConnections:
    """`Connections` of a process that can reach none: nothing is sent."""

    def send(self, connection: str, text: str) -> None:
        """Send nothing: who waits asks again."""

    def close(self, connection: str) -> None:
        """Close nothing."""

    def address_for(self, principal: str) -> str:
        """Return nothing."""
        return ""


class HeldConnections:
    """`Connections` that this process holds itself; thread-safe.

    Other processes may work for the same instance, and have connections of their own: theirs are
    told apart by the `name` that ids begin with. What is sent to those is dropped; who waits there
    asks again.
    """

    def __init__(self, name: str) -> None:
        """Begin with none; no other process has the name."""
        self._name, self._lock, self._last = name, threading.Lock(), 0
        self._held: dict[str, tuple[Callable[[str], None], Callable[[], None]]] = {}

    def hold(self, send: Callable[[str], None], close: Callable[[], None]) -> str:
        """Return the id of a new connection; `send` raises ConnectionGoneError."""
        with self._lock:
            self._last += 1
            connection = f"{self._name}.{self._last}"
            self._held[connection] = (send, close)
            return connection

    def drop(self, connection: str) -> None:
        """Forget a connection that is closed."""
        with self._lock:
            self._held.pop(connection, None)

    def send(self, connection: str, text: str) -> None:
        """Send a message; raises as `Connections.send`."""
        found = self._find(connection)
        if found is not None:
            found[0](text)
        elif connection.rpartition(".")[0] == self._name:
            raise ConnectionGoneError("the connection is closed")

    def close(self, connection: str) -> None:
        """Close a connection of this process."""
        found = self._find(connection)
        if found is not None:
            found[1]()

    def address_for(self, principal: str) -> str:
        """Return nothing: the server that takes connections says where."""
        return ""

    def _find(self, connection: str) -> tuple[Callable[[str], None], Callable[[], None]] | None:
        with self._lock:
            return self._held.get(connection)


class Connected(msgspec.Struct, frozen=True):
    """A client wants to connect; `principal` is who it is, as what carries this has verified."""

    connection: str
    principal: str


class Received(msgspec.Struct, frozen=True):
    """A client sent a message."""

    connection: str
    text: str


class Disconnected(msgspec.Struct, frozen=True):
    """A connection is closed."""

    connection: str


class Served(msgspec.Struct, frozen=True):
    """What became of an event; `problem` is what the log should say of a failure of this side."""

    status: HTTPStatus = HTTPStatus.OK
    problem: str = ""


SocketEvent = Connected | Received | Disconnected
"""What happens to a connection."""
