"""Compact or ingest several times more than the memory allowed, in a process that cannot have more.

Run as ``python -m bench.rows.memory PART STAGE ROUND KIND SOURCES TABLE OUT MEMORY_BYTES``;
prints a JSON line for each figure. The limit is on address space, of which a process takes more
than it uses: arenas of allocators, stacks of threads, mapped files.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from bench.common.figures import emit
from bench.rows import compaction as rows_compaction
from bench.rows import ingest as rows_ingest
from bench.rows.data import row_bytes
from bench.rows.digest import ALL, DIGESTS, saved
from bench.rows.measure import run
from bench.rows.output import check

RESERVED_BYTES = 3 * 1024**3
"""Address space, not memory, that allocators reserve as soon as there is a row: measured."""
CODE_BYTES = 512 * 1024**2
"""What libraries, and buffers that do not depend on the rows, may take."""


def main() -> None:
    """Run one stage under the limit."""
    part, stage, number, kind, given, table, out, memory = sys.argv[1:]
    memory_bytes = int(memory)
    sources = sorted(Path(given).resolve().glob("*.parquet"))
    if stage == "compaction":
        shards = sorted(Path(table).resolve().glob("*/data/*.parquet"))
        work = rows_compaction.dormouse(shards, kind, Path(out), memory_bytes)
    else:
        first, *others = sources
        work = rows_ingest.dormouse(first, kind, Path(out), *others, memory_bytes=memory_bytes)
    limit_bytes = RESERVED_BYTES + CODE_BYTES + 2 * memory_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, hard))
    taken = run(work)
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    expected = saved(Path(table).parent / DIGESTS)[ALL]
    check(stage, expected, Path(out), in_order=True)
    rows = expected.rows
    emit(
        part,
        stage,
        int(number),
        memory_mb=memory_bytes / 1e6,
        rows_mb=rows * row_bytes(kind) / 1e6,
        peak_rss_mb=taken["peak_rss_bytes"] / 1e6,
        rows_to_memory=rows * row_bytes(kind) / memory_bytes,
        peak_to_memory=taken["peak_rss_bytes"] / memory_bytes,
        address_space_limit_mb=limit_bytes / 1e6,
    )


if __name__ == "__main__":
    main()
