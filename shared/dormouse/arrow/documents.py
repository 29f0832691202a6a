"""JSON documents, the values of `dynamic` columns: their stored form, and what is at a path.

A document is stored as it was given, without the white space between its tokens: numbers keep their
digits, objects the order of their names. A path is the names and places, from 0, that lead to a
part of a document.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, lru_cache
from math import isfinite
from operator import attrgetter, eq, ge, gt, le, lt
from typing import Annotated, Any, Final, TypeAlias, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from dormouse.arrow.types import Array, arrow_type
from dormouse.keys import INT64_MAX, INT64_MIN
from dormouse.schema.types import Primitive
from dormouse.sql.conditions import SEPARATORS

# Words of texts: what `has` finds, and the terms that shards list of a column.
#
# A word is a run of letters and digits; every other character of ASCII separates words, and so do
# the spaces, punctuation and signs among `SEPARATORS`. Upper and lower case are one. This holds
# with and without an index: `matching` tests rows, `cut` says which words their index has.


_OF_ASCII = r"[\x00-/:-@\[-`{-\x7f]"
"""What separates words in folded texts: neither letter nor digit of ASCII, nor beyond it."""
_AT_ONCE, _PIECES_AT_ONCE = 1 << 20, 1 << 15
"""So many characters, and pieces of texts, are looked at at once."""
_LONG_S = "\u017f"
"""Case-insensitive patterns take it for an s."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_WORDS = bytes(c if c > 127 or chr(c).isalnum() else 32 for c in range(256)).lower()
"""The table by which all bytes become spaces that are of no word, and letters small ones."""


def folded(texts: Array) -> Array:
    """Return texts without case, and with spaces for separators beyond ASCII."""
    if pc.all(pc.string_is_ascii(texts)).as_py():
        # of an array whose first text does not begin its buffer, Arrow would return a broken one
        return pc.ascii_lower(pa.concat_arrays([texts, texts.slice(0, 0)]))
    lower = pc.replace_substring(pc.utf8_lower(texts), _LONG_S, "s")
    return pc.replace_substring_regex(lower, SEPARATORS, " ")


def folded_text(text: str) -> str:
    """Return one text, folded."""
    return str(folded(pa.array([text], pa.string()))[0].as_py())


def is_word_character(character: str) -> bool:
    """Return whether a character of a folded text is of a word."""
    return character > "\x7f" or character in _LETTERS or character.isdecimal()


def matching(texts: Array, word: str) -> Array:
    """Return which texts hold `word`, in whatever case, and not as part of a longer word:
    null of a null. Requires: it has words.
    """
    needle, pattern = _pattern(word)
    whole = folded(texts)
    matches = pc.match_substring(whole, needle)
    if not pc.any(matches).as_py():
        return matches
    some: Any = matches.fill_null(False)
    tested: Any = pc.match_substring_regex(whole.filter(some), pattern)
    return cast(Array, pc.replace_with_mask(matches, some, tested))


