"""Bytes and JSON from outside the process → values, with one error for all that is wrong with them.

Used by whoever reads messages, notifications, notes beside tables, footers and items.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, overload

import msgspec

from dormouse.errors import CorruptDataError, InvalidRequestError

_T = TypeVar("_T")


@overload
def decode_json(text: str | bytes, kind: type[_T]) -> _T: ...


@overload
def decode_json(text: str | bytes, kind: Any) -> Any: ...  # a union is no type


def decode_json(text: str | bytes, kind: Any) -> Any:
    """Parse JSON of one form.

    Raises:
        ValueError: it is not JSON, not of that form, or nested too deep to be looked at.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except RecursionError as error:  # no kind of its own in msgspec
        raise ValueError("it is nested too deep") from error
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error


@contextmanager
def told_as_corrupt(problem: str, *, hint: str = "") -> Iterator[None]:
    """Tell whatever decoding stored values stumbles over as CorruptDataError.

    The message is `problem`, which names what is damaged, and what was stumbled over.
    """
    try:
        yield
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        OverflowError,
        InvalidRequestError,
        CorruptDataError,
    ) as error:
        raise CorruptDataError(f"{problem}: {error}", hint=hint) from error
