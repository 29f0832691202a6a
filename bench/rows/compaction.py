"""Make one sorted file of many, as Dormouse's compact stage does, and as others do it.

Run as ``python -m bench.rows.compaction PART SYSTEM ROUND KIND INPUTS OUT``; prints a JSON line
for each figure. All read the same shards, and write zstd of level 1.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq

from bench.rows import instance as rows_instance
from bench.rows import original_plan
from bench.rows.data import KEYS, SCHEMAS
from bench.rows.digest import ALL, DIGESTS, saved
from bench.rows.measure import read_once
from bench.rows.output import report
from bench.rows.rounds import FLOOR, GROUPS_FLOOR, PLAIN_FLOOR
from dormouse.ports import Storage
from dormouse.schema.schema import Schema

Work = Callable[[], object]
DUCKDB_PARQUET = (
    "FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, PARQUET_VERSION v2, "
    "DICTIONARY_SIZE_LIMIT 1"
)
"""How DuckDB writes fastest: a quarter less CPU time than as it is set, and smaller files."""
ROW_GROUP_ROWS = 1024**2
"""What pyarrow puts into a row group if it is given as much at once."""
ORDER = ", ".join(KEYS)


def dormouse(
    files: Sequence[Path],
    kind: str,
    out: Path,
    memory_bytes: int = 0,
    storage: Storage | None = None,
) -> Work:
    """Run the compact stage on an assigned job, with the environment's memory unless given.

    With a `storage`, the stage reaches the folder `out` through that.
    """
    return of_schema(files, SCHEMAS[kind], out, memory_bytes, storage)


def of_schema(
    files: Sequence[Path],
    schema: Schema,
    out: Path,
    memory_bytes: int = 0,
    storage: Storage | None = None,
) -> Work:
    """Return the same work for shards of any schema."""
    from dormouse import settings
    from dormouse.features.compaction import compact
    from dormouse.messages.stages import CompactionJob
    from dormouse.state.state import AssignJob

    folder = rows_instance.linked(files, out)
    scratch, memory = out.parent / "scratch", memory_bytes or settings.memory_bytes()
    maker = rows_instance.services(folder, scratch, memory, seed=2)
    table = rows_instance.reopened(maker, schema)
    state = maker.store(table).current()
    job = AssignJob(maker.ids.new(), "root", tuple(state.shards))
    maker.store(table).commit(job, generation=state.generation)
    given = rows_instance.fresh(maker, storage or folder, scratch, memory)

    def work() -> None:
        compact(given, CompactionJob(table.id, state.generation, job.job))
        for file in files:  # what the stage leaves for the garbage collector is not its output
            (out / file.relative_to(file.parents[2])).unlink()

    return work


def copy(
    files: Sequence[Path], kind: str, out: Path, *, dictionary: bool, our_groups: bool = False
) -> Work:
    """Copy all rows, unsorted, with pyarrow: what compaction costs without its purpose."""
    group_rows = ROW_GROUP_ROWS
    if our_groups:
        footer = pq.read_metadata(files[0])
        group_rows = footer.num_rows // footer.num_row_groups

    def work() -> None:
        schema = pq.read_schema(files[0]).remove_metadata()
        target = out / "copy.parquet"
        with pq.ParquetWriter(
            target, schema, compression="zstd", use_dictionary=dictionary
        ) as writer:
            for file in files:
                for batch in pq.ParquetFile(file).iter_batches(group_rows):
                    writer.write_batch(batch)

    return work


def datafusion(files: Sequence[Path], kind: str, out: Path) -> Work:
    """Merge files that are declared sorted, and write with DataFusion too, as it is fastest."""
    from datafusion import ParquetWriterOptions, SessionConfig, SessionContext, col

    options = ParquetWriterOptions(compression="zstd(1)", dictionary_enabled=False)

    def work() -> None:
        context = SessionContext(SessionConfig().with_target_partitions(1))
        order = [[col(key).sort(ascending=True, nulls_first=True) for key in KEYS]]
        for i, file in enumerate(files):
            context.register_parquet(f"t{i}", str(file), file_sort_order=order)
        union = " UNION ALL ".join(f"SELECT * FROM t{i}" for i in range(len(files)))
        keys = ", ".join(f"{key} NULLS FIRST" for key in KEYS)
        frame = context.sql(f"SELECT * FROM ({union}) ORDER BY {keys}")
        frame.write_parquet(str(out / "merged.parquet"), options)

    return work


def polars(files: Sequence[Path], kind: str, out: Path) -> Work:
    """Sort all rows again with Polars' streaming engine."""
    import polars as pl

    def work() -> None:
        rows = pl.scan_parquet(list(files)).sort(KEYS)
        rows.sink_parquet(out / "sorted.parquet", compression="zstd", compression_level=1)

    return work