@lru_cache(maxsize=256)
def _pattern(word: str) -> tuple[str, str]:
    needle = folded_text(word)
    before = rf"(?:\A|{_OF_ASCII})" if is_word_character(needle[:1]) else ""
    after = rf"(?:\z|{_OF_ASCII})" if is_word_character(needle[-1:]) else ""
    return needle, before + re.escape(needle) + after


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces of texts, one after the other: `text` has them with spaces between them.

    In `letters` they are folded, and all other bytes that are of no word are spaces, too. `spaces`
    are the places of these, the first and the last byte among them: between two is a word, or
    nothing.
    """

    text: bytes
    letters: bytes
    spaces: Array


def cut(texts: Array) -> Iterator[Pieces]:
    """Yield what differs among the pieces of texts, some at once.

    The texts are cut at spaces first, and what is between is cut to words where it differs: most of
    it occurs again and again.
    """
    some: Any = texts.drop_null().cast(pa.string())
    lists = pa.ListArray.from_arrays(pa.array([0, len(some)], pa.int32()), some)
    joined: Any = pc.binary_join(lists, " ")
    body = joined.buffers()[2]
    if body is None or not body.size:
        return
    ends = pa.concat_arrays([_place(0), _spaces(body), _place(body.size)])
    buffers = [None, ends.buffers()[1], body]
    pieces: Any = pc.unique(pa.Array.from_buffers(pa.string(), len(ends) - 1, buffers))
    starts = pa.Array.from_buffers(pa.int32(), len(pieces) + 1, [None, pieces.buffers()[1]])
    for number in range(0, len(pieces), _PIECES_AT_ONCE):
        low, high = (
            starts[min(n, len(pieces))].as_py() for n in (number, number + _PIECES_AT_ONCE)
        )
        text = b"".join([b" ", memoryview(pieces.buffers()[2])[low:high], b" "])
        if not text.isascii():
            text = folded_text(text.decode()).encode()
        letters = text.translate(_WORDS)
        yield Pieces(text, letters, _spaces(pa.py_buffer(letters)))


def characters(body: pa.Buffer) -> Any:
    """Return the bytes of a buffer as numbers."""
    return pa.Array.from_buffers(pa.uint8(), body.size, [None, body])


def places(mask: Array) -> Any:
    """Return where values are true: to filter numbers is the quickest way to find them."""
    parts = []
    for start in range(0, len(mask) or 1, _AT_ONCE):
        some = mask.slice(start, _AT_ONCE)
        numbers = _numbers().slice(0, len(some)).filter(some)
        parts.append(pc.add(numbers, pa.scalar(start, pa.int32())) if start else numbers)
    return pa.concat_arrays(parts)


def _spaces(body: pa.Buffer) -> Any:
    # not where the module is loaded: pyarrow loads pandas for a scalar
    return places(pc.equal(characters(body), pa.scalar(32, pa.uint8())))


def _place(number: int) -> Any:
    return pa.array([number], pa.int32())


@cache
def _numbers() -> Any:
    ones: Any = pa.repeat(pa.scalar(1, pa.int32()), _AT_ONCE)
    return pc.subtract(pc.cumulative_sum(ones), ones)


def parts_of(text: str, *, is_begun: bool, is_ended: bool) -> tuple[str, Iterator[str]]:
    """Return what of a text is surely whole words, folded, and the pieces of words at its ends that
    may go on; if `is_begun` or `is_ended`, nothing precedes or follows it.
    """
    whole = folded_text(text)
    first, last = 0, len(whole)
    if not is_begun:
        first = next((n for n, c in enumerate(whole) if not is_word_character(c)), last)
    if not is_ended:
        back = (n for n in range(last, first, -1) if not is_word_character(whole[n - 1]))
        last = next(back, first)
    return whole[first:last], (each for each in (whole[:first], whole[last:]) if each)


MAX_BYTES = 16 * 1024 * 1024
"""The longest document, which is read as a whole: as long as a line of JSON may be."""
MAX_DEPTH = 100
"""How deep arrays and objects nest: engines recurse over them, and few say how far."""
MAX_DIGITS, MAX_EXPONENT = 1_000, 99_999
"""What a number has at most, so that it can be compared exactly."""

Path: TypeAlias = tuple[str | int, ...]
"""What leads to a part: names in objects, places in arrays."""
ABSENT: Final = object()
"""What is at a path that a document does not have."""

_LONG = re.compile(rb"[0-9]{1000}")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPED = re.compile(r'[\x00-\x1f"\\]')
_NESTING = re.compile(rb'"(?:[^"\\]|\\.)*+"|(?P<open>[\[{])|(?P<close>[\]}])', re.DOTALL)


def check_unique(pairs: Sequence[tuple[str, object]]) -> None:
    """Check that no name is there twice, as what reads objects does. Raises ValueError: one is."""
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("an object has a name twice")


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def _number(text: str) -> None:
    digits, _, exponent = text.lower().partition("e")
    if len(digits) > MAX_DIGITS or len(exponent.lstrip("+-0")) > len(str(MAX_EXPONENT)):
        raise ValueError(
            f"a number in the document has more than {MAX_DIGITS:,} digits, or an exponent beyond "
            f"{MAX_EXPONENT:,}"
        )


_check = json.JSONDecoder(
    object_pairs_hook=check_unique, parse_int=len, parse_float=len, parse_constant=_no_number
).decode
_check_numbers = json.JSONDecoder(parse_int=_number, parse_float=_number).decode
_decode, _encode = msgspec.json.Decoder(float_hook=_number).decode, msgspec.json.Encoder().encode
_value = json.JSONDecoder(parse_float=Decimal).raw_decode


def document(raw: bytes) -> bytes:
    """Return the stored form of a JSON text.
    Raises ValueError: it is not exactly one JSON document in UTF-8, has a name twice in one object,
    or is too long or too deep; the message quotes no values.
    """
    if len(raw) > MAX_BYTES:
        raise ValueError(f"the document is longer than {MAX_BYTES:,} bytes")
    return _usual(raw) or _exact(raw)


def _usual(raw: bytes) -> bytes | None:
    """Return the stored form of a document; None if it needs a closer look: msgspec reads it in a
    fifth of the time, but takes the last of equal names, and no number beyond a double.
    """
    try:
        names = _encode(_decode(raw)).count(b'":')  # the same in texts, but of \u0022 and \u003a
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    text = _without_space(raw)
    is_long = len(raw) > MAX_DIGITS and _LONG.search(raw)
    is_usual = text.count(b'":') == names and not is_long and b"\\u00" not in raw
    return text if is_usual and raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH else None


def _exact(raw: bytes) -> bytes:
    """Return what `document` returns, or raise what it raises."""
    try:
        text = raw.decode()
        if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH:
            _check_depth(raw)
        _check(text)
        _check_numbers(text)
        if _SURROGATE.search(raw):
            json.dumps(_value(text.strip())[0], default=str, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError("a text in the document has an unpaired surrogate") from error
    except UnicodeDecodeError as error:
        raise ValueError("the document is not UTF-8") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not one JSON document: {error.msg} at {error.pos + 1}") from error
    return _without_space(raw)


def _without_space(raw: bytes) -> bytes:
    has_space = b" " in raw or b"\n" in raw or b"\t" in raw or b"\r" in raw
    return msgspec.json.format(raw, indent=-1) if has_space else raw


def _check_depth(raw: bytes) -> None:
    depth = 0
    for bracket in _NESTING.finditer(raw):
        depth += (bracket["open"] is not None) - (bracket["close"] is not None)
        if depth > MAX_DEPTH:
            raise ValueError(f"the document is nested deeper than {MAX_DEPTH}")


def documents(raws: Iterable[bytes | None]) -> Array:
    """Return JSON texts as a column of documents. Raises ValueError as `document` does."""
    column: Any = pa.array(
        [None if raw is None else document(raw) for raw in raws], pa.large_binary()
    )
    return column.cast(pa.large_string())  # type: ignore[no-any-return]


def values_at(texts: Iterable[str | None], paths: Sequence[Path]) -> list[list[object]]:
    """Return what is at each path in each of some documents, path by path: numbers are int or
    Decimal, JSON null is None. What a document lacks, or all of a null, is `ABSENT`.
    """
    columns: list[list[object]] = [[] for _ in paths]
    for text in texts:
        value = ABSENT if text is None else _value(text)[0]
        for cells, path in zip(columns, paths, strict=True):
            cells.append(_at(value, path))
    return columns


def _at(value: Any, path: Path) -> object:
    for step in path:
        if isinstance(step, str):
            if not isinstance(value, dict) or step not in value:
                return ABSENT
        elif not isinstance(value, list) or step >= len(value):
            return ABSENT
        value = value[step]
    return value


def kind_of(value: object) -> str:
    """Return what JSON calls a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case int() | Decimal():
            return "number"
        case list():
            return "array"
        case _:
            return "object"


