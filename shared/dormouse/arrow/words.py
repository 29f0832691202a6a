"""Words of texts: what `has` finds, and the terms that shards list of a column.

A word is a run of letters and digits; every other character of ASCII separates words, and so do the
spaces, punctuation and signs among `_SEPARATORS`. Upper and lower case are one. This holds with and
without an index: `matching` tests rows, `terms_of` says which terms their index has.

A term here is a word, or a whole IPv4 address, behind a space.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.arrow.types import Array
from dormouse.tables.term_index import Tokenizer

_SEPARATORS = (
    r"[\x{80}-\x{A9}\x{AB}-\x{B4}\x{B6}-\x{B9}\x{BB}-\x{BF}\x{D7}\x{F7}\x{2000}-\x{206F}"
    r"\x{3000}-\x{3004}\x{3008}-\x{3020}\x{FEFF}\x{FF01}-\x{FF0F}]"
)
_OF_ASCII = r"[\x00-/:-@\[-`{-\x7f]"
"""What separates words in folded texts: neither letter nor digit of ASCII, nor beyond it."""
_AT_ONCE = 1 << 20
"""So many characters are looked at at once."""
_LONG_S = "\u017f"
"""Case-insensitive patterns take it for an s."""
_ADDRESS = re.compile(rb"(?<![0-9])(?=([0-9]{1,3}(?:\.[0-9]{1,3}){3})(?![0-9]))")
"""Where an address begins, also within another one: 1.2.3.4.5 has two."""

_ONE_ADDRESS = r"\A [0-9]{1,3}(?:\.[0-9]{1,3}){3}\z"


def _table(kept: str) -> bytes:
    """Return the table by which bytes become spaces, but for some and those beyond ASCII."""
    return bytes(c if c > 127 or chr(c) in kept else 32 for c in range(256))


_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_WORDS = bytes(_table(_LETTERS + _LETTERS.upper() + "0123456789")).lower()
_ADDRESSES = bytes(c if chr(c) in "0123456789." else 32 for c in range(256))


def folded(texts: Array) -> Array:
    """Return texts without case, and with spaces for separators beyond ASCII."""
    if pc.all(pc.string_is_ascii(texts)).as_py():
        # of an array whose first text does not begin its buffer, Arrow would return a broken one
        return pc.ascii_lower(pa.concat_arrays([texts, texts.slice(0, 0)]))
    lower = pc.replace_substring(pc.utf8_lower(texts), _LONG_S, "s")
    return pc.replace_substring_regex(lower, _SEPARATORS, " ")


def folded_text(text: str) -> str:
    """Return one text, folded."""
    return str(folded(pa.array([text], pa.string()))[0].as_py())


def is_word_character(character: str) -> bool:
    """Return whether a character of a folded text is of a word."""
    return character > "\x7f" or character in _LETTERS or character.isdecimal()


def has_words(text: str) -> bool:
    """Return whether a text has a word."""
    return any(map(is_word_character, folded_text(text)))


def matching(texts: Array, wanted: str) -> Array:
    """Return which texts hold what is `wanted`, in whatever case, and not as part of a longer word:
    null of a null. Requires: it has words.
    """
    needle, pattern = _pattern(wanted)
    whole = folded(texts)
    found = pc.match_substring(whole, needle)
    if not pc.any(found).as_py():
        return found
    some: Any = found.fill_null(False)
    tested: Any = pc.match_substring_regex(whole.filter(some), pattern)
    return cast(Array, pc.replace_with_mask(found, some, tested))


@lru_cache(maxsize=256)
def _pattern(wanted: str) -> tuple[str, str]:
    needle = folded_text(wanted)
    before = rf"(?:\A|{_OF_ASCII})" if is_word_character(needle[:1]) else ""
    after = rf"(?:\z|{_OF_ASCII})" if is_word_character(needle[-1:]) else ""
    return needle, before + re.escape(needle) + after


def terms_of(texts: Array, tokenizer: Tokenizer) -> Array:
    """Return the terms of texts, each once, as bytes.

    The texts are cut at spaces first, and what is between once more where it differs: most of it
    occurs again and again.
    """
    whole = _joined(texts.drop_null().cast(pa.string()), " ")
    if whole is None:
        return pa.array([], pa.binary())
    pieces = pc.unique(_cut(whole))
    data = _spaced(pieces)
    if not data.isascii():
        pieces = folded(pieces.cast(pa.string())).cast(pa.binary())
        data = _spaced(pieces)
    found = [pc.unique(_cut(pa.py_buffer(data.translate(_WORDS))))]
    if tokenizer == "log":
        found.append(_addresses(pieces))
    terms: Any = pa.concat_arrays(found)
    return cast(Array, terms.filter(pc.greater(pc.binary_length(terms), pa.scalar(1))))


def _joined(texts: Array, separator: str | bytes) -> pa.Buffer | None:
    """Return texts as one; None if they have no characters."""
    ends = pa.array([0, len(texts)], pa.int32())
    joined: Any = pc.binary_join(pa.ListArray.from_arrays(ends, texts), separator)
    buffer: pa.Buffer | None = joined.buffers()[2]
    return buffer if buffer is not None and buffer.size else None


def _spaced(pieces: Array) -> bytes:
    """Return pieces as one text, with spaces before and after it; all but the first, which is
    there twice then, begin with one.
    """
    joined = _joined(pieces, b"")
    return b"  " if joined is None else b" " + joined.to_pybytes() + b" "


def _cut(body: pa.Buffer) -> Array:
    """Return the pieces of a text, each but the first behind its space, without copying them."""
    characters: Any = pa.Array.from_buffers(pa.uint8(), body.size, [None, body])
    ends = [pa.array([0], pa.int32())]
    space = pa.scalar(32, pa.uint8())  # not where the module is loaded: pyarrow loads pandas for it
    for start in range(0, body.size, _AT_ONCE):
        some = characters.slice(start, _AT_ONCE)
        places = _numbers().slice(0, len(some)).filter(pc.equal(some, space))
        ends.append(pc.add(places, pa.scalar(start, pa.int32())) if start else places)
    ends.append(pa.array([body.size], pa.int32()))
    all_ends = pa.concat_arrays(ends)
    return pa.Array.from_buffers(
        pa.binary(), len(all_ends) - 1, [None, all_ends.buffers()[1], body]
    )


@cache
def _numbers() -> Any:
    """Return the whole numbers from 0 on: to filter them is the quickest way to find spaces."""
    ones: Any = pa.repeat(pa.scalar(1, pa.int32()), _AT_ONCE)
    return pc.subtract(pc.cumulative_sum(ones), ones)


def _addresses(pieces: Any) -> Array:
    """Return the IPv4 addresses in pieces of texts, each behind a space."""
    some = pieces.filter(pc.greater_equal(pc.count_substring(pieces, "."), pa.scalar(3)))
    data = _spaced(some).translate(_ADDRESSES)
    runs: Any = pc.unique(_cut(pa.py_buffer(data)))
    is_one = pc.match_substring_regex(runs, _ONE_ADDRESS)
    others = {
        b" " + each
        for run in runs.filter(pc.invert(is_one)).to_pylist()
        for each in _ADDRESS.findall(run)
    }
    return pa.concat_arrays([runs.filter(is_one), pa.array(sorted(others), pa.binary())])


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
