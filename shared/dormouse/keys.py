"""Keys, their one order, their bytes, and half-open ranges of them.

A key is the tuple of a row's row keys. A shorter tuple is a prefix, and sorts just before every key
that begins with it, as Python orders tuples. So ``()`` is the least key, and ``[("AA",), ("AB",))``
holds every key whose first part is ``"AA"`` or lies between ``"AA"`` and ``"AB"``.

Sort keys continue row keys in the same order. A query may bound them too, while shards and
partitions know row keys only. To a range whose ends have sort keys, a row key is a prefix like any
other: its rows may lie on both sides of an end.

Parts are ``int``, ``str`` or ``bytes``; a timestamp is microseconds and a date days since 1970, a
decimal counts units of the last digit of its column: 1.5 in a decimal(10,2) is 150.
Strings compare by code point, which is the order of their UTF-8 bytes; bytes compare as unsigned.
This is also the order of Parquet statistics, Arrow, DataFusion and Spark.

Inside, a key is bytes that sort as the keys do and need no schema to be decoded (`encode_key`):
the state, changes of it, shards and ranges hold these, and so does everything that is stored, as
binary or in hexadecimal. They follow the tuple layer of FoundationDB. A tag byte begins each part.
Strings and bytes end with 00, and a 00 inside is written 00 FF. An integer is eight bytes, with the
sign bit flipped so that negative ones sort first. So ("a", 1) is 02 61 00, 03 80 00 00 00 00 00 00
01. One that needs more, as decimals may, is sixteen such bytes; its tag sorts it before all of
eight if it is negative, and after them if not. So the bytes do not depend on how many digits a
column may have, and decimals of up to 18 digits take no more than other numbers. No part begins
with FF, so the bytes of all keys that begin with a key k lie between those of k and those of k with
an FF behind.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from dormouse.errors import CorruptDataError

KeyPart = int | str | bytes
Key = tuple[KeyPart, ...]

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
_INT128_MIN = -(2**127)
_BELOW_INT, _BYTES, _STRING, _INT, _ABOVE_INT = range(5)
_ONE_STRING = bytes([_STRING])
_PAST = b"\xff"
"""Behind the bytes of a key: greater than all keys that begin with it, less than all others."""


def encode_key(key: Key) -> bytes:
    """Return a key's bytes, which compare as keys do. Raises OverflowError: more than 128 bits."""
    out = bytearray()
    for part in key:
        if isinstance(part, int):
            if INT64_MIN <= part <= INT64_MAX:
                out.append(_INT)
                out += (part - INT64_MIN).to_bytes(8, "big")
            else:
                out.append(_BELOW_INT if part < 0 else _ABOVE_INT)
                out += (part - _INT128_MIN).to_bytes(16, "big")
        else:
            out.append(_BYTES if isinstance(part, bytes) else _STRING)
            raw = part if isinstance(part, bytes) else part.encode(errors="surrogatepass")
            out += raw.replace(b"\0", b"\0\xff") + b"\0"
    return bytes(out)


def decode_key(stored: bytes) -> Key:
    """Return the key of these bytes. Raises CorruptDataError: `encode_key` did not make them."""
    parts: list[KeyPart] = []
    at = 0
    try:
        if stored[:1] == _ONE_STRING and stored.find(b"\0") == len(stored) - 1:
            return (stored[1:-1].decode(errors="surrogatepass"),)  # as most keys are
        while at < len(stored):
            tag, at = stored[at], at + 1
            if tag == _INT and at + 8 <= len(stored):
                parts.append(int.from_bytes(stored[at : at + 8], "big") + INT64_MIN)
                at += 8
            elif tag in (_BELOW_INT, _ABOVE_INT) and at + 16 <= len(stored):
                parts.append(int.from_bytes(stored[at : at + 16], "big") + _INT128_MIN)
                at += 16
            elif tag in (_BYTES, _STRING):
                end = _end_of_bytes(stored, at)
                raw = stored[at:end].replace(b"\0\xff", b"\0")
                parts.append(raw if tag == _BYTES else raw.decode(errors="surrogatepass"))
                at = end + 1
            else:
                raise CorruptDataError("not a stored key")
    except (ValueError, IndexError) as error:
        raise CorruptDataError("not a stored key") from error
    return tuple(parts)


def _end_of_bytes(stored: bytes, start: int) -> int:
    end = stored.index(b"\0", start)
    while stored[end + 1 : end + 2] == b"\xff":
        end = stored.index(b"\0", end + 2)
    return end


def prefix_successor(key: Key) -> Key | None:
    """Return the least key greater than every key that begins with `key`; None if there is none.

    It turns an inclusive upper end, or an exact prefix, into the exclusive end of a half-open
    range: ("a", 7) becomes ("a", 8), and ("a",) becomes ("a\\0",), since no string lies between "a"
    and "a\\0". The greatest value of a type has a successor that is none: 2**63 - 1
    of a long has 2**63 (`arrow.order.fit_range`).
    """
    if not key:
        return None
    *head, last = key
    if isinstance(last, int):
        return (*head, last + 1)
    return (*head, last + "\0") if isinstance(last, str) else (*head, last + b"\0")