_ORDERS: dict[str, Callable[[Any, Any], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge, "=": eq}


def holds(op: str, value: object, constants: Sequence[object]) -> bool | None:
    """Return whether a comparison of what is at a path holds; None if nothing is there.

    `op` is one of SQL, ``IN`` is with any of the constants. A value is equal to a constant of its
    own kind alone, and neither less nor greater than one of another.
    """
    if value is ABSENT:
        return {"IS DISTINCT FROM": True, "IS NOT DISTINCT FROM": False}.get(op)
    is_negated = op in ("<>", "IS DISTINCT FROM")
    compare: Callable[[Any, Any], bool] = _ORDERS.get(op, eq)
    kind = kind_of(value)
    return is_negated != any(kind == kind_of(each) and compare(value, each) for each in constants)


def typed(values: Sequence[object], kind: Primitive) -> Array:
    """Return values of documents as a column: of text, truth values, whole numbers or doubles; null
    where a value is another one.
    """
    cells = [_typed(value, kind) for value in values]
    return pa.array(cells, arrow_type(kind))


def _typed(value: object, kind: Primitive) -> object:
    match kind, kind_of(value):
        case (Primitive.STRING, "string") | (Primitive.BOOLEAN, "boolean"):
            return value
        case Primitive.LONG, "number":
            return _whole(value)
        case Primitive.DOUBLE, "number":
            nearest = float(Decimal(value))  # type: ignore[arg-type]  # a number
            return nearest if isfinite(nearest) else None
    return None


def _whole(value: Any) -> int | None:
    """Return a number as the whole number of 64 bits that it is; None if it is none."""
    if not value:  # whatever its exponent
        return 0
    if isinstance(value, Decimal) and (value.adjusted() > 18 or value != value.to_integral_value()):
        return None
    return int(value) if INT64_MIN <= value <= INT64_MAX else None


def typed_columns(
    texts: Array, parts: Sequence[tuple[Path, Primitive]]
) -> list[tuple[Array, bool]]:
    """Return the values at some paths in documents, each as a column of one kind, and whether it
    has all values that would compare as such: a column of whole numbers may lack others.

    Documents that have values of these kinds alone are read without the rest of them.
    """
    reader = _reader(tuple(parts))
    blank = (None,) * len(parts)
    paths = [path for path, _ in parts]
    rows: list[Sequence[object]] = []
    lost = [False] * len(parts)
    for text in texts.to_pylist():
        try:
            rows.append(blank if text is None else reader(text))
        except msgspec.ValidationError:
            values = [cells[0] for cells in values_at([text], paths)]
            row = [_typed(value, kind) for value, (_, kind) in zip(values, parts, strict=True)]
            for at, (_, kind) in enumerate(parts):
                is_number = kind is Primitive.LONG and kind_of(values[at]) == "number"
                lost[at] |= is_number and row[at] is None
            rows.append(row)
    columns = zip(*rows, strict=True) if rows else [()] * len(parts)
    return [
        (pa.array(cells, arrow_type(kind)), not is_lost)
        for cells, (_, kind), is_lost in zip(columns, parts, lost, strict=True)
    ]


@lru_cache(maxsize=64)
def _reader(parts: tuple[tuple[Path, Primitive], ...]) -> Callable[[str], Sequence[object]]:
    """Return what reads the values at some paths of a document, None for each that it lacks; it
    raises ValidationError for all documents if msgspec has no class for these paths.
    """
    tree: dict[str, Any] = {}
    places = []
    for path, kind in parts:
        names = [step for step in path if isinstance(step, str) and not _ESCAPED.search(step)]
        inside, place = tree, []
        for name in names:
            if not isinstance(inside, dict):
                return _unread
            last, inside = inside, inside.setdefault(name, {})
            place.append(f"f{[*last].index(name)}")
        if inside or not names or len(names) < len(path):
            return _unread
        last[name] = kind
        places.append(".".join(place))
    decode = msgspec.json.Decoder(_class_of(tree)).decode
    values = attrgetter(*places)
    if len(places) > 1:
        return lambda text: values(decode(text))
    return lambda text: (values(decode(text)),)


def _unread(text: str) -> Sequence[object]:
    raise msgspec.ValidationError


def _class_of(tree: dict[str, Any]) -> type[msgspec.Struct]:
    """Return a class that decodes an object; its attributes are numbered, as names may be any."""
    fields: list[tuple[str, Any, Any]] = []
    for at, kind in enumerate(tree.values()):
        inner = _class_of(kind) if isinstance(kind, dict) else _KINDS[kind] | None
        fields.append((f"f{at}", inner, inner() if isinstance(kind, dict) else None))
    names = {f"f{at}": name for at, name in enumerate(tree)}
    return msgspec.defstruct("Object", fields, rename=names, frozen=True)


_KINDS: dict[Primitive, Any] = {
    Primitive.LONG: Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)],
    Primitive.STRING: str,
    Primitive.BOOLEAN: bool,
}
