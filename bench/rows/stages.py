"""Measure stages: beside other systems, on an S3 that takes its time, in little memory, in steps.

What is written is compared with what was read, and the measurement fails if it differs.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.figures import emit
from bench.measure import T, read_once, run, set_aside
from bench.rows import instance as rows_instance
from bench.rows import work as rows_work
from bench.rows.data import (
    SCHEMAS,
    Digest,
    are_in_order,
    digest_of,
    expected_of,
    row_bytes,
    split_points,
)
from bench.rows.work import SYSTEMS, UNSORTED, Work
from bench.s3.process import DATA, SOURCES, LocalS3, local_s3
from bench.s3.server import Slowness
from dormouse.arrow.order import OrderCheck
from dormouse.files.loader import SourceLoader
from dormouse.keys import KeyRange
from dormouse.rows.merging import merge_slices
from dormouse.schema.schema import Schema
from dormouse.settings import memory_bytes
from dormouse.shards.parquet import KeySampler, ParquetFileWriter
from dormouse.shards.reading import Slice, audit_shard
from dormouse.stored.paths import shard_path

MB_PER_SECOND_EACH = 80
"""What one connection to S3 carries, roughly."""
RESERVED_BYTES = 3 * 1024**3
"""Address space, not memory, that allocators reserve as soon as there is a row: measured."""
CODE_BYTES = 512 * 1024**2
"""What libraries, and buffers that do not depend on the rows, may take."""


def shards_of(table: str | Path) -> list[Path]:
    return sorted(Path(table).resolve().glob("*/data/*.parquet"))


def measure(
    part: str, system: str, number: int, stage: str, kind: str, inputs: str, out: str
) -> None:
    source = Path(inputs).resolve()
    files = [source] if stage == "ingest" else shards_of(inputs)
    work = SYSTEMS[stage][system](files, kind, Path(out))
    read_once(files)
    in_order = not any(name in system for name in UNSORTED)
    report(part, system, number, work, expected_of(Path(inputs)), Path(out), in_order)


def worst_case(part: str, name: str, number: int, kind: str, folder: str, out: str) -> None:
    """Measure the compaction of rows that are hardest to compact."""
    files = shards_of(f"{folder}/data")
    work = rows_work.compact(files, kind, Path(out))
    sizes = {"stored_mb": sum(file.stat().st_size for file in files) / 1e6}
    expected = expected_of(Path(folder) / "data")
    report(part, name, number, work, expected, Path(out), others=lambda: sizes)


def report(
    part: str,
    system: str,
    number: int,
    work: Work,
    expected: Digest,
    out: Path,
    in_order: bool = True,
    *,
    others: Callable[[], dict[str, float]] = dict,
) -> None:
    """Measure `work`, which writes certain rows below `out`, for all keys in order or for none.

    `others` are figures that are taken right afterwards.

    Raises:
        ValueError: it wrote other rows, or not in order.
    """
    set_aside()
    taken = run(work)
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


def slowness(delay_ms: float, mb_per_second: float = 0) -> Slowness:
    return Slowness(delay_ms, mb_per_second, MB_PER_SECOND_EACH)


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
    with local_s3(Path(out) / "s3", slowness(delay_ms, mb_per_second)) as s3:
        work = work_on_s3(s3, stage, kind, Path(inputs))
        name = name_of(delay_ms, mb_per_second)
        data, expected = s3.folder / DATA, expected_of(Path(inputs))
        report(part, name, number, work, expected, data, others=lambda: counted(s3))


def work_on_s3(s3: LocalS3, stage: str, kind: str, inputs: Path) -> Work:
    """Return the compaction of all shards of a table, or the ingest of a source into 16 leaves."""
    if stage == "compaction":
        work = rows_work.compact(shards_of(inputs), kind, s3.folder / DATA, storage=s3.storage)
    else:
        dropped = s3.folder / SOURCES / rows_instance.TABLE / inputs.name
        dropped.parent.mkdir()
        dropped.symlink_to(inputs.resolve())
        scratch, memory = s3.folder.parent / "scratch", memory_bytes()
        services = rows_instance.services(s3.storage, scratch, memory, 3, s3.sources)
        rows_instance.create(services, SCHEMAS[kind], split_points(rows_work.LEAVES))
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


def little_memory(
    part: str, stage: str, number: int, kind: str, sources: str, table: str, out: str, memory: int
) -> None:
    """Compact or ingest several times more than the memory allowed, where there is no more.

    The limit is on address space, of which a process takes more than it uses: arenas of
    allocators, stacks of threads, mapped files.
    """
    files = shards_of(table) if stage == "compaction" else sorted(Path(sources).glob("*.parquet"))
    make = rows_work.compact if stage == "compaction" else rows_work.ingest
    work = make([file.resolve() for file in files], kind, Path(out), memory)
    limit_bytes = RESERVED_BYTES + CODE_BYTES + 2 * memory
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, hard))
    peak_bytes = run(work)["peak_rss_bytes"]
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    expected = expected_of(Path(table))
    check(stage, expected, Path(out))
    rows_bytes = expected.rows * row_bytes(kind)
    emit(
        part,
        stage,
        number,
        memory_mb=memory / 1e6,
        rows_mb=rows_bytes / 1e6,
        peak_rss_mb=peak_bytes / 1e6,
        rows_to_memory=rows_bytes / memory,
        peak_to_memory=peak_bytes / memory,
    )


def steps(part: str, stage: str, number: int, kind: str, inputs: str, out: str) -> None:
    """Measure the steps of a stage, each done alone and its result thrown away.

    In the stages merging and reading run beside writing, on another thread.
    """
    steps_of = _steps_of_a_compaction if stage == "compaction" else _steps_of_an_ingest
    steps_of(part, number, kind, Path(inputs), Path(out))


def _step(part: str, number: int, rows: int, name: str, work: Callable[[], T]) -> T:
    """Measure a step over so many rows; return what it returns."""
    result: list[T] = []
    taken = run(lambda: result.append(work()))
    cpu = taken["cpu_seconds"] / rows * 1e6
    rate = rows / taken["seconds"]
    emit(part, name, number, rows_per_second=rate, cpu_seconds_per_million=cpu)
    return result[0]


def _drain(batches: Iterable[pa.RecordBatch]) -> None:
    for _ in batches:
        pass


def _steps_of_a_compaction(part: str, number: int, kind: str, shards: Path, scratch: Path) -> None:
    files = shards_of(shards)
    storage = rows_instance.linked(files, scratch / "data")
    services = rows_instance.services(storage, scratch, memory_bytes(), seed=6)
    table = rows_instance.reopened(services, SCHEMAS[kind])
    state = services.store(table).current()
    slices = [Slice(shard, KeyRange()) for shard in state.shards.values()]

    def merged() -> Iterable[pa.RecordBatch]:
        return merge_slices(
            storage, table.id, slices, table.schema, scratch=scratch, memory_bytes=memory_bytes()
        )

    def decode() -> None:
        for file in files:
            _drain(pq.ParquetFile(file).iter_batches())

    def prove() -> None:
        for slice in slices:
            audit_shard(storage, shard_path(table.id, slice.shard.id), slice.shard.size_bytes)

    for name, work in (
        ("read all bytes and check their CRCs", prove),
        ("read and decode, with pyarrow", decode),
        ("read, prove, decode and merge", lambda: _drain(merged())),
    ):
        _step(part, number, state.rows, name, work)
    _output(part, number, list(merged()), table.schema, scratch)


def _steps_of_an_ingest(part: str, number: int, kind: str, source: Path, scratch: Path) -> None:
    schema, rows = SCHEMAS[kind], pq.read_metadata(source).num_rows
    loader = SourceLoader(schema, scratch, memory_bytes=memory_bytes())
    add = partial(loader.add, source, source.name)
    _step(part, number, rows, "read and sort in pieces", add)
    merge = partial(_step, part, number, rows, "merge the pieces")
    _output(part, number, merge(lambda: list(loader.sorted_rows())), schema, scratch)


def _output(
    part: str, number: int, batches: list[pa.RecordBatch], schema: Schema, scratch: Path
) -> None:
    order, sampler = OrderCheck(schema), KeySampler(schema)

    def look() -> None:
        for batch in batches:
            order.see(batch)
            sampler.see(batch)

    def write() -> None:
        file = ParquetFileWriter(scratch / "rows.parquet", schema)
        for batch in batches:
            file.write(batch)
        file.close({}, "t", "s")

    rows = sum(batch.num_rows for batch in batches)
    _step(part, number, rows, "check the order, sample keys", look)
    _step(part, number, rows, "encode and write", write)
