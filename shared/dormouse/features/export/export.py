"""An export of one version of a table: its selection, its tasks, and the files they wrote.

All that the tasks need is fixed when the export begins: the schema, the row rules, and which shards
hold the rows. So all tasks read the same rows, whatever changes in the table meanwhile; a pin of
the version keeps those shards (`export.pins`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import UNSET, UnsetType

from dormouse.key_forms.stored import decode_key, encode_key
from dormouse.keys.ranges import KeyRange
from dormouse.model.job_events import TrackedJob
from dormouse.model.shards import Shard
from dormouse.model.state import TableState
from dormouse.query.selection import Selection
from dormouse.query.selection_codec import StoredSelection, load_selection, store_selection
from dormouse.schema.schema import Schema
from dormouse.stored.decoding import raise_corrupt
from dormouse.stored.json_objects import decode_stored, encode_stored
from dormouse.tables.properties import properties_of
from dormouse.tables.spark_options import SparkOptions
from dormouse.tables.table import Table

MAX_TASK_BYTES = 256 * 1024 * 1024
"""About how many bytes of shards a task reads at most, unless a single partition has more."""
MAX_TASK_SHARDS = 1000
"""The most shards that a task reads, summed over partitions, unless one partition has more."""


@dataclass(frozen=True, slots=True)
class Export:
    """Which rows are exported, and where to.

    `to` is the prefix in the results bucket. `selection` says which rows and columns of which
    version are read. `cut` is the id of the task files: if several deliveries plan tasks at
    once, the export that is saved first names the files that are used. `tasks` is their number, and
    `size_bytes` about how much of shards they read. If `spark` has options, one Spark job sized for
    `size_bytes` runs all tasks; otherwise functions do.
    """

    id: str
    to: str
    table_id: str
    table_name: str
    schema: Schema
    selection: Selection
    filters: str = ""
    aggregations: str = ""
    cut: str = ""
    tasks: int = 0
    size_bytes: int = 0
    spark: SparkOptions | None = None

    @property
    def tracked_job(self) -> TrackedJob:
        """Its job in the tracker."""
        return TrackedJob(self.table_id, self.id, "export")

    @property
    def table(self) -> Table:
        """The table when the export began, with the properties that reading its rows needs."""
        rules = {"filters": self.filters, "aggregations": self.aggregations}
        properties = properties_of({}, rules)
        return Table(self.table_id, self.table_name, self.schema, properties)


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of keys within one partition, and the shards that can hold rows in it."""

    range: KeyRange
    shards: tuple[Shard, ...]


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """A file of an export; `name` is relative to the export's prefix."""

    name: str
    rows: int
    size_bytes: int


def plan_tasks(
    state: TableState,
    ranges: Iterable[KeyRange],
    *,
    task_bytes: int = MAX_TASK_BYTES,
    task_shards: int = MAX_TASK_SHARDS,
) -> Iterator[tuple[Piece, ...]]:
    """Group the partitions of disjoint ascending ranges into tasks, in key order.

    A partition is never divided: a task ends before the piece that would exceed a limit. With
    `task_bytes=100` and pieces of 60, 30, 50 and 200 bytes, the tasks have 60 + 30, 50, and 200.
    """
    task: list[Piece] = []
    size_bytes = slices = 0
    for piece, piece_bytes in _pieces(state, ranges):
        is_full = size_bytes + piece_bytes > task_bytes or slices + len(piece.shards) > task_shards
        if task and is_full:
            yield tuple(task)
            task, size_bytes, slices = [], 0, 0
        task.append(piece)
        size_bytes += piece_bytes
        slices += len(piece.shards)
    if task:
        yield tuple(task)


def bytes_to_read(state: TableState, ranges: Iterable[KeyRange]) -> int:
    """Estimate how many bytes of shards lie in disjoint ascending ranges."""
    return sum(piece_bytes for _, piece_bytes in _pieces(state, ranges))


def _pieces(state: TableState, ranges: Iterable[KeyRange]) -> Iterator[tuple[Piece, int]]:
    """Yield the pieces of ranges, each with an estimate of the bytes to read.

    A shard of several partitions counts in each by the share of its rows there.
    """
    for wanted in ranges:
        for span, references in state.partitions_to_read(wanted):
            shards = tuple(state.shards[reference.shard] for reference in references)
            size_bytes = sum(
                shard.size_bytes * min(reference.rows, shard.rows) // shard.rows
                for shard, reference in zip(shards, references, strict=True)
            )
            yield Piece(span, shards), size_bytes


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON form of an export."""

    id: str
    to: str
    table_id: str
    table_name: str
    selection: StoredSelection
    filters: str
    aggregations: str
    cut: str
    tasks: int
    size_bytes: int | UnsetType = UNSET
    spark: SparkOptions | UnsetType = UNSET


_StoredShard = tuple[str, int, int, str, str]


class _StoredPieces(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON form of a task: each shard once; pieces refer to shards by position."""

    shards: tuple[_StoredShard, ...]
    pieces: tuple[tuple[tuple[str, str | None], tuple[int, ...]], ...]


