"""The stored form of many deltas: their rows (`rows`), each with the id of its delta."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

import pyarrow as pa

from dormouse.errors import CorruptDataError
from dormouse.statestore.delta.codec import Delta
from dormouse.statestore.delta.columns import COLUMNS
from dormouse.statestore.delta.rows import entries_of, rows_of
from dormouse.statestore.parquet_file import OWNER, check_owner, read_file, write_file

KIND, FORMAT = "segment", 7

_DELTA = pa.field("delta", pa.binary(16))


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
    table = pa.Table.from_pylist(rows, schema).append_column(_DELTA, of_delta_ids)
    return write_file([table], table.schema, KIND, FORMAT, {OWNER: state_id})


def decode_segment(body: bytes, state_id: str, where: str) -> list[Delta]:
    """Return the deltas of a segment in order; `where` names it in errors.

    Raises:
        CorruptDataError: it is damaged or foreign, of another table, or from a later version of
            Dormouse.
    """
    table, facts = read_file(body, KIND, FORMAT, where)
    check_owner(facts, state_id, where)
    if _DELTA.name not in table.column_names:
        raise CorruptDataError(f"{where} does not say which delta its rows are of")
    ids = table[_DELTA.name].to_pylist()
    entries = entries_of(table.drop_columns([_DELTA.name]).to_pylist(), where)
    pairs = groupby(zip(ids, entries, strict=True), key=lambda pair: pair[0])
    return [Delta(key.hex(), tuple(entry for _, entry in held)) for key, held in pairs]
