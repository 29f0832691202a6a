"""What rows are, in two numbers: each output is held against that.

A digest is the number of rows and the sum of a hash of each, so it does not depend on their order,
on files, encodings or types of text. It is taken with numpy (`hashing`), which the functions do not
have: where they are measured, another process takes it (`digest_elsewhere`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from bench.common.places import ROOT, SOURCES

DIGESTS = "digests.json"
"""The digests of sources by their names; beside a table, that of all its rows."""
ALL = "all"


class Digest(NamedTuple):
    """The number of rows, and the sum of their hashes modulo 2^64."""

    rows: int = 0
    total: int = 0

    def plus(self, other: Digest) -> Digest:
        """Return the digest of these rows and those."""
        return Digest(self.rows + other.rows, (self.total + other.total) % 2**64)


def digest_elsewhere(
    files: Iterable[Path], *, in_order: bool, many_lengths: bool = False
) -> Digest:
    """Return the digest of all rows of some Parquet files; if they are to be `in_order`, of files
    in some order. Texts that are no keys have one length, or `many_lengths`.

    Raises:
        ValueError: the rows are not in order, or cannot be hashed.
    """
    options = [name for name, on in (("sorted", in_order), ("lengths", many_lengths)) if on]
    done = subprocess.run(
        [sys.executable, "-m", "bench.rows.hashing", ",".join(options), *map(str, files)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, *SOURCES)))},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = done.stderr.strip().rpartition("\n")[2]
        raise ValueError(said or f"the process that hashes rows ended with {done.returncode}")
    return Digest(*json.loads(done.stdout))


def save(path: Path, digests: dict[str, Digest]) -> None:
    """Keep digests of what has these names."""
    path.write_text(json.dumps(digests))


def saved(path: Path) -> dict[str, Digest]:
    """Return the digests that `save` kept."""
    return {name: Digest(*found) for name, found in json.loads(path.read_text()).items()}
