"""Packages that only a part of the library needs, and which an extra installs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dormouse.errors import MissingPackageError

_OWN = ("dormouse", "dormouse_cli", "dormouse_spark")


@contextmanager
def needs_extra(extra: str, what: str) -> Iterator[None]:
    """Raise MissingPackageError if an import of the block fails; `what` needs the `extra`.

    A missing module of our own is a bug, and is raised as it is.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in _OWN:
            raise
        raise MissingPackageError(
            f"{what} needs the package {package!r}, which is not installed",
            hint=f"pip install 'dormouse-tables[{extra}]'",
        ) from error
