"""Which columns of floats of a shard hold no NaN.

Statistics of Parquet leave out NaN, which is greater than all other numbers, so a reader that sorts
or compares floats can use them only where there is none. The footer names the columns that have
none; in shards without this entry, any column may have some.
"""

from __future__ import annotations

from math import isnan

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.schema.schema import Primitive, Schema
from dormouse.stored.decoding import decode_json, raise_corrupt

NO_NAN_KEY = "dormouse.no_nan"
"""The key of the entry: a JSON list of names of columns."""


class NaNSearch:
    """Looks for NaN in the columns of floats of batches, up to the first of each column."""

    def __init__(self, schema: Schema) -> None:
        """See nothing yet."""
        floats = (Primitive.FLOAT, Primitive.DOUBLE)
        self._without = {n: f.name for n, f in enumerate(schema.fields) if f.type in floats}

    def see(self, batch: pa.RecordBatch) -> None:
        """Look at the rows of a batch, whose columns are those of the schema."""
        import pyarrow.compute as pc  # what reads shards needs none of it

        for number in list(self._without):
            column = batch.column(number)
            total = pc.sum(column).as_py()
            # the sum is NaN if a value is, or of both infinities; only then is it worth to look
            if total is not None and isnan(total) and pc.any(pc.is_nan(column)).as_py():
                del self._without[number]

    def metadata(self) -> dict[str, str]:
        """Return the entry of the footer; none if no column is known to be without NaN."""
        names = list(self._without.values())
        return {NO_NAN_KEY: msgspec.json.encode(names).decode()} if names else {}


def columns_without_nan(metadata: pq.FileMetaData, path: str) -> frozenset[str]:
    """Return the names of the columns of floats that are known to hold no NaN.

    Raises:
        CorruptDataError: the entry is damaged.
    """
    stored = (metadata.metadata or {}).get(NO_NAN_KEY.encode())
    if stored is None:
        return frozenset()
    with raise_corrupt(f"the footer of shard {path} is damaged"):
        return decode_json(stored, frozenset[str])
