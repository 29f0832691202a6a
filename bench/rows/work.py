"""Compact sorted files to one, or cut an unsorted one into sorted ones of 16 leaves: as Dormouse's
stages do it, and as others do.

All read the same Parquet files, and write zstd of level 1. Each system is prepared, and returns the
work that is measured.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bench.measure import ROOT, PeakElsewhere
from bench.rows import instance as rows_instance
from bench.rows.data import KEYS, SCHEMAS, leaf_ranges, split_points
from dormouse import settings
from dormouse.errors import InvariantError
from dormouse.ports import Storage
from dormouse.shards.footer import first_bytes
from dormouse.storage import FolderStorage

Work = Callable[[], object]
LEAVES = 16
FLOOR = "pyarrow copy"
"""Copying the same rows, unsorted, with pyarrow as it is set: dictionaries, 1 Mi rows a group."""
PLAIN_FLOOR = "pyarrow copy, no dictionary"
"""The same with dictionaries off: with keys like these they cost time and space."""
GROUPS_FLOOR = "pyarrow copy, no dictionary, our row groups"
"""The same with row groups as small as those of shards, which make look-ups cheap."""
ORIGINAL = "the original's plan"
NO_SKETCH = f"{ORIGINAL}, no sketch"
ORIGINALS = (ORIGINAL, NO_SKETCH)
PROGRAM = ROOT / "build" / "original" / "release" / "original"
"""What `built` makes; its settings are in ``original/src/main.rs``."""
DUCKDB_PARQUET = (
    "FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, PARQUET_VERSION v2, "
    "DICTIONARY_SIZE_LIMIT 1"
)
"""How DuckDB writes fastest: a quarter less CPU time than as it is set, and smaller files."""
ROW_GROUP_ROWS = 1024**2
"""What pyarrow puts into a row group if it is given as much at once."""
ORDER = ", ".join(KEYS)


def compact(files: Sequence[Path], kind: str, out: Path, storage: Storage | None = None) -> Work:
    """Run the compact stage on an assigned job, with the environment's memory.

    With a `storage`, the stage reaches the folder `out` through that.
    """
    from dormouse.features.compaction import compact as stage

    scratch, memory = out.parent / "scratch", settings.memory_bytes()
    maker, job = rows_instance.assigned(files, SCHEMAS[kind], out, scratch, memory)
    services = rows_instance.fresh(maker, storage or FolderStorage(out), scratch, memory)

    def work() -> None:
        stage(services, job)
        rows_instance.unlink(files, out)

    return work


def ingest(files: Sequence[Path], kind: str, out: Path) -> Work:
    scratch, memory = out.parent / "scratch", settings.memory_bytes()
    services = rows_instance.services(FolderStorage(out), scratch, memory, seed=3)
    rows_instance.create(services, SCHEMAS[kind], split_points(LEAVES))
    return partial(rows_instance.ingest_files, services, files)


def copy(
    files: Sequence[Path],
    kind: str,
    out: Path,
    *,
    dictionary: bool,
    our_groups: bool = False,
    leaves: int = 1,
) -> Work:
    """Copy all rows with pyarrow as they come: a compaction without its purpose, or an ingest."""
    footers = [pq.read_metadata(file) for file in files]
    rows = sum(footer.num_rows for footer in footers)
    row_bytes = sum(file.stat().st_size for file in files) / rows
    ours = int(first_bytes(footers[0].num_columns) / row_bytes)
    batch_rows = max(1, min(ours if our_groups else ROW_GROUP_ROWS, rows // leaves))

    def work() -> None:
        schema, copied = pq.read_schema(files[0]).remove_metadata(), 0
        with ExitStack() as opened:
            writers = [
                opened.enter_context(
                    pq.ParquetWriter(
                        out / f"{i}.parquet", schema, compression="zstd", use_dictionary=dictionary
                    )
                )
                for i in range(leaves)
            ]
            for file in files:
                for batch in pq.ParquetFile(file).iter_batches(batch_rows):
                    writers[copied * leaves // rows].write_batch(batch)
                    copied += batch.num_rows

    return work


def datafusion_merge(files: Sequence[Path], kind: str, out: Path) -> Work:
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


def datafusion_sort(files: Sequence[Path], kind: str, out: Path) -> Work:
    from datafusion import ParquetWriterOptions, SessionContext, col

    options = ParquetWriterOptions(compression="zstd(1)", dictionary_enabled=False)

    def work() -> None:
        rows = SessionContext().read_parquet(str(files[0]))
        in_order = rows.sort(*(col(key).sort(ascending=True, nulls_first=True) for key in KEYS))
        in_order.write_parquet(str(out / "sorted.parquet"), options)

    return work


def polars_sort(files: Sequence[Path], kind: str, out: Path) -> Work:
    import polars as pl

    def work() -> None:
        rows = pl.scan_parquet(list(files)).sort(KEYS)
        rows.sink_parquet(out / "sorted.parquet", compression="zstd", compression_level=1)

    return work


def polars_filter_and_sort(files: Sequence[Path], kind: str, out: Path) -> Work:
    """Take the rows of each leaf in turn, sort and write them, with Polars."""
    import polars as pl

    def work() -> None:
        rows = pl.read_parquet(files[0])
        for low, high in leaf_ranges(LEAVES):
            within = pl.col("key").is_between(pl.lit(low), pl.lit(high), closed="left")
            part = rows.filter(within).sort(KEYS)
            part.write_parquet(out / f"{low}.parquet", compression="zstd", compression_level=1)

    return work


def duckdb_sort(files: Sequence[Path], kind: str, out: Path, *, leaves: int = 1) -> Work:
    """Sort all rows with DuckDB; for several leaves into a table in memory, and cut that."""
    import duckdb

    connection = duckdb.connect(config={"temp_directory": str(out.parent / "scratch")})

    def work() -> None:
        rows = f"SELECT * FROM read_parquet({[str(file) for file in files]}) ORDER BY {ORDER}"
        parts = {"sorted": rows}
        if leaves > 1:
            connection.execute(f"CREATE TABLE sorted AS {rows}")
            parts = {
                low: f"SELECT * FROM sorted WHERE key >= '{low}' AND key < '{high}'"
                for low, high in leaf_ranges(leaves)
            }
        for name, part in parts.items():
            connection.execute(f"COPY ({part}) TO '{out}/{name}.parquet' ({DUCKDB_PARQUET})")

    return work


def delta_rs_compact(files: Sequence[Path], kind: str, out: Path) -> Work:
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


def pyiceberg_rewrite(files: Sequence[Path], kind: str, out: Path) -> Work:
    from pyiceberg.catalog.sql import SqlCatalog

    database = out.parent / "scratch" / "catalog.db"
    catalog = SqlCatalog("bench", uri=f"sqlite:///{database}", warehouse=f"file://{out}")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=pq.read_schema(files[0]).remove_metadata())
    for file in files:
        table.append(pq.read_table(file))
    inputs = list(out.rglob("*.parquet"))

    def work() -> None:
        table.overwrite(table.scan().to_arrow())
        for file in inputs:
            file.unlink()

    return work


def built(program: Path = PROGRAM) -> str:
    """Build the original's plan, in Rust; return why it was not, or an empty text."""
    cargo = shutil.which("cargo")
    if cargo is None:
        return "there is no cargo; install Rust to have it among the peers"
    manifest = str(ROOT / "bench" / "rows" / "original" / "Cargo.toml")
    command = [cargo, "build", "--release", "--manifest-path", manifest]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(PROGRAM.parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        return f"cargo could not build it: {done.stderr.strip().splitlines()[-1]}"
    return "" if program.is_file() else f"cargo built no {program}"


def original(files: Sequence[Path], kind: str, out: Path, *, sketch: bool = True) -> Work:
    """Merge files by the original's plan, and write as it writes; with a `sketch` of the keys, as
    the original has.
    """
    target, sketched = f"{out}/merged.parquet", "yes" if sketch else "no"
    command = [str(PROGRAM), target, ",".join(KEYS), sketched, "", "", *map(str, files)]

    def work() -> PeakElsewhere:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        counts = json.loads(done.stdout)
        if counts["sketched"] != (counts["rows"] if sketch else 0):
            raise InvariantError(
                f"the sketch has {counts['sketched']:,} of {counts['rows']:,} rows"
            )
        return PeakElsewhere(counts["peak_rss_kb"] * 1024)

    return work


_COPIES: dict[str, dict[str, Any]] = {
    FLOOR: {"dictionary": True},
    PLAIN_FLOOR: {"dictionary": False},
    GROUPS_FLOOR: {"dictionary": False, "our_groups": True},
}
SYSTEMS: dict[str, dict[str, Callable[[Sequence[Path], str, Path], Work]]] = {
    "compaction": {
        "dormouse": compact,
        **{name: partial(copy, **given) for name, given in _COPIES.items()},
        ORIGINAL: original,
        NO_SKETCH: partial(original, sketch=False),
        "datafusion merge": datafusion_merge,
        "polars sort": polars_sort,
        "duckdb sort": duckdb_sort,
        "delta-rs compact": delta_rs_compact,
        "pyiceberg rewrite": pyiceberg_rewrite,
    },
    "ingest": {
        "dormouse": ingest,
        **{name: partial(copy, leaves=LEAVES, **given) for name, given in _COPIES.items()},
        "datafusion sort, one file": datafusion_sort,
        "polars filter and sort": polars_filter_and_sort,
        "duckdb sort": partial(duckdb_sort, leaves=LEAVES),
    },
}
"""What prepares each system to do the work of a stage."""
UNSORTED = ("copy", "delta-rs", "pyiceberg")
"""What the names of systems have in them that leave rows in no order."""
