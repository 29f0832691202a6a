"""Decode bytes and JSON from outside the process to values, with one error for everything wrong.

Messages, notifications, markers, footers, deltas and items are decoded here. All forms that several
threads may read are registered here, under a lock: msgspec inspects a class when it first sees it,
and if two threads do so at once, one may use the half-inspected class and crash the process. The
cells of ingested files are no such form: a decoder of them (`sources.json_cells`) makes its own
classes, which no other thread sees.
"""

import re
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from operator import index
from typing import Any, TypeVar, get_args, overload

import msgspec

from dormouse.errors import CorruptDataError, InvalidRequestError, did_you_mean
from dormouse.stored import checksums

_T = TypeVar("_T")
_Struct = TypeVar("_Struct", bound=msgspec.Struct)
_UNKNOWN_FIELD = re.compile(r"unknown field `(.*)`$")
_UNKNOWN_TYPE = re.compile(r"Invalid value '(.*)' - at `\$\.type`$")

_LOCK = threading.Lock()
_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}
_UNPACKERS: dict[Any, msgspec.msgpack.Decoder[Any]] = {}


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return the decoder of a form, for which msgspec has inspected all its classes."""
    with _LOCK:
        if kind not in _DECODERS:
            _DECODERS[kind] = msgspec.json.Decoder(kind)
        return _DECODERS[kind]


@overload
def decode_json(text: str | bytes, kind: type[_T]) -> _T: ...


@overload
def decode_json(text: str | bytes, kind: Any) -> Any: ...  # a union is no type


def decode_json(text: str | bytes, kind: Any) -> Any:
    """Parse JSON of one form. Raises ValueError: of another, no JSON, or nested too deeply."""
    try:
        return _decoder(kind).decode(text)
    except RecursionError as error:  # no kind of its own in msgspec
        raise ValueError("it is nested too deep") from error
    except msgspec.MsgspecError as error:
        raise ValueError(_explained(error, kind)) from error


def check_types(message: _Struct) -> _Struct:
    """Return what a program made as a message says it: NumPy's whole numbers are Python's.
    Raises InvalidRequestError: a value is of another type, or text that is not UTF-8.
    """
    try:
        return decode_json(msgspec.json.encode(message, enc_hook=index), type(message))
    except UnicodeEncodeError as error:  # no record could say why it is refused
        raise InvalidRequestError("the request has text that is not UTF-8") from error
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"a parameter has another type: {error}") from error


def _explained(error: msgspec.MsgspecError, kind: Any) -> str:
    """Return what is wrong, with the field or type that was meant if one is spelled alike."""
    text = str(error)
    forms = [form for form in get_args(kind) or (kind,) if hasattr(form, "__struct_config__")]
    if match := _UNKNOWN_FIELD.search(text):
        names = {name for form in forms for name in form.__struct_encode_fields__}
    elif match := _UNKNOWN_TYPE.search(text):
        names = {str(form.__struct_config__.tag) for form in forms}
    near = did_you_mean(match[1], names) if match else ""
    return f"{text}; {near}" if near else text


def decode_packed(body: bytes | msgspec.Raw, kind: type[_T]) -> _T:
    """Parse MessagePack of one form. Raises ValueError: of another, or nested too deeply."""
    with _LOCK:
        if kind not in _UNPACKERS:
            _UNPACKERS[kind] = msgspec.msgpack.Decoder(kind)
    try:
        value: _T = _UNPACKERS[kind].decode(body)
    except RecursionError as error:  # no kind of its own in msgspec
        raise ValueError("it is nested too deep") from error
    return value


def convert_plain(value: object, kind: type[_T], *, strict: bool = True) -> _T:
    """Convert dictionaries, lists and plain values to a value of one form. What is not `strict`,
    such as a query string, has numbers and booleans as texts. Raises ValueError: of another form.
    """
    _decoder(kind)
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise ValueError(_explained(error, kind)) from error


@contextmanager
def raise_corrupt(problem: str, *, hint: str = "") -> Iterator[None]:
    """Raise every error of decoding stored values as CorruptDataError.

    The message is `problem`, which names what is damaged, followed by the error. If the error is a
    CorruptDataError with a hint of its own, that hint replaces `hint`.
    """
    try:
        yield
    except (
        *(ValueError, LookupError, TypeError, AttributeError, OverflowError, zlib.error),
        *(InvalidRequestError, CorruptDataError),
    ) as error:
        better = error.hint if isinstance(error, CorruptDataError) else ""
        raise CorruptDataError(f"{problem}: {error}", hint=better or hint) from error


# The stored form of JSON objects beside a table: exports, purges, requests, trees, markers.
#
# Each object contains its kind, its format number and the path at which it was put, and ends with a
# checksum of all of it (`checksums`). So an object that is damaged, or was moved, is not believed.


class _Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: str
    format: int
    path: str
    body: msgspec.Raw
    checksum: str = checksums.BLANK


def encode_stored(kind: str, version: int, path: str, body: msgspec.Struct) -> bytes:
    """Return the bytes to put at `path`; `version` is the format number of this kind of body."""
    envelope = _Envelope(kind, version, path, msgspec.Raw(msgspec.json.encode(body)))
    return checksums.with_checksum(msgspec.json.encode(envelope))


def decode_stored(
    kind: str, version: int, path: str, stored: bytes, form: type[_Struct]
) -> _Struct:
    """Return the body of what was put at `path`.

    Raises:
        ValueError: it is damaged, or of another kind or path.
        CorruptDataError: it has another format number.
    """
    checksums.verify(stored)
    envelope = decode_json(stored, _Envelope)
    if (envelope.kind, envelope.path) != (kind, path):
        raise ValueError(f"it is {envelope.kind} and was put at {envelope.path}")
    check_format(envelope.format, version)
    return decode_json(bytes(envelope.body), form)


def check_format(stored_format: int, own_format: int) -> None:
    """Refuse a format number that is not known. Raises CorruptDataError: the numbers differ."""
    if stored_format != own_format:
        raise CorruptDataError(
            f"it is of format {stored_format}; the one known here is {own_format}",
            hint="it was written by another version of Dormouse: use that one",
        )
