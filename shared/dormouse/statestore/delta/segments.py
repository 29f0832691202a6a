"""The stored form of many deltas: their rows (`rows`), each with the id of its delta."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

import pyarrow as pa

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


def encode_segment(deltas: Iterable[Delta], state_id: str) -> bytes:
    """Return the stored form of deltas of a table that follow one another."""
    rows: list[dict[str, object]] = []
    ids: list[bytes] = []
    starts: list[int] = []  # of every so many deltas, the row where they begin
    for number, delta in enumerate(deltas):
        if number % _DELTAS_OF_A_GROUP == 0:
            starts.append(len(rows))
        of_delta = rows_of(delta.entries)
        rows += of_delta
        ids += [bytes.fromhex(delta.id)] * len(of_delta)
    needed = {column for row in rows for column in row}
    schema = pa.schema([(name, kind) for name, kind in COLUMNS.items() if name in needed])
    of_delta_ids = pa.chunked_array([pa.array(ids, _DELTA.type)])
    table = pa.Table.from_pylist(rows, schema).append_column(_DELTA, of_delta_ids)
    ends = [*starts[1:], len(rows)]
    groups = [table.slice(start, end - start) for start, end in zip(starts, ends, strict=False)]
    return write_file(groups or [table], table.schema, KIND, FORMAT, {OWNER: state_id})


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
    if _DELTA.name not in table.column_names:
        raise CorruptDataError(f"{where} does not say which delta its rows are of")
    ids = table[_DELTA.name].to_pylist()
    entries = entries_of(table.drop_columns([_DELTA.name]).to_pylist(), where)
    pairs = groupby(zip(ids, entries, strict=True), key=lambda pair: pair[0])
    found = [Delta(key.hex(), tuple(entry for _, entry in held)) for key, held in pairs]
    return found[without - skipped * _DELTAS_OF_A_GROUP :]
