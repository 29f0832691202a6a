"""The stored form of many deltas: their rows (`rows`), each with the id of its delta."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.errors import CorruptDataError
from dormouse.statestore.delta.codec import Delta
from dormouse.statestore.delta.columns import COLUMNS
from dormouse.statestore.delta.rows import entries_of, rows_of
from dormouse.statestore.parquet_file import OWNER, check_owner, open_file, read_rows, write_file

KIND, FORMAT = "segment", 7

_DELTA = pa.field("delta", pa.binary(16))
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
    rows: list[dict[str, object]] = []
    ids: list[bytes] = []
    for delta in deltas:
        of_delta = rows_of(delta.entries)
        rows += of_delta
        ids += [bytes.fromhex(delta.id)] * len(of_delta)
    needed = {column for row in rows for column in row}
    schema = pa.schema([(name, kind) for name, kind in COLUMNS.items() if name in needed])
    of_delta_ids = pa.chunked_array([pa.array(ids, _DELTA.type)])
    return _encoded(
        pa.Table.from_pylist(rows, schema).append_column(_DELTA, of_delta_ids), state_id
    )


def join_segments(parts: Sequence[StoredSegment], state_id: str) -> bytes:
    """Return the stored form of all deltas of some segments, the same as if they were encoded.

    No delta is decoded, so many take little time and memory.

    Raises:
        CorruptDataError: one is damaged or foreign, lacks deltas, or is from a later version.
    """
    tables = []
    for part in parts:
        file, facts = open_file(part.body, KIND, FORMAT, part.where)
        rows = read_rows(file, KIND, part.where, range(file.num_row_groups))
        check_owner(facts, state_id, part.where)
        _check_named(rows, part.where)
        if len(_first_rows(rows)) != part.deltas:
            raise CorruptDataError(f"{part.where} lacks deltas")
        tables.append(rows)
    rows = pa.concat_tables(tables, promote_options="default").combine_chunks()
    there = [name for name in (*COLUMNS, _DELTA.name) if name in rows.column_names]
    return _encoded(rows.select(there), state_id)


def _encoded(rows: pa.Table, state_id: str) -> bytes:
    starts = _first_rows(rows)[::_DELTAS_OF_A_GROUP]
    ends = [*starts[1:], len(rows)]
    groups = [rows.slice(start, end - start) for start, end in zip(starts, ends, strict=False)]
    return write_file(groups or [rows], rows.schema, KIND, FORMAT, {OWNER: state_id})


def _first_rows(rows: pa.Table) -> list[int]:
    """Return the row where each delta begins. Two that follow one another have different ids."""
    if not len(rows):
        return []
    ids = rows[_DELTA.name].combine_chunks()
    begins: pa.Array[Any] = pc.not_equal(ids[1:], ids[:-1])
    places: list[Any] = pc.indices_nonzero(begins).to_pylist()
    return [0, *(place + 1 for place in places)]


def decode_segment(body: bytes, state_id: str, where: str, *, without: int = 0) -> list[Delta]:
    """Return the deltas of a segment in order, `without` so many of the first ones.

    `where` names it in errors. Row groups that hold only such deltas are not read.

    Raises:
        CorruptDataError: it is damaged or foreign, of another table, or from a later version of
            Dormouse.
    """
    file, facts = open_file(body, KIND, FORMAT, where)
    # A segment that was written before there were several row groups has all deltas in its first.
    skipped = without // _DELTAS_OF_A_GROUP if file.num_row_groups > 1 else 0
    groups = range(min(skipped, file.num_row_groups), file.num_row_groups)
    table = read_rows(file, KIND, where, groups)
    check_owner(facts, state_id, where)
    _check_named(table, where)
    ids = table[_DELTA.name].to_pylist()
    entries = entries_of(table.drop_columns([_DELTA.name]).to_pylist(), where)
    pairs = groupby(zip(ids, entries, strict=True), key=lambda pair: pair[0])
    found = [Delta(key.hex(), tuple(entry for _, entry in held)) for key, held in pairs]
    return found[without - skipped * _DELTAS_OF_A_GROUP :]


def _check_named(rows: pa.Table, where: str) -> None:
    if _DELTA.name not in rows.column_names:
        raise CorruptDataError(f"{where} does not say which delta its rows are of")
