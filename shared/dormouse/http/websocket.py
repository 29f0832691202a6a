"""WebSockets of a server of this machine, by the library `websockets`.

The server has read the request by itself. What the library is given is that request again, then
the connection.
"""

from __future__ import annotations

from socket import socket
from typing import Self

from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.sync.connection import Connection

from dormouse.http.messages import SocketClosedError

MOST_MESSAGE_BYTES = 128 * 1024
"""The longest message that is read: the connection of a longer one is closed, with code 1009."""
SEND_SECONDS = 20.0
"""How long the other side may take over a message that is sent; then the connection is closed."""
NOT_TEXT = 1003
_NO_HANDSHAKE = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


def opened(connection: socket, head: bytes) -> OpenSocket | None:
    """Answer a request for a WebSocket, given by its line and headers; return it, unless the
    request is refused.
    """
    protocol = ServerProtocol(max_size=MOST_MESSAGE_BYTES)
    protocol.receive_data(head)
    for event in protocol.events_received():
        if isinstance(event, Request):
            response = protocol.accept(event)
            protocol.send_response(response)
            for data in protocol.data_to_send():
                connection.sendall(data)
            if response.status_code == 101:
                connection.settimeout(SEND_SECONDS)
                return OpenSocket(Connection(connection, protocol, ping_interval=None))
            return None
    connection.sendall(b"".join(protocol.data_to_send()) or _NO_HANDSHAKE)
    return None


class OpenSocket:
    """`messages.Socket`; as a context manager, it is closed at the end."""

    def __init__(self, connection: Connection) -> None:
        """Talk on a connection that is a WebSocket already."""
        self._connection = connection

    def receive(self, seconds: float) -> str | None:
        """Return the next message; None if there is none for so long."""
        try:
            found = self._connection.recv(timeout=seconds)
        except TimeoutError:
            return None
        except ConnectionClosed as error:
            raise SocketClosedError from error
        if isinstance(found, bytes):
            self.close(NOT_TEXT, "send frames of text")
            raise SocketClosedError
        return found

    def send(self, text: str) -> None:
        """Send a message."""
        try:
            self._connection.send(text)
        except (ConnectionClosed, OSError) as error:
            raise SocketClosedError from error

    def close(self, code: int, reason: str) -> None:
        """Close it, unless it is closed."""
        self._connection.close(code, reason)

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Close it; with a code that says whether this side failed."""
        self.close(1000 if error is None else 1011, "")
