"""The original's plan as a peer: a program in Rust, built when it is asked for.

Its settings are in ``original/src/main.rs``. Without Rust, or out of reach of its packages, it is
left out, and the report says so.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.common.places import ROOT
from bench.rows.data import KEYS
from bench.rows.measure import PeakElsewhere
from dormouse.errors import InvariantError

NAME = "the original's plan"
NO_SKETCH = f"{NAME}, no sketch"
NAMES = (NAME, NO_SKETCH)
PROJECT = ROOT / "bench" / "rows" / "original"
BUILT = ROOT / "build" / "original"
PROGRAM = BUILT / "release" / "original"


def built(program: Path = PROGRAM) -> str:
    """Build the program; return why it was not, or an empty text."""
    cargo = shutil.which("cargo")
    if cargo is None:
        return "there is no cargo; install Rust to have it among the peers"
    manifest = str(PROJECT / "Cargo.toml")
    command = [cargo, "build", "--release", "--manifest-path", manifest]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(BUILT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        return f"cargo could not build it: {done.stderr.strip().splitlines()[-1]}"
    return "" if program.is_file() else f"cargo built no {program}"


def original(
    files: Sequence[Path], kind: str, out: Path, *, sketch: bool = True
) -> Callable[[], PeakElsewhere]:
    """Merge files by the original's plan, and write as it writes; with a `sketch` of the keys, as
    the original has.
    """
    inputs = map(str, files)
    target, wanted = f"{out}/merged.parquet", "yes" if sketch else "no"
    command = [str(PROGRAM), target, ",".join(KEYS), wanted, "", "", *inputs]

    def work() -> PeakElsewhere:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)
        if found["sketched"] != (found["rows"] if sketch else 0):
            raise InvariantError(f"the sketch has {found['sketched']:,} of {found['rows']:,} rows")
        return PeakElsewhere(found["peak_rss_kb"] * 1024)

    return work
