"""Make sorted files, one for each of 16 leaves, of an unsorted one: as Dormouse's ingest stage does
it, and as others do.

Run as ``python -m bench.rows.ingest PART SYSTEM ROUND KIND SOURCE OUT``; prints a JSON line for
each figure. All read one Parquet file, and write zstd of level 1.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.rows import instance as rows_instance
from bench.rows.compaction import DUCKDB_PARQUET, ROW_GROUP_ROWS
from bench.rows.data import KEYS, SCHEMAS, split_points
from bench.rows.digest import DIGESTS, saved
from bench.rows.measure import read_once
from bench.rows.output import report
from bench.rows.rounds import FLOOR, GROUPS_FLOOR, PLAIN_FLOOR
from dormouse.shards.footer import first_bytes

Work = Callable[[], object]
LEAVES = 16
ORDER = ", ".join(KEYS)


def leaves() -> Iterator[tuple[str, str]]:
    """Return the leaves' bounds; all keys lie from the first to the last."""
    points = ["", *split_points(LEAVES), "~"]
    yield from zip(points, points[1:], strict=False)


def dormouse(source: Path, kind: str, out: Path, *others: Path, memory_bytes: int = 0) -> Work:
    """Run the ingest stage on one file or more, with the environment's memory unless given."""
    from dormouse import settings
    from dormouse.storage import FolderStorage

    scratch, memory = out.parent / "scratch", memory_bytes or settings.memory_bytes()
    given = rows_instance.services(FolderStorage(out), scratch, memory, seed=3)
    rows_instance.create(given, SCHEMAS[kind], split_points(LEAVES))
    return partial(rows_instance.ingest_files, given, [source, *others])


def copy(source: Path, kind: str, out: Path, *, dictionary: bool, our_groups: bool = False) -> Work:
    """Copy all rows, unsorted, into 16 files of as many rows with pyarrow."""
    footer = pq.read_metadata(source)
    row_bytes = source.stat().st_size / footer.num_rows
    group_rows = int(first_bytes(footer.num_columns) / row_bytes) if our_groups else ROW_GROUP_ROWS
    batch_rows = max(1, min(group_rows, footer.num_rows // LEAVES))

    def work() -> None:
        with pq.ParquetFile(source) as file, ExitStack() as opened:
            rows, seen = file.metadata.num_rows, 0
            writers = [
                opened.enter_context(
                    pq.ParquetWriter(
                        out / f"{i}.parquet",
                        file.schema_arrow,
                        compression="zstd",
                        use_dictionary=dictionary,
                    )
                )
                for i in range(LEAVES)
            ]
            for batch in file.iter_batches(batch_rows):
                writers[seen * LEAVES // rows].write_batch(batch)
                seen += batch.num_rows

    return work


def datafusion(source: Path, kind: str, out: Path) -> Work:
    """Sort with DataFusion into one file, which is not cut."""
    from datafusion import ParquetWriterOptions, SessionContext, col

    options = ParquetWriterOptions(compression="zstd(1)", dictionary_enabled=False)

    def work() -> None:
        rows = SessionContext().read_parquet(str(source))
        in_order = rows.sort(*(col(key).sort(ascending=True, nulls_first=True) for key in KEYS))
        in_order.write_parquet(str(out / "sorted.parquet"), options)

    return work


def polars(source: Path, kind: str, out: Path) -> Work:
    """Take the rows of each leaf in turn, sort and write them, with Polars."""
    import polars as pl

    def work() -> None:
        rows = pl.read_parquet(source)
        for low, high in leaves():
            part = rows.filter(
                pl.col("key").is_between(pl.lit(low), pl.lit(high), closed="left")
            ).sort(KEYS)
            part.write_parquet(out / f"{low}.parquet", compression="zstd", compression_level=1)

    return work


def duckdb(source: Path, kind: str, out: Path) -> Work:
    """Sort into a table in memory, and copy each leaf's rows from there, with DuckDB."""
    import duckdb

    connection = duckdb.connect(config={"temp_directory": str(out.parent / "scratch")})

    def work() -> None:
        rows = f"SELECT * FROM read_parquet('{source}') ORDER BY {ORDER}"
        connection.execute(f"CREATE TABLE sorted AS {rows}")
        for low, high in leaves():
            part = f"SELECT * FROM sorted WHERE key >= '{low}' AND key < '{high}'"
            connection.execute(f"COPY ({part}) TO '{out}/{low}.parquet' ({DUCKDB_PARQUET})")

    return work


def delta_rs(source: Path, kind: str, out: Path) -> Work:
    """Append to a Delta table; the rows are neither sorted nor cut."""
    from deltalake import WriterProperties, write_deltalake

    def work() -> None:
        with pq.ParquetFile(source) as file:
            properties = WriterProperties(compression="ZSTD", compression_level=1)
            batches = pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches())
            write_deltalake(out, batches, mode="append", writer_properties=properties)

    return work


def pyiceberg(source: Path, kind: str, out: Path) -> Work:
    """Append to an Iceberg table; the rows are neither sorted nor cut."""
    from pyiceberg.catalog.sql import SqlCatalog

    database = out.parent / "scratch" / "catalog.db"
    catalog = SqlCatalog("bench", uri=f"sqlite:///{database}", warehouse=f"file://{out}")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=pq.read_schema(source))
    return lambda: table.append(pq.read_table(source))


SYSTEMS: dict[str, Callable[[Path, str, Path], Work]] = {
    "dormouse": dormouse,
    FLOOR: partial(copy, dictionary=True),
    PLAIN_FLOOR: partial(copy, dictionary=False),
    GROUPS_FLOOR: partial(copy, dictionary=False, our_groups=True),
    "datafusion sort, one file": datafusion,
    "polars filter and sort": polars,
    "duckdb sort": duckdb,
    "delta-rs append": delta_rs,
    "pyiceberg append": pyiceberg,
}
SORTED = {"dormouse", "datafusion sort, one file", "polars filter and sort", "duckdb sort"}


def main() -> None:
    """Measure one system once."""
    part, system, number, kind, given, out = sys.argv[1:]
    source = Path(given).resolve()
    expected = saved(source.parent / DIGESTS)[source.name]
    work = SYSTEMS[system](source, kind, Path(out))
    read_once([source])
    report(part, system, int(number), work, expected, Path(out), in_order=system in SORTED)


if __name__ == "__main__":
    main()
