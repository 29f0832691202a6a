"""Upload the deployed package of Spark jobs to the data bucket.

The package lies beside the tables, under its version. Its files are put once and never changed, the
description last. So runs that started before a deployment keep their code, and the next run
completes a partial upload.
"""

from __future__ import annotations

from pathlib import Path

from dormouse.errors import InvalidRequestError
from dormouse.features.spark.package_files import DESCRIPTION, SparkPackage, decode_package
from dormouse.library import library_version
from dormouse.ports.services import Services, Spark
from dormouse.stored.paths import spark_package_path, spark_package_prefix

_BUILD = "build and deploy functions and package together: make build, sam deploy"


def upload_package(services: Services, spark: Spark) -> str:
    """Upload the missing files of the deployed package, and return its version; empty if runs use
    the library of this process.

    Raises:
        InvalidRequestError: no package is deployed, or its version differs from this process's.
    """
    folder = spark.package
    if folder is None:
        return ""
    package = _deployed(folder)
    prefix = spark_package_prefix(package.version)
    there = {stored.path for stored in services.storage.list(prefix)}
    for name in (*package.files, DESCRIPTION):
        path = spark_package_path(package.version, name)
        if path not in there:
            services.storage.upload(path, folder / name)
    return package.version


def _deployed(folder: Path) -> SparkPackage:
    path = folder / DESCRIPTION
    if not path.is_file():
        raise InvalidRequestError(
            f"there is no package of Spark jobs: {path} is missing", hint=_BUILD
        )
    package = decode_package(path.read_bytes(), str(path))
    if package.library != library_version():
        raise InvalidRequestError(
            f"the package of Spark jobs is of version {package.library} of the library, this "
            f"function of {library_version()}; no run was started",
            hint=_BUILD,
        )
    return package