class _StoredFiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    files: tuple[ExportedFile, ...]


FORMAT = 3
_EXPORT, _TASK, _FILES = "an export", "a task of an export", "the files of a task of an export"
_ASK_AGAIN = (
    "request the export again, and delete the object <table id>/exports/<export id>.json; the "
    "sweep deletes its other objects"
)
_ENDED = "the export has failed: request it again"


def encode_export(export: Export, path: str) -> bytes:
    """Return the stored form of an export, for `path`."""
    body = _Stored(
        export.id,
        export.to,
        export.table_id,
        export.table_name,
        store_selection(export.selection, export.schema),
        export.filters,
        export.aggregations,
        export.cut,
        export.tasks,
        export.size_bytes or UNSET,
        export.spark or UNSET,
    )
    return encode_stored(_EXPORT, FORMAT, path, body)


def decode_export(stored: bytes, path: str) -> Export:
    """Parse the result of `encode_export`.

    Raises:
        CorruptDataError: the object at `path` is damaged or is no export.
    """
    with raise_corrupt(f"{path} is no export", hint=_ASK_AGAIN):
        body = decode_stored(_EXPORT, FORMAT, path, stored, _Stored)
        schema, selection = load_selection(body.selection)
        return Export(
            body.id,
            body.to,
            body.table_id,
            body.table_name,
            schema,
            selection,
            body.filters,
            body.aggregations,
            body.cut,
            body.tasks,
            body.size_bytes or 0,
            body.spark or None,
        )


def encode_pieces(pieces: Sequence[Piece], path: str) -> bytes:
    """Return the stored form of the pieces of one task, for `path`."""
    numbers: dict[str, int] = {}
    shards: list[_StoredShard] = []
    for piece in pieces:
        for shard in piece.shards:
            if shard.id not in numbers:
                numbers[shard.id] = len(shards)
                shards.append(_stored_shard(shard))
    stored = (
        (_stored_range(piece.range), tuple(numbers[shard.id] for shard in piece.shards))
        for piece in pieces
    )
    return encode_stored(_TASK, FORMAT, path, _StoredPieces(tuple(shards), tuple(stored)))


def decode_pieces(stored: bytes, path: str) -> tuple[Piece, ...]:
    """Parse the result of `encode_pieces`.

    Raises:
        CorruptDataError: the object at `path` is damaged or is no task.
    """
    with raise_corrupt(f"{path} is no task of an export", hint=_ENDED):
        body = decode_stored(_TASK, FORMAT, path, stored, _StoredPieces)
        shards = [_shard(shard) for shard in body.shards]
        return tuple(
            Piece(_range(wanted), tuple(shards[number] for number in numbers))
            for wanted, numbers in body.pieces
        )


def encode_files(files: Sequence[ExportedFile], path: str) -> bytes:
    """Return the stored form of the list of files of a finished task, for `path`."""
    return encode_stored(_FILES, FORMAT, path, _StoredFiles(tuple(files)))


def decode_files(stored: bytes, path: str) -> tuple[ExportedFile, ...]:
    """Parse the result of `encode_files`.

    Raises:
        CorruptDataError: the object at `path` is damaged or is no list of files.
    """
    with raise_corrupt(f"{path} names no files of an export", hint=_ENDED):
        return decode_stored(_FILES, FORMAT, path, stored, _StoredFiles).files


def _stored_range(wanted: KeyRange) -> tuple[str, str | None]:
    high = None if wanted.max is None else encode_key(wanted.max).hex()
    return encode_key(wanted.min).hex(), high


def _range(stored: tuple[str, str | None]) -> KeyRange:
    low, high = stored
    end = None if high is None else decode_key(bytes.fromhex(high))
    return KeyRange(decode_key(bytes.fromhex(low)), end)


def _stored_shard(shard: Shard) -> _StoredShard:
    low, high = (encode_key(key).hex() for key in (shard.min_key, shard.max_key))
    return shard.id, shard.rows, shard.size_bytes, low, high


def _shard(stored: _StoredShard) -> Shard:
    shard_id, rows, size_bytes, low, high = stored
    return Shard(
        shard_id,
        rows,
        size_bytes,
        decode_key(bytes.fromhex(low)),
        decode_key(bytes.fromhex(high)),
    )
