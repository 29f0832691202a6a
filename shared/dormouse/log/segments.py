"""The stored form of many deltas: a Parquet file with a row for each, its id and its entries.

The entries are JSON, so any reader of Parquet shows what happened to a table. Compressed together
they take no more than MessagePack.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from dormouse.errors import CorruptDataError
from dormouse.log.columns import open_file, write_file
from dormouse.log.deltas import Delta, read_entries
from dormouse.stored.decoding import decode_json, raise_corrupt

KIND, FORMAT = "segment", 1
OWNER = "dormouse.owner"
"""The fact that says to which state a segment belongs."""

_COLUMNS: dict[str, pa.DataType] = {"delta": pa.binary(16), "entries": pa.string()}
_SCHEMA = pa.schema(list(_COLUMNS.items()))
_DELTAS_OF_A_GROUP = 8 * 48
"""How many deltas are in a row group, so that a reader who knows the first ones skips them. It is a
part of the format."""


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A segment that was read; `where` names it in errors, and it should have so many deltas."""

    body: bytes
    where: str
    deltas: int


def encode_segment(deltas: Iterable[Delta], state_id: str) -> bytes:
    """Return the stored form of deltas of a table that follow one another."""
    rows = [
        (bytes.fromhex(delta.id), msgspec.json.encode(delta.entries).decode()) for delta in deltas
    ]
    cells = zip(*rows, strict=True) if rows else ((), ())
    columns = [pa.array(cell, kind) for cell, kind in zip(cells, _SCHEMA.types, strict=True)]
    return _encoded(pa.Table.from_arrays(columns, schema=_SCHEMA), state_id)


def join_segments(parts: Sequence[StoredSegment], state_id: str) -> bytes:
    """Return the stored form of all deltas of some segments, the same as if they were encoded.

    No delta is decoded, so many take little time and memory.

    Raises:
        CorruptDataError: one is damaged or foreign, lacks deltas, or is from a later version.
    """
    tables = [_read(part.body, state_id, part.where, 0) for part in parts]
    for part, rows in zip(parts, tables, strict=True):
        if len(rows) != part.deltas:
            raise CorruptDataError(f"{part.where} lacks deltas")
    return _encoded(pa.concat_tables(tables).combine_chunks(), state_id)


def decode_segment(body: bytes, state_id: str, where: str, *, without: int = 0) -> list[Delta]:
    """Return the deltas of a segment in order, `without` so many of the first ones.

    `where` names it in errors. Row groups that hold only such deltas are not read.

    Raises:
        CorruptDataError: it is damaged or foreign, of another table, or from a later version of
            Dormouse.
    """
    skipped = without // _DELTAS_OF_A_GROUP
    rows = _read(body, state_id, where, skipped).slice(without - skipped * _DELTAS_OF_A_GROUP)
    with raise_corrupt(f"{where} has a delta that is no text"):
        ids, packed = (rows[name].to_pylist() for name in _SCHEMA.names)
    cells: Iterable[tuple[Any, Any]] = zip(ids, packed, strict=True)  # none is null
    return [
        Delta(delta.hex(), read_entries(entries, f"delta {delta.hex()} of {where}", decode_json))
        for delta, entries in cells
    ]


def _encoded(rows: pa.Table, state_id: str) -> bytes:
    starts = range(0, len(rows), _DELTAS_OF_A_GROUP)
    groups = [rows.slice(start, _DELTAS_OF_A_GROUP) for start in starts]
    return write_file(groups or [rows], rows.schema, KIND, FORMAT, {OWNER: state_id})


def _read(body: bytes, state_id: str, where: str, skipped: int) -> pa.Table:
    """Return the rows of a segment, without those of its first row groups."""
    file, facts = open_file(body, KIND, FORMAT, where)
    owner = facts.get(OWNER, "a file without an owner")
    if owner != state_id:
        raise CorruptDataError(
            f"{where} should hold {state_id} and holds {owner}",
            hint="a file was copied to the wrong place: restore the object that was there",
        )
    groups = range(min(skipped, file.num_row_groups), file.num_row_groups)
    try:
        # A thread of Arrow that still holds the body when Python ends would abort the process.
        rows = file.read_row_groups([*groups], use_threads=False)
        rows = rows.select(_SCHEMA.names).cast(_SCHEMA)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise CorruptDataError(f"{where} is not a readable {KIND}: {error}") from error
    if any(rows[name].null_count for name in _SCHEMA.names):
        raise CorruptDataError(f"{where} lacks deltas")
    return rows
