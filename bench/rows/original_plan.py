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

from bench.common.runner import ROOT
from bench.rows.data import KEYS
from bench.rows.measure import PeakElsewhere

NAME = "the original's plan"
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


def original(files: Sequence[Path], kind: str, out: Path) -> Callable[[], PeakElsewhere]:
    """Merge files by the original's plan, and write as it writes."""
    inputs = map(str, files)
    command = [str(PROGRAM), f"{out}/merged.parquet", ",".join(KEYS), "", "", *inputs]

    def work() -> PeakElsewhere:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return PeakElsewhere(json.loads(done.stdout)["peak_rss_kb"] * 1024)

    return work
