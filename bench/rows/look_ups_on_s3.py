"""Find keys in 16 shards on an S3 that takes its time, as the Python API does it.

Run as ``python -m bench.rows.look_ups_on_s3 PART ROUND WHAT TABLE WARM_UP ANSWERS OUT DELAY_MS``;
prints a JSON line for each figure. All is as in `look_ups`, but for where the shards are.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median

from bench.common.figures import emit
from bench.rows import instance as rows_instance
from bench.rows import look_ups
from bench.rows.digest import saved
from bench.rows.measure import set_aside
from bench.rows.on_s3 import name_of, slowness
from bench.s3.process import DATA, LocalS3, local_s3
from dormouse.storage import FolderStorage


def measured(
    look_up: look_ups.LookUp, asked: look_ups.Asked, s3: LocalS3, answers: Path
) -> dict[str, float]:
    """Return what one look-up takes, and asks for."""
    s3.counts()
    taken = look_ups.measure(look_up, asked, saved(answers / look_ups.ANSWERS)[asked.sql])
    counts = s3.counts()
    return {
        **taken,
        "requests": counts.get("GetObject", 0),
        "read_kb": counts.get("sent_bytes", 0) / 1000,
    }


def main() -> None:
    """Measure one kind of look-up at one delay."""
    part, number, what, table, warm_up, answers, out, delay_ms = sys.argv[1:]
    scratch = Path(out).parent / "scratch"
    warm_storage = FolderStorage(Path(warm_up) / "data")
    look_ups.dormouse(warm_storage, scratch)(look_ups.Asked((), "", "~"))
    cold, warm = look_ups.questions(what, json.loads((Path(answers) / "keys.json").read_text()))
    with local_s3(Path(out) / "s3", slowness(float(delay_ms), 0)) as s3:
        shards = sorted(Path(table).resolve().glob("*/data/*.parquet"))
        rows_instance.linked(shards, s3.folder / DATA)
        storage = s3.storage
        next(storage.folders())  # what the SDK does once is no part of it
        look_up = look_ups.dormouse(storage, scratch, s3.folder / DATA)
        set_aside()
        for heat, asked in (("cold", cold), ("warm", warm)):
            found = [measured(look_up, one, s3, Path(answers)) for one in asked]
            medians = {name: median(one[name] for one in found) for name in found[0]}
            emit(part, f"{name_of(int(delay_ms), 0)}, {heat}", int(number), **medians)


if __name__ == "__main__":
    main()