def above(head: str | bytes) -> KeyPart | None:
    """Return the least text, or bytes, greater than all that begin with `head`; None if there is
    none. Between two characters lie the surrogates, which no text has.
    """
    if isinstance(head, bytes):
        head = head.rstrip(b"\xff")
        return head[:-1] + bytes([head[-1] + 1]) if head else None
    head = head.rstrip("\U0010ffff")
    if not head:
        return None
    return head[:-1] + ("\ue000" if head[-1] == "\ud7ff" else chr(ord(head[-1]) + 1))


_bound = lru_cache(maxsize=4096)(decode_key)
"""Decodes the bounds of ranges: a look-up of many keys asks for each a dozen times."""


class KeyRange:
    """The keys from `min`, inclusive, to `max`, exclusive. A `max` of None leaves the end open.

    It holds the bytes of both, `low` and `high`, and compares these; `min` and `max` decode them.
    Immutable.
    """

    __slots__ = ("high", "low")

    def __init__(self, min: Key = (), max: Key | None = None) -> None:  # noqa: A002
        """Make a range of two keys. Raises OverflowError: a number needs more than 128 bits."""
        self.low: bytes = encode_key(min)
        self.high: bytes | None = None if max is None else encode_key(max)

    @staticmethod
    def between(low: bytes, high: bytes | None) -> KeyRange:
        """Return the range between the bytes of two keys."""
        span = KeyRange.__new__(KeyRange)
        span.low, span.high = low, high
        return span

    @staticmethod
    def exactly(key: Key) -> KeyRange:
        """Return the range of all keys that begin with `key`."""
        return KeyRange(key, prefix_successor(key))

    @property
    def min(self) -> Key:
        """The first key."""
        return _bound(self.low)

    @property
    def max(self) -> Key | None:
        """The key that follows the last one; None if the end is open."""
        return None if self.high is None else _bound(self.high)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KeyRange):
            return NotImplemented
        return self.low == other.low and self.high == other.high

    def __hash__(self) -> int:
        return hash((self.low, self.high))

    def __repr__(self) -> str:
        return f"KeyRange({self.min!r}, {self.max!r})"

    def is_empty(self) -> bool:
        """Return whether no key can lie in the range."""
        return self.high is not None and self.low >= self.high

    def contains(self, key: bytes) -> bool:
        """Return whether a full key, by its bytes, lies in the range."""
        return self.low <= key and (self.high is None or key < self.high)

    def covers(self, other: KeyRange) -> bool:
        """Return whether every key of another range lies in this one."""
        ends_first = other.high is not None and (self.high is None or other.high <= self.high)
        return self.low <= other.low and (self.high is None or ends_first)

    def contains_span(self, low: bytes, high: bytes) -> bool:
        """Return whether all keys from `low` to the last that begins with `high` are in it."""
        return self.contains(low) and (self.high is None or high + _PAST <= self.high)

    def overlaps_span(self, low: bytes, high: bytes) -> bool:
        """Return whether a key from `low` to the last that begins with `high` may be in it."""
        return self.low < high + _PAST and (self.high is None or low < self.high)

    def widen_to_parts(self, parts: int) -> KeyRange:
        """Return the least range that contains this one and whose ends have at most `parts` parts.

        With one part, the range from ("a", 5) to ("b", 2) becomes that from ("a",) to ("b\\0",): it
        may hold rows of "a" and of "b", so both row keys are read whole.
        """
        end = self.max
        if end is not None and len(end) > parts:
            end = prefix_successor(end[:parts])
        return KeyRange(self.min[:parts], end)

    def overlaps(self, other: KeyRange) -> bool:
        """Return whether some key can lie in both ranges."""
        low = self.low if self.low > other.low else other.low
        return (self.high is None or low < self.high) and (other.high is None or low < other.high)

    def intersection(self, other: KeyRange) -> KeyRange:
        """Return the range of the keys that lie in both; it may be empty."""
        low = self.low if self.low > other.low else other.low
        if self.high is None or (other.high is not None and other.high < self.high):
            return KeyRange.between(low, other.high)
        return KeyRange.between(low, self.high)

    def __str__(self) -> str:
        """Show the range in mathematical notation."""
        end = "∞" if self.max is None else show_key(self.max)
        return f"[{show_key(self.min)}, {end})"


def show_key(key: Key) -> str:
    """Return `key` as text for people: ``AA, 12``. The empty key is ``-∞``."""
    if not key:
        return "-∞"
    return ", ".join(part.hex() if isinstance(part, bytes) else str(part) for part in key)


