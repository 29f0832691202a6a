"""A delta as a small Parquet file with a row for each transaction.

Any reader of Parquet can open it. A compaction of ten shards takes 2.5 KB, most of it the footer.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from dormouse.model.transactions import Entry
from dormouse.statestore.delta.codec import DeltaCodec
from dormouse.statestore.delta.columns import COLUMNS
from dormouse.statestore.delta.rows import entries_of, rows_of
from dormouse.statestore.parquet_file import OWNER, check_owner, read_file, write_file

KIND, FORMAT = "delta", 7


def encode_delta(entries: Sequence[Entry], identity: str) -> bytes:
    """Return the stored form of the entries of one delta, without the columns that no row needs."""
    rows = rows_of(entries)
    needed = {column for row in rows for column in row}
    schema = pa.schema([(name, kind) for name, kind in COLUMNS.items() if name in needed])
    return write_file([pa.Table.from_pylist(rows, schema)], schema, KIND, FORMAT, {OWNER: identity})


def decode_delta(body: bytes, identity: str, where: str) -> tuple[Entry, ...]:
    """Return the entries of a delta; `where` names it in errors.

    Raises:
        CorruptDataError: it is damaged or foreign, another delta than `identity`, or from a later
            version of Dormouse.
    """
    table, facts = read_file(body, KIND, FORMAT, where)
    check_owner(facts, identity, where)
    return entries_of(table.to_pylist(), where)


PARQUET = DeltaCodec(encode_delta, decode_delta, suffix=".parquet")