def duckdb(files: Sequence[Path], kind: str, out: Path) -> Work:
    """Sort all rows again with DuckDB."""
    import duckdb

    connection = duckdb.connect(config={"temp_directory": str(out.parent / "scratch")})

    def work() -> None:
        rows = f"SELECT * FROM read_parquet({[str(file) for file in files]}) ORDER BY {ORDER}"
        target = f"'{out}/sorted.parquet'"
        connection.sql(f"COPY ({rows}) TO {target} ({DUCKDB_PARQUET})")

    return work


def delta_rs(files: Sequence[Path], kind: str, out: Path) -> Work:
    """Compact a Delta table of the same rows; its rows stay unsorted."""
    from deltalake import DeltaTable, WriterProperties, write_deltalake

    for file in files:
        write_deltalake(out, pq.read_table(file), mode="append")
    inputs = list(out.glob("*.parquet"))
    table = DeltaTable(out)

    def work() -> None:
        properties = WriterProperties(compression="ZSTD", compression_level=1)
        table.optimize.compact(target_size=2**40, writer_properties=properties)
        for file in inputs:
            file.unlink()

    return work


def pyiceberg(files: Sequence[Path], kind: str, out: Path) -> Work:
    """Rewrite an Iceberg table of the same rows; its rows stay unsorted."""
    from pyiceberg.catalog.sql import SqlCatalog

    database = out.parent / "scratch" / "catalog.db"
    catalog = SqlCatalog("bench", uri=f"sqlite:///{database}", warehouse=f"file://{out}")
    catalog.create_namespace("n")
    schema = pq.read_schema(files[0]).remove_metadata()
    table = catalog.create_table("n.t", schema=schema)
    for file in files:
        table.append(pq.read_table(file))
    inputs = list(out.rglob("*.parquet"))

    def work() -> None:
        table.overwrite(table.scan().to_arrow())
        for file in inputs:
            file.unlink()

    return work


SYSTEMS: dict[str, Callable[[Sequence[Path], str, Path], Work]] = {
    "dormouse": dormouse,
    FLOOR: partial(copy, dictionary=True),
    PLAIN_FLOOR: partial(copy, dictionary=False),
    GROUPS_FLOOR: partial(copy, dictionary=False, our_groups=True),
    original_plan.NAME: original_plan.original,
    original_plan.NO_SKETCH: partial(original_plan.original, sketch=False),
    "datafusion merge": datafusion,
    "polars sort": polars,
    "duckdb sort": duckdb,
    "delta-rs compact": delta_rs,
    "pyiceberg rewrite": pyiceberg,
}
SORTED = {"dormouse", *original_plan.NAMES, "datafusion merge", "polars sort", "duckdb sort"}


def main() -> None:
    """Measure one system once."""
    part, system, number, kind, inputs, out = sys.argv[1:]
    files = sorted(Path(inputs).resolve().glob("*/data/*.parquet"))
    expected = saved(Path(inputs).parent / DIGESTS)[ALL]
    work = SYSTEMS[system](files, kind, Path(out))
    read_once(files)
    report(part, system, int(number), work, expected, Path(out), in_order=system in SORTED)


if __name__ == "__main__":
    main()
