"""Compact sorted files to one, or cut an unsorted one into sorted ones of 16 leaves: as Dormouse's
stages do it, also on an S3 that takes its time, and as others do.

All read the same Parquet files, and write zstd of level 1. Each system is prepared, and returns the
work that is measured. What is written is compared with what was read, and the measurement fails if
it differs.
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

from bench.figures import emit
from bench.measure import ROOT, PeakElsewhere, read_once, run, set_aside
from bench.rows import instance as rows_instance
from bench.rows.data import (
    KEYS,
    SCHEMAS,
    Digest,
    are_in_order,
    digest_of,
    expected_of,
    leaf_ranges,
    split_points,
)
from bench.s3 import DATA, SOURCES, LocalS3, local_s3
from dormouse import settings
from dormouse.errors import InvariantError
from dormouse.ports import Storage
from dormouse.storage import FolderStorage

Work = Callable[[], object]
LEAVES = 16
FLOOR = "pyarrow copy"
"""Copying the same rows, unsorted, with pyarrow as it is set: dictionaries, 1 Mi rows a group."""
PLAIN_FLOOR = "pyarrow copy, no dictionary"
"""The same with dictionaries off: with keys like these they cost time and space."""
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


def copy(files: Sequence[Path], kind: str, out: Path, *, dictionary: bool, leaves: int = 1) -> Work:
    """Copy all rows with pyarrow as they come: a compaction without its purpose, or an ingest."""
    rows = sum(pq.read_metadata(file).num_rows for file in files)
    batch_rows = max(1, min(ROW_GROUP_ROWS, rows // leaves))

    def work() -> None:
        schema, copied = pq.read_schema(files[0]).remove_metadata(), 0
        given: Any = {"schema": schema, "compression": "zstd", "use_dictionary": dictionary}
        with ExitStack() as opened:
            writers = [
                opened.enter_context(pq.ParquetWriter(out / f"{i}.parquet", **given))
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


_COPIES = {FLOOR: True, PLAIN_FLOOR: False}
"""Whether each copy has dictionaries."""
SYSTEMS: dict[str, dict[str, Callable[[Sequence[Path], str, Path], Work]]] = {
    "compaction": {
        "dormouse": compact,
        **{name: partial(copy, dictionary=given) for name, given in _COPIES.items()},
        ORIGINAL: original,
        NO_SKETCH: partial(original, sketch=False),
        "datafusion merge": datafusion_merge,
        "polars sort": polars_sort,
        "duckdb sort": duckdb_sort,
        "delta-rs compact": delta_rs_compact,
    },
    "ingest": {
        "dormouse": ingest,
        **{n: partial(copy, leaves=LEAVES, dictionary=given) for n, given in _COPIES.items()},
        "polars filter and sort": polars_filter_and_sort,
        "duckdb sort": partial(duckdb_sort, leaves=LEAVES),
    },
}
"""What prepares each system to do the work of a stage."""
UNSORTED = ("copy", "delta-rs")
"""What the names of systems have in them that leave rows in no order."""


def shards_of(table: str | Path) -> list[Path]:
    return sorted(Path(table).resolve().glob("*/data/*.parquet"))


def measure(
    part: str, of: str, number: int, system: str, stage: str, kind: str, inputs: str, out: str
) -> None:
    """Measure one system; `of` is the name that its figures have."""
    source = Path(inputs).resolve()
    files = [source] if stage == "ingest" else shards_of(inputs)
    work = SYSTEMS[stage][system](files, kind, Path(out))
    read_once(files)
    in_order = not any(name in system for name in UNSORTED)
    sizes = {"stored_mb": sum(file.stat().st_size for file in files) / 1e6}
    report(part, of, number, work, expected_of(Path(inputs)), Path(out), in_order, lambda: sizes)


def report(
    part: str,
    system: str,
    number: int,
    work: Work,
    expected: Digest,
    out: Path,
    in_order: bool = True,
    others: Callable[[], dict[str, float]] = dict,
    measured: Callable[[Work], dict[str, float]] = run,
) -> None:
    """Measure `work`, which writes certain rows below `out`, for all keys in order or for none.

    `others` are figures that are taken right afterwards; `measured` does the work.

    Raises:
        ValueError: it wrote other rows, or not in order.
    """
    set_aside()
    taken = measured(work)
    more = others()
    files = check(system, expected, out, in_order)
    emit(
        part,
        system,
        number,
        rows_per_second=expected.rows / taken["seconds"],
        seconds=taken["seconds"],
        cpu_seconds_per_million=taken["cpu_seconds"] / expected.rows * 1e6,
        peak_rss_mb=taken["peak_rss_bytes"] / 1e6,
        written_mb=sum(path.stat().st_size for path in files) / 1e6,
        files=len(files),
        **more,
    )


def check(system: str, expected: Digest, out: Path, in_order: bool = True) -> list[Path]:
    """Return the files below `out`, which hold just the rows of a digest.

    Raises:
        ValueError: they hold others, or not in order.
    """
    files = sorted(out.rglob("*.parquet"))
    digest = digest_of(files)
    if digest.rows != expected.rows:
        raise ValueError(f"{system} wrote {digest.rows} rows of {expected.rows}")
    if digest != expected:
        raise ValueError(f"{system} wrote as many rows as it should, but others")
    if in_order and not are_in_order(files):
        raise ValueError(f"{system} wrote rows that are not in order")
    return files


def name_of(delay_ms: int, mb_per_second: int = 0) -> str:
    return f"{delay_ms} ms" + (f", {mb_per_second} MB/s in all" if mb_per_second else "")


def on_s3(
    part: str,
    stage: str,
    number: int,
    kind: str,
    inputs: str,
    out: str,
    delay_ms: int,
    mb_per_second: int = 0,
) -> None:
    """Run a stage on an S3 that takes its time: a server of its own, whose CPU time is apart.

    Shards and sources are read from it, and outputs written to it. All connections together carry
    so many MB a second unless that is 0.
    """
    read_once(shards_of(inputs) or [Path(inputs)])
    with local_s3(Path(out) / "s3", delay_ms, mb_per_second) as s3:
        work = work_on_s3(s3, stage, kind, Path(inputs))
        name = name_of(delay_ms, mb_per_second)
        data, expected = s3.folder / DATA, expected_of(Path(inputs))
        report(part, name, number, work, expected, data, others=lambda: counted(s3))


def work_on_s3(s3: LocalS3, stage: str, kind: str, inputs: Path) -> Work:
    """Return the compaction of all shards of a table, or the ingest of a source into 16 leaves."""
    if stage == "compaction":
        work = compact(shards_of(inputs), kind, s3.folder / DATA, storage=s3.storage)
    else:
        dropped = s3.folder / SOURCES / rows_instance.TABLE / inputs.name
        dropped.parent.mkdir()
        dropped.symlink_to(inputs.resolve())
        scratch, memory = s3.folder.parent / "scratch", settings.memory_bytes()
        services = rows_instance.services(s3.storage, scratch, memory, 3, s3.sources)
        rows_instance.create(services, SCHEMAS[kind], split_points(LEAVES))
        sources = [*s3.sources.list("", since_ms=0)]
        work = partial(rows_instance.ingest_sources, services, sources)
    s3.begin()
    return work


def counted(s3: LocalS3) -> dict[str, float]:
    counts = s3.counts()
    puts = ("PutObject", "CreateMultipartUpload", "CompleteMultipartUpload")
    return {
        "gets": counts.get("GetObject", 0),
        "puts": sum(counts.get(name, 0) for name in puts),
        "parts": counts.get("UploadPart", 0),
        "fetched_mb": counts.get("sent_bytes", 0) / 1e6,
        "at_once": counts.get("in_flight_at_once", 0),
        "server_cpu_seconds": counts["server_cpu_seconds"],
    }
