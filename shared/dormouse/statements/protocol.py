"""The messages between the process that reads and the one that computes, and their framing.

Each message is a length of four bytes and JSON. A `ScanRows` comes with the writing end of a pipe,
into which the rows go as an Arrow stream.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa

from dormouse.errors import InvalidRequestError, InvariantError
from dormouse.stored.decoding import decode_json

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
MAX_PARAMETERS = 1000
"""The most parameters of a statement: each is a column, and planning takes long for thousands."""
MAX_PARAMETER_BYTES = 16 * 1024 * 1024
_AS_TABLE = "ingest long lists of values into a table, and join it"
_LENGTH = struct.Struct("!I")


class Run(msgspec.Struct, frozen=True, tag="run"):
    """Run this statement. `parameters` is an Arrow stream of one row, a column a parameter. With
    `cut_ms`, do not run it, but return its parts as of that time (`sql.cut`).
    """

    text: str
    parameters: bytes
    scratch: str
    memory_bytes: int
    threads: int
    cpu_seconds: int
    cut_ms: int = 0


class Named(msgspec.Struct, frozen=True):
    """A reference to a table, by its name in the statement; `as_of` is empty for the newest."""

    name: str
    table: str
    as_of: str
    line: int
    column: int


class FindTables(msgspec.Struct, frozen=True, tag="find_tables"):
    """Which schemas do these references have?"""

    references: tuple[Named, ...]


class Tables(msgspec.Struct, frozen=True, tag="tables"):
    """The schemas by the names of the references."""

    schemas: Mapping[str, dict[str, Any]]


class First(msgspec.Struct, frozen=True):
    """The first `rows` rows in the order of a column; with `ties`, also those that equal the last
    of them in it, which another column orders.
    """

    column: str
    rows: int
    descending: bool
    nulls_first: bool
    ties: bool


class Scan(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows of a reference a scan needs: those for which `where` is true, empty for all; the
    first `limit` in key order, or at least as many of the last ones if it is `from_end`. With
    `ends`, those with the least and the greatest first row key are enough; with `first`, those
    that are first by a column. Without `columns`, just their number counts.
    """

    columns: tuple[str, ...] = ()
    where: str = ""
    limit: int | None = None
    from_end: bool = False
    ends: bool = False
    first: First | None = None

    @property
    def reads_all(self) -> bool:
        """Return whether it needs the values of all rows for which `where` is true."""
        is_bounded = self.limit is not None or self.ends
        return bool(self.columns or self.where) and not is_bounded


class ScanRows(msgspec.Struct, frozen=True, tag="scan_rows"):
    """Write the rows of this scan into the pipe."""

    name: str
    scan: Scan


class FindFiles(msgspec.Struct, frozen=True, tag="find_files"):
    """Which of these scans can read files by themselves?"""

    scans: tuple[ScanRows, ...]


class LinkedFiles(msgspec.Struct, frozen=True):
    """The folder of the files of a scan, and their columns of floats that hold no NaN."""

    folder: str
    no_nan: frozenset[str] = frozenset()


class Files(msgspec.Struct, frozen=True, tag="files"):
    """Parquet files by the names of the references, of those that can."""

    found: Mapping[str, LinkedFiles]


class Explain(msgspec.Struct, frozen=True, tag="explain"):
    """What would these scans read?"""

    scans: tuple[ScanRows, ...]


class Reading(msgspec.Struct, frozen=True):
    """What a scan would read. `bytes` counts those of column chunks, as they are stored."""

    table: str
    version: int
    ranges: tuple[str, ...]
    partitions: int
    shards: int
    row_groups: int
    requests: int
    bytes: int


class Explained(msgspec.Struct, frozen=True, tag="explained"):
    """The answer to `Explain`, in its order."""

    readings: tuple[Reading, ...]


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """All results were written."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The statement failed; `error` is the name of a class of errors."""

    error: str
    message: str
    hint: str


Message: TypeAlias = (
    Run
    | FindTables
    | Tables
    | ScanRows
    | FindFiles
    | Files
    | Explain
    | Explained
    | Finished
    | Failed
)


def send(channel: socket.socket, message: Message, descriptors: Sequence[int] = ()) -> None:
    """Send a message, and open files with it."""
    body = msgspec.json.encode(message)
    head = _LENGTH.pack(len(body))
    if descriptors:
        socket.send_fds(channel, [head], list(descriptors))
    else:
        channel.sendall(head)
    channel.sendall(body)


def receive(channel: socket.socket) -> tuple[Message, list[int]] | None:
    """Return the next message and the open files that come with it; None at the end.

    Raises:
        InvariantError: what comes is no message.
    """
    head, descriptors, _, _ = socket.recv_fds(channel, _LENGTH.size, 1)
    if not head:
        return None
    length = _LENGTH.unpack(head + _exactly(channel, _LENGTH.size - len(head)))[0]
    if length > MAX_MESSAGE_BYTES:
        raise InvariantError(f"a message of {length:,} bytes is too long")
    try:
        return decode_json(_exactly(channel, length), Message), descriptors
    except ValueError as error:
        for descriptor in descriptors:
            os.close(descriptor)
        raise InvariantError(f"a message cannot be read: {error}") from error


def _exactly(channel: socket.socket, length: int) -> bytes:
    body = bytearray()
    while len(body) < length:
        piece = channel.recv(length - len(body))
        if not piece:
            raise InvariantError("a message is cut off")
        body += piece
    return bytes(body)


def encode_parameters(values: Mapping[str, object]) -> bytes:
    """Return the values of parameters as `Run` has them: an Arrow stream of one row.

    Raises:
        InvalidRequestError: one has no type of Arrow, or they are too many or too large.
    """
    if not values:
        return b""
    if len(values) > MAX_PARAMETERS:
        raise InvalidRequestError(
            f"the statement has {len(values):,} parameters; at most {MAX_PARAMETERS:,} are allowed",
            hint=_AS_TABLE,
        )
    try:
        batch = pa.RecordBatch.from_pydict({name: [value] for name, value in values.items()})
    except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
        raise InvalidRequestError("a parameter has a value that no type of SQL has") from error
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    stream = sink.getvalue()
    if stream.size > MAX_PARAMETER_BYTES:
        raise InvalidRequestError(
            f"the parameters take {stream.size:,} bytes; at most {MAX_PARAMETER_BYTES:,} may be",
            hint=_AS_TABLE,
        )
    return stream.to_pybytes()
