"""Measure a term index: what it costs an ingest, and what finding words asks of a slow S3.

``python -m bench.words FOLDER LINES`` makes log lines of 144 bytes, of which one in five million
has the word zebrafish, as Parquet and as JSON lines, and keeps them and a table in the folder.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.figures import emit
from bench.measure import cpu_seconds
from bench.s3 import DATA, local_s3
from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.ports import Cache

AT_ONCE, FIRST_RARE = 5_000_000, 1_234_567
COMPARED_LINES = 1_000_000
LINES = """
SELECT id, level, concat(
    level, ' [worker-', a // 100 % 32, '] com.acme.shop.',
    ['Order', 'Payment', 'Cart', 'User', 'Stock', 'Mail', 'Search', 'Cache'][1 + a // 7 % 8],
    'Service - request ', printf('%08x', b % 4294967296), ' from 10.', a // 1000 % 64, '.',
    b // 5000 % 256, '.', c % 256, ':', 1024 + c // 300 % 60000, ' ',
    ['connection refused by peer', 'accepted for delivery', 'was retried after timeout',
     'missed the cache'][1 + a // 11 % 4],
    ' user=', b // 90000 % 2000000, ' took ', c // 7 % 900, ' ms status=',
    [200, 200, 200, 404, 500][1 + c % 5], if(id % {every} = {first}, ' zebrafish', '')) AS message
FROM (SELECT *, ['INFO', 'INFO', 'INFO', 'WARN', 'ERROR'][1 + a % 5] AS level FROM (
    SELECT id, (hash(id) >> 2)::BIGINT AS a, (hash(id + 10 ** 9) >> 2)::BIGINT AS b,
        (hash(id + 10 ** 10) >> 2)::BIGINT AS c FROM range({start}, {end}) lines(id)))
ORDER BY id"""
WORDS = {
    "a word of few lines": "has(message, 'zebrafish')",
    "a word of none": "has(message, 'nowhere')",
    "a part of a word": "message LIKE '%zebrafi%'",
    "a scan": "contains(lower(message), 'zebrafish')",
}


def made(folder: Path, lines: int, kind: str) -> Iterator[Path]:
    """Make files of log lines, and yield their paths."""
    import duckdb

    for start in range(0, lines, AT_ONCE):
        path, end = folder / f"{lines}-{start}.{kind}", min(start + AT_ONCE, lines)
        if not path.exists():
            query = LINES.format(start=start, end=end, every=AT_ONCE, first=FIRST_RARE % lines)
            duckdb.execute(f"COPY ({query}) TO '{path}' (FORMAT {kind})")
        yield path


def ingested(folder: Path, files: list[Path], term_index: str) -> float:
    """Ingest files into a new instance; return the CPU seconds that it took."""
    shutil.rmtree(folder, ignore_errors=True)
    with Instance.open(folder, background=False) as instance:
        columns, indexed = "id:long, level:string, message:string?", {"term_index": term_index}
        table = instance.create_table("logs", columns, row_keys=["id"], properties=indexed)
        before = cpu_seconds()
        table.ingest([str(file) for file in files]).wait()
        return cpu_seconds() - before


def asked(folder: Path, delay_ms: int) -> None:
    """Look for words as a process does that has read nothing yet but the state of the table."""
    nothing: Any = None
    shared = folder / f"s3-{delay_ms}"
    shared.mkdir(exist_ok=True)
    with (
        Instance.open(folder / "mice", background=False) as instance,
        local_s3(shared, delay_ms) as s3,
    ):
        (table_folder,) = (folder / "mice" / "tables").iterdir()
        link = s3.folder / DATA / table_folder.name
        link.unlink(missing_ok=True)
        link.symlink_to(table_folder)
        s3.begin()
        for name, where in WORDS.items():
            services = replace(instance.services, storage=s3.storage, cache=Cache())
            table: TableHandle = Instance(services, nothing, nothing, nothing).table("logs")
            table.state()
            s3.counts()
            began = time.perf_counter()
            rows = table.count(where=where)
            ms, counts = (time.perf_counter() - began) * 1000, s3.counts()
            gets, read_kb = counts.get("GetObject", 0), counts.get("sent_bytes", 0) / 1000
            emit("words", name, delay_ms, rows=rows, requests=gets, read_kb=read_kb, ms=ms)


def main() -> None:
    folder, lines = Path(sys.argv[1]).resolve(), int(sys.argv[2])
    folder.mkdir(exist_ok=True)
    for kind in ("parquet", "json"):
        files = list(made(folder, min(lines, COMPARED_LINES), kind))
        for term_index in ("", "message", "message:log"):
            seconds = ingested(folder / "compared", files, term_index)
            emit("ingest", f"{kind}, {term_index or 'no index'}", lines, cpu_seconds=seconds)
    ingested(folder / "mice", list(made(folder, lines, "parquet")), "message:log")
    for delay_ms in (0, 30, 100):
        asked(folder, delay_ms)


if __name__ == "__main__":
    main()
