"""Requests and answers of HTTP, as far as S3 needs them, read and written with little CPU time."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from io import BufferedIOBase
from pathlib import Path
from socket import socket
from typing import BinaryIO
from urllib.parse import parse_qsl, unquote, urlsplit

Sent = Callable[[int], None]
"""Is called with the number of bytes that were just received or sent, and may take its time."""
PIECE_BYTES = 256 * 1024
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Refusal(Exception):
    """S3's answer to a request that it does not fulfil."""

    def __init__(self, status: int, code: str) -> None:
        """Answer with a status and one of S3's error codes."""
        super().__init__(code)
        self.status, self.code = status, code


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked: header names are in lower case, and `length` bytes of body follow."""

    method: str
    bucket: str
    key: str
    query: Mapping[str, str]
    headers: Mapping[str, str]

    @property
    def length(self) -> int:
        """The length of the body, in bytes."""
        return int(self.headers.get("content-length", "0"))


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered: `body`, or `length` bytes of `file` from `start`."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    file: Path | None = None
    start: int = 0
    length: int = 0


def read_request(stream: BufferedIOBase) -> Request | None:
    """Return the next request of a connection, without its body; None if the client closed it."""
    first = stream.readline().split()
    if len(first) != 3:
        return None
    headers = {}
    while line := stream.readline().strip():
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    url = urlsplit(first[1].decode())
    bucket, _, key = unquote(url.path)[1:].partition("/")
    query = dict(parse_qsl(url.query, keep_blank_values=True))
    return Request(first[0].decode(), bucket, key, query, headers)


def receive(
    request: Request, stream: BufferedIOBase, connection: socket, to: BinaryIO, seen: Sent
) -> None:
    """Write the body of a request to a file.

    Raises:
        ConnectionError: it ended early.
    """
    if request.headers.get("expect", "").lower() == "100-continue":
        connection.sendall(_CONTINUE)
    buffer, left = memoryview(bytearray(PIECE_BYTES)), request.length
    while left:
        count = stream.readinto(buffer[:left])
        if not count:
            raise ConnectionError(f"{left} of {request.length} bytes of a body did not arrive")
        to.write(buffer[:count])
        left -= count
        seen(count)


def send(answer: Answer, connection: socket, *, bodiless: bool, seen: Sent) -> None:
    """Send an answer; one to a HEAD is `bodiless`, but has the length of the body."""
    length = answer.length if answer.file else len(answer.body)
    lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    lines += [f"Content-Length: {length}", "", ""]
    head = "\r\n".join(lines).encode("latin-1")
    connection.sendall(head if bodiless else head + answer.body)
    if answer.file and not bodiless:
        with answer.file.open("rb") as file:
            _send_file(file.fileno(), answer.start, length, connection, seen)


def _send_file(file: int, start: int, length: int, connection: socket, seen: Sent) -> None:
    end = start + length
    while start < end:
        count = os.sendfile(connection.fileno(), file, start, min(PIECE_BYTES, end - start))
        start += count
        seen(count)
