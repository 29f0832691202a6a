"""Rows that a format cannot have: statements return types and values that tables never have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from dormouse.errors import InvalidRequestError


@contextmanager
def refusing_unwritable() -> Iterator[None]:
    """Say of rows that Arrow cannot write what to do about it.

    Raises:
        InvalidRequestError: the block could not write rows.
    """
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # its text quotes values
        raise InvalidRequestError(
            "the result has a column of a type, or a value, that the format does not have",
            hint="CAST it to text in the statement, or ask for arrow",
        ) from None
