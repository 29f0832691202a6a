"""Bytes and JSON from outside the process → values, with one error for all that is wrong with them.

Used by whoever reads messages, notifications, notes beside tables, footers, deltas and items. All
forms that several threads may read are met here: msgspec learns what is in a class when it first
meets it, and where two threads do at once, one takes the half that is known for all, and the
process dies of it. The cells of dropped files are no such form: whoever makes a decoder of them
(`sources.json_cells`) makes its classes too, which no other thread knows.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, overload

import msgspec

from dormouse.errors import CorruptDataError, InvalidRequestError

_T = TypeVar("_T")

_LOCK = threading.Lock()
_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return the decoder of a form; once it is made, all classes in the form are known."""
    with _LOCK:
        if kind not in _DECODERS:
            _DECODERS[kind] = msgspec.json.Decoder(kind)
        return _DECODERS[kind]


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
        return _decoder(kind).decode(text)
    except RecursionError as error:  # no kind of its own in msgspec
        raise ValueError("it is nested too deep") from error
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error


@overload
def convert_plain(value: object, kind: type[_T]) -> _T: ...


@overload
def convert_plain(value: object, kind: Any) -> Any: ...  # a union is no type


def convert_plain(value: object, kind: Any) -> Any:
    """Make a value of one form of dictionaries, lists and the like.

    Raises:
        msgspec.ValidationError: it is not of that form.
    """
    _decoder(kind)
    return msgspec.convert(value, kind)


@contextmanager
def told_as_corrupt(problem: str, *, hint: str = "") -> Iterator[None]:
    """Raise every error of decoding stored values as CorruptDataError.

    The message is `problem`, which names what is damaged, and what was stumbled over. Whoever found
    the damage may know better than `hint` what to do.
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
        better = error.hint if isinstance(error, CorruptDataError) else ""
        raise CorruptDataError(f"{problem}: {error}", hint=better or hint) from error
