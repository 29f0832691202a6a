"""Run a stage on an S3 that takes its time: a server of its own, whose CPU time is apart.

Run as ``python -m bench.rows.on_s3 PART STAGE ROUND KIND INPUTS OUT DELAY_MS MB_PER_SECOND``;
prints a JSON line for each figure. Shards and sources are read from the server, and outputs written
to it. Each connection carries at most `MB_PER_SECOND_EACH`, and all of them MB_PER_SECOND unless
that is 0.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from bench.rows import compaction as rows_compaction
from bench.rows import ingest as rows_ingest
from bench.rows import instance as rows_instance
from bench.rows.compaction import Work
from bench.rows.data import SCHEMAS, split_points
from bench.rows.digest import ALL, DIGESTS, Digest, saved
from bench.rows.measure import read_once
from bench.rows.output import report
from bench.s3.process import DATA, SOURCES, LocalS3, local_s3
from bench.s3.server import Slowness
from dormouse import settings

MB_PER_SECOND_EACH = 80
"""What one connection to S3 carries, roughly."""


def slowness(delay_ms: float, mb_per_second: float) -> Slowness:
    """Return how slow the server is to be."""
    return Slowness(delay_ms, mb_per_second, MB_PER_SECOND_EACH)


def name_of(delay_ms: int, mb_per_second: int) -> str:
    """Return the name of a slowness in figures."""
    return f"{delay_ms} ms" + (f", {mb_per_second} MB/s in all" if mb_per_second else "")


def compaction(s3: LocalS3, kind: str, table: Path) -> tuple[Work, Digest]:
    """Return the compaction of all shards of a table, and the digest of their rows."""
    files = sorted(table.resolve().glob("*/data/*.parquet"))
    work = rows_compaction.dormouse(files, kind, s3.folder / DATA, storage=s3.storage)
    return work, saved(table.parent / DIGESTS)[ALL]


def ingest(s3: LocalS3, kind: str, source: Path) -> tuple[Work, Digest]:
    """Return the ingest of a source into 16 leaves, and the digest of its rows."""
    dropped = s3.folder / SOURCES / rows_instance.TABLE / source.name
    dropped.parent.mkdir()
    dropped.symlink_to(source.resolve())
    scratch = s3.folder.parent / "scratch"
    given = rows_instance.services(
        s3.storage, scratch, settings.memory_bytes(), seed=3, sources=s3.sources
    )
    rows_instance.create(given, SCHEMAS[kind], split_points(rows_ingest.LEAVES))
    sources = [*s3.sources.list("", since_ms=0)]
    work = partial(rows_instance.ingest_sources, given, sources)
    return work, saved(source.parent / DIGESTS)[source.name]


def counted(s3: LocalS3) -> dict[str, float]:
    """Return what a stage asked for, as figures."""
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


def main() -> None:
    """Measure one stage once."""
    part, stage, number, kind, inputs, out, delay_ms, mb_per_second = sys.argv[1:]
    slow = slowness(float(delay_ms), float(mb_per_second))
    read_once([*Path(inputs).rglob("*.parquet")] or [Path(inputs)])
    with local_s3(Path(out) / "s3", slow) as s3:
        make = compaction if stage == "compaction" else ingest
        work, expected = make(s3, kind, Path(inputs))
        next(s3.storage.folders(), None)  # what the SDK does once is no part of it
        s3.counts()
        report(
            part,
            name_of(int(delay_ms), int(mb_per_second)),
            int(number),
            work,
            expected,
            s3.folder / DATA,
            in_order=True,
            others=lambda: counted(s3),
        )


if __name__ == "__main__":
    main()
