"""The package of Spark jobs: the library, its dependencies, and the entry point of each job.

It is built and deployed with the functions, as a layer of `dispatch_spark`, which puts it into the
data bucket under its version. `shared/pack_spark.py` writes its description.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from dormouse.stored.decoding import decode_json, raise_corrupt

DESCRIPTION = "package.json"
"""The file that describes a package; it is put last, so if it exists, the package is complete."""
ARCHIVE = "environment.tar.gz"
"""The archive of the library and its dependencies; each machine unpacks it."""

_Name = Annotated[str, msgspec.Meta(pattern=r"\A[a-z_]+(\.[a-z]+)+\Z")]
_Digest = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{16}\Z")]


class SparkPackage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A package: its files with their sizes, its version, and the version of the library in it."""

    library: _Digest
    version: _Digest
    files: dict[_Name, int]
    v: Literal[1] = 1


def decode_package(body: bytes, path: str) -> SparkPackage:
    """Parse the description of a package.

    Raises:
        CorruptDataError: the file is damaged or describes no package.
    """
    with raise_corrupt(f"{path} does not describe a package of Spark jobs"):
        return decode_json(body, SparkPackage)
