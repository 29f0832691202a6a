"""Do a piece of work, look whether its output is what it should be, and print the figures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench.common.figures import emit
from bench.rows.digest import Digest, digest_elsewhere
from bench.rows.measure import run, set_aside


def report(
    part: str,
    system: str,
    number: int,
    work: Callable[[], object],
    expected: Digest,
    out: Path,
    *,
    in_order: bool,
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
    files = check(system, expected, out, in_order=in_order)
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


def check(system: str, expected: Digest, out: Path, *, in_order: bool) -> list[Path]:
    """Return the files below `out`, which hold just the rows of a digest.

    Raises:
        ValueError: they hold others, or not in order.
    """
    files = sorted(out.rglob("*.parquet"))
    found = digest_elsewhere(files, in_order=in_order)
    if found.rows != expected.rows:
        raise ValueError(f"{system} wrote {found.rows} rows of {expected.rows}")
    if found != expected:
        raise ValueError(f"{system} wrote as many rows as it should, but others")
    return files
