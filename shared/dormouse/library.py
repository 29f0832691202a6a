"""The version of the library. Nothing is released yet, so it is a digest of the source files.

The build of the Spark package runs this module without any other package installed: it may import
only the standard library.
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
