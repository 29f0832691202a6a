"""The Spark of an instance: its application, and the package of its jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dormouse.errors import UnavailableError
from dormouse.ports.services import Storage
from dormouse.stored.paths import SPARK_CODE

if TYPE_CHECKING:
    from dormouse.client.ports import SparkApplications
    from dormouse.features.spark.package_files import SparkPackage


PackageVerdict = Literal["fits", "other version", "missing"]


@dataclass(frozen=True, slots=True)
class SparkStatus:
    """The Spark application of an instance, and the package of its jobs.

    `application` and `state` are empty if there is none, or if EMR does not answer: then `unknown`
    says why. `package` compares the package in the data bucket with the library of this process;
    it is missing until the first job uploads it. `version` is that of the package, `library` that
    of the library in it.
    """

    application: str
    state: str
    unknown: str
    package: PackageVerdict
    version: str = ""
    library: str = ""


def spark_status(storage: Storage, applications: SparkApplications) -> SparkStatus:
    """Return the Spark application and package of an instance.

    Raises:
        CorruptDataError: the description of a package is damaged.
    """
    from dormouse.library import library_version

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
        return SparkStatus(application, state, unknown, verdict, version, library)
    return SparkStatus(application, state, unknown, "missing")


def _packages(storage: Storage) -> list[SparkPackage]:
    """Return the complete packages in the data bucket, the oldest first."""
    from dormouse.features.spark.package_files import DESCRIPTION, decode_package

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
