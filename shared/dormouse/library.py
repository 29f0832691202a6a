"""Which version of the library this is. Nothing is released, so its own source files say it.

The build of the package of Spark jobs asks this, too, with no other package at hand: nothing may be
imported here but what Python brings along.
"""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from pathlib import Path


@cache
def library_version(folder: Path = Path(__file__).parent) -> str:
    """Return a digest of the library's source files, by default those of this process."""
    digest = blake2b(digest_size=8)
    for path in sorted(folder.rglob("*.py")):
        body = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()} {len(body)}\n".encode() + body)
    return digest.hexdigest()
