"""Measure stages: beside other systems, and on an S3 that takes its time.

What is written is compared with what was read, and the measurement fails if it differs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.figures import emit
from bench.measure import read_once, run, set_aside
from bench.rows import instance as rows_instance
from bench.rows import work as rows_work
from bench.rows.data import (
    SCHEMAS,
    Digest,
    are_in_order,
    digest_of,
    expected_of,
    split_points,
)
from bench.rows.work import SYSTEMS, UNSORTED, Work
from bench.s3.process import DATA, SOURCES, LocalS3, local_s3
from bench.s3.server import Slowness
from dormouse.settings import memory_bytes

MB_PER_SECOND_EACH = 80
"""What one connection to S3 carries, roughly."""


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


def compaction(part: str, name: str, number: int, kind: str, folder: str, out: str) -> None:
    """Measure the compaction of the shards of a table, under a name of its own."""
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
