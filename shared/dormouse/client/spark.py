"""What an instance has of Spark: its application, and the package that jobs run by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dormouse.client.ports import SparkApplications
from dormouse.errors import UnavailableError
from dormouse.features.spark.package_files import DESCRIPTION, SparkPackage, decode_package
from dormouse.library import library_version
from dormouse.ports import Storage
from dormouse.stored.paths import SPARK_CODE

PackageVerdict = Literal["fits", "other version", "missing"]


@dataclass(frozen=True, slots=True)
class SparkStanding:
    """The application of an instance, and the package that its jobs run by.

    `application` and `state` are empty where there is none, or where it cannot be asked for: then
    `unknown` says why. `package` holds the package in the data bucket against the library of this
    process: it is missing until the first job brings it; `version` is its own version, `library`
    that of the library in it.
    """

    application: str
    state: str
    unknown: str
    package: PackageVerdict
    version: str = ""
    library: str = ""


def spark_standing(storage: Storage, applications: SparkApplications) -> SparkStanding:
    """Return what an instance has of Spark.

    Raises:
        CorruptDataError: what describes a package is damaged.
    """
    application, state, unknown = "", "", ""
    try:
        application, state = applications.find() or ("", "")
    except UnavailableError as error:
        unknown = error.explanation
    packages = _packages(storage)
    fitting = [each for each in packages if each.library == library_version()]
    if found := (fitting or packages)[-1:]:
        verdict: PackageVerdict = "fits" if fitting else "other version"
        version, library = found[0].version, found[0].library
        return SparkStanding(application, state, unknown, verdict, version, library)
    return SparkStanding(application, state, unknown, "missing")


def _packages(storage: Storage) -> list[SparkPackage]:
    """Return the packages that lie whole in the data bucket, the oldest first."""
    listed = list(storage.list(f"{SPARK_CODE}/"))
    sizes = {stored.path: stored.size_bytes for stored in listed}
    described = [stored for stored in listed if stored.path.endswith(f"/{DESCRIPTION}")]
    packages = []
    for stored in sorted(described, key=lambda stored: stored.modified_ms):
        package = decode_package(storage.get(stored.path), stored.path)
        folder = stored.path.removesuffix(DESCRIPTION)
        if all(sizes.get(folder + name) == size for name, size in package.files.items()):
            packages.append(package)
    return packages
