"""Columns of floats that hold NaN have no bounds in a shard.

Statistics of Parquet leave out NaN, which is greater than all other numbers, and readers believe
them: they would miss rows. pyarrow has to be told which columns get bounds before the first row is
written, and whether there is NaN is known after the last one: so they are taken out of the footer.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Collection
from math import isnan
from pathlib import Path

import pyarrow as pa

from dormouse.schema.schema import Primitive, Schema
from dormouse.shards.format import thrift
from dormouse.shards.format.crcs import TRAILER_BYTES


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

    @property
    def without(self) -> list[str]:
        """The names of the columns of floats in which there was none."""
        return list(self._without.values())


# Numbers of fields in Parquet's structs.
_ROW_GROUPS = 4  # of a footer
_CHUNKS = 1  # of a row group
_METADATA, _COLUMN_INDEX = 3, (6, 7)  # of a column chunk; the latter as offset and length
_STATISTICS = 12  # of the metadata of a column chunk
_BOUNDS = (1, 2, 5, 6, 7, 8)  # of statistics: all but the numbers of nulls and distinct values


def drop_bounds(local: Path, leaves: Collection[int]) -> None:
    """Take the least and greatest values of some Parquet columns, by place, out of the footer of a
    local file, and the references to their column indexes. The other bytes of the file stay.
    """

    def statistics(body: thrift.Body, at: int) -> tuple[bytes, int]:
        return thrift.edit_struct(body, at, dict.fromkeys(_BOUNDS))

    def described(body: thrift.Body, at: int) -> tuple[bytes, int]:
        return thrift.edit_struct(body, at, {_STATISTICS: statistics})

    def chunk(place: int, body: thrift.Body, at: int) -> tuple[bytes, int]:
        if place in leaves:
            return thrift.edit_struct(
                body, at, {_METADATA: described, **dict.fromkeys(_COLUMN_INDEX)}
            )
        end = thrift.read_struct(body, at)[1]
        return bytes(body[at:end]), end

    def group(place: int, body: thrift.Body, at: int) -> tuple[bytes, int]:
        return thrift.edit_struct(body, at, {_CHUNKS: lambda b, i: thrift.edit_list(b, i, chunk)})

    with local.open("r+b") as file:
        file.seek(-TRAILER_BYTES, os.SEEK_END)
        length, magic = struct.unpack("<I4s", file.read(TRAILER_BYTES))
        start = file.seek(-TRAILER_BYTES - length, os.SEEK_END)
        edits = {_ROW_GROUPS: lambda b, i: thrift.edit_list(b, i, group)}
        footer, _ = thrift.edit_struct(file.read(), 0, edits)
        file.seek(start)
        file.write(footer + struct.pack("<I4s", len(footer), magic))
        file.truncate()
