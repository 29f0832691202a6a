"""Words of texts: what `has` finds, and the terms that shards list of a column.

A word is a run of letters and digits; every other character of ASCII separates words, and so do the
spaces, punctuation and signs among `SEPARATORS`. Upper and lower case are one. This holds with and
without an index: `matching` tests rows, `cut` says which words their index has.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.arrow.types import Array
from dormouse.sql.conditions import SEPARATORS

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
