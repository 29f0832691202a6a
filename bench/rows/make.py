"""Make what the rows benchmarks measure with: unsorted sources, and tables of their rows.

``python -m bench.rows.make sources FOLDER KIND FILES ROWS`` writes files of so many rows
each; ``… table FOLDER KIND SOURCES LEAVES JOBS`` ingests them in so many jobs; ``…
answers FOLDER SOURCES`` notes what look-ups are to find.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from bench.rows import instance as rows_instance
from bench.rows import look_ups
from bench.rows.data import SCHEMAS, some_keys, split_points, write_source
from bench.rows.digest import ALL, DIGESTS, Digest, save, saved
from bench.rows.hashing import digest_of_files
from dormouse.storage import FolderStorage

MEMORY_BYTES = 4 * 1024**3
KEYS = 4000


def make_sources(folder: Path, kind: str, files: int, rows: int) -> None:
    """Write unsorted files, their digests, and some keys of theirs, in no order."""
    folder.mkdir(parents=True)
    digests = {}
    for seed in range(files):
        file = folder / f"{seed:03d}.parquet"
        write_source(file, kind, rows, seed)
        digests[file.name] = digest_of_files([file])
    save(folder / DIGESTS, digests)
    keys = some_keys(folder / "000.parquet", min(KEYS, rows))
    random.Random(1).shuffle(keys)
    (folder / "keys.json").write_text(json.dumps(keys))


def make_table(folder: Path, kind: str, sources: Path, leaves: int, jobs: int) -> None:
    """Ingest all sources into a table of so many leaves."""
    files = sorted(sources.resolve().glob("*.parquet"))
    storage, scratch = FolderStorage(folder / "data"), folder / "scratch"
    given = rows_instance.services(storage, scratch, MEMORY_BYTES, seed=1)
    rows_instance.create(given, SCHEMAS[kind], split_points(leaves))
    for job in range(jobs):
        rows_instance.ingest_files(given, files[job::jobs])
    whole = Digest()
    for each in saved(sources / DIGESTS).values():
        whole = whole.plus(each)
    save(folder / DIGESTS, {ALL: whole})


def main() -> None:
    """Make what is asked for."""
    what, folder, *options = sys.argv[1:]
    if what == "answers":
        look_ups.save_answers(Path(folder), Path(options[0]))
        return
    kind, *rest = options
    if what == "sources":
        files, rows = map(int, rest)
        make_sources(Path(folder), kind, files, rows)
    else:
        sources, leaves, jobs = rest
        make_table(Path(folder), kind, Path(sources), int(leaves), int(jobs))


if __name__ == "__main__":
    main()