def union_ranges(ranges: list[KeyRange]) -> list[KeyRange]:
    """Return disjoint, sorted, non-empty ranges that hold exactly the keys of `ranges`.

    Ranges that overlap or touch become one: [a, c), [b, d), [d, e), [x, y) become [a, e), [x, y).
    """
    result: list[KeyRange] = []
    for item in sorted((r for r in ranges if not r.is_empty()), key=lambda r: r.low):
        last = result[-1] if result else None
        if last is None or (last.high is not None and last.high < item.low):
            result.append(item)
        elif last.high is not None and (item.high is None or item.high > last.high):
            result[-1] = KeyRange.between(last.low, item.high)
    return result


def complement(ranges: list[KeyRange]) -> list[KeyRange]:
    """Return the keys that lie in none of some ranges, as disjoint, sorted ranges."""
    result: list[KeyRange] = []
    end: bytes | None = b""
    for span in union_ranges(ranges):
        if end is not None and end < span.low:
            result.append(KeyRange.between(end, span.low))
        end = span.high
    return [*result, KeyRange.between(end, None)] if end is not None else result


def intersect_ranges(these: list[KeyRange], those: list[KeyRange]) -> list[KeyRange]:
    """Return the keys that lie in both of two lists of disjoint, sorted ranges, as such a list.

    Both lists are walked once, side by side: after each pair, the range that ends first is done. So
    [a, d), [f, h) and [b, c), [d, g) give [b, c), [f, g).
    """
    result: list[KeyRange] = []
    i = j = 0
    while i < len(these) and j < len(those):
        common = these[i].intersection(those[j])
        if not common.is_empty():
            result.append(common)
        if common.high == these[i].high:
            i += 1
        else:
            j += 1
    return result


# An equi-depth histogram of row keys: estimate how many rows lie in a range without reading them.
#
# The footer of each shard holds one, and the survey of files for a bulk import makes one. Splitting
# a partition at its median and cutting a job into tasks of about equal rows both use them.


@dataclass(frozen=True, slots=True)
class KeyHistogram:
    """Sampled row keys in strictly ascending order, each with its rank: the number of rows whose
    row key is less.

    `rows` counts all rows. `max_key` is the greatest row key; the first sample is the least one.

    Example: rows with the keys a a b c d e, sampled at every second row, give samples (("a",), 0),
    (("b",), 2), (("d",), 4), with rows 6 and max_key ("e",).
    """

    samples: tuple[tuple[Key, int], ...] = ()
    rows: int = 0
    max_key: Key = ()

    def rows_below(self, key: Key) -> int:
        """Return the number of rows whose row key is less than `key`.

        The answer is exact where `key` is a sample. Between two samples it is the middle of what is
        possible: in the example above, the rows below ("c",) are at least 3 (the rows up to b) and
        at most 4 (those below d), so 3.
        """
        if not self.samples or key <= self.samples[0][0]:
            return 0
        if key > self.max_key:
            return self.rows
        at = bisect_left(self.samples, key, key=_key)
        if at < len(self.samples) and self.samples[at][0] == key:
            return self.samples[at][1]
        low = self.samples[at - 1][1] + 1
        high = self.samples[at][1] if at < len(self.samples) else self.rows - 1
        return (low + high) // 2

    def rows_in(self, span: KeyRange) -> int:
        """Return the estimated number of rows whose row key lies in `span`."""
        end = self.rows if span.max is None else self.rows_below(span.max)
        return max(0, end - self.rows_below(span.min))

    def within(self, span: KeyRange) -> KeyHistogram:
        """Return the histogram of only those rows that lie in `span`, with ranks from 0 again."""
        first = bisect_left(self.samples, span.min, key=_key)
        end = (
            len(self.samples) if span.max is None else bisect_left(self.samples, span.max, key=_key)
        )
        if first == end:
            return KeyHistogram()
        below = self.samples[first][1]
        rows = (self.samples[end][1] if end < len(self.samples) else self.rows) - below
        samples = tuple((key, rank - below) for key, rank in self.samples[first:end])
        inside = span.max is None or self.max_key < span.max
        return KeyHistogram(samples, rows, self.max_key if inside else samples[-1][0])


def merge_histograms(histograms: Iterable[KeyHistogram]) -> KeyHistogram:
    """Return one histogram of the rows of several.

    The rows between two samples count at the lower one. So merging a single histogram loses
    nothing, and merging several is as coarse as the coarsest: a 0, c 2 of 4 rows (2 at a, 2 at c)
    and b 0 of 3 rows become a 0, b 2, c 5 of 7 rows.
    """
    weights: dict[Key, int] = {}
    greatest: Key = ()
    for one in histograms:
        if one.samples:
            greatest = max(greatest, one.max_key)
            ends = [rank for _, rank in one.samples[1:]] + [one.rows]
            for (key, rank), end in zip(one.samples, ends, strict=True):
                weights[key] = weights.get(key, 0) + end - rank
    samples = []
    rows = 0
    for key in sorted(weights):
        samples.append((key, rows))
        rows += weights[key]
    return KeyHistogram(tuple(samples), rows, greatest)


def _key(sample: tuple[Key, int]) -> Key:
    return sample[0]
