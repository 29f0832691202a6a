"""Keys, their one order, and half-open ranges of them.

A key is the tuple of a row's row keys. A shorter tuple is a prefix, and sorts just before every key
that begins with it, as Python orders tuples. So ``()`` is the least key, and ``[("AA",), ("AB",))``
holds every key whose first part is ``"AA"`` or lies between ``"AA"`` and ``"AB"``.

Sort keys continue row keys in the same order. A query may bound them too, while shards and
partitions know row keys only. To a range whose ends have sort keys, a row key is a prefix like any
other: its rows may lie on both sides of an end.

Parts are ``int``, ``str`` or ``bytes``; a timestamp is microseconds and a date days since 1970.
Strings compare by code point, which is the order of their UTF-8 bytes; bytes compare as unsigned.
This is also the order of Parquet statistics, Arrow, DataFusion and Spark.
"""

from __future__ import annotations

from dataclasses import dataclass

KeyPart = int | str | bytes
Key = tuple[KeyPart, ...]

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def prefix_successor(key: Key) -> Key | None:
    """Return the least key greater than every key that begins with `key`; None if there is none.

    It turns an inclusive upper end, or an exact prefix, into the exclusive end of a half-open
    range: ("a", 7) becomes ("a", 8), and ("a",) becomes ("a\\0",), since no string lies between "a"
    and "a\\0". The greatest integer has no successor of its own, so the part before it is raised:
    ("a", 2**63 - 1) becomes ("a\\0",), and (2**63 - 1,) has none.
    """
    if not key:
        return None
    *head, last = key
    if isinstance(last, int):
        return prefix_successor(tuple(head)) if last >= INT64_MAX else (*head, last + 1)
    return (*head, last + "\0") if isinstance(last, str) else (*head, last + b"\0")


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys from `min`, inclusive, to `max`, exclusive. A `max` of None leaves the end open."""

    min: Key = ()
    max: Key | None = None

    @staticmethod
    def exactly(key: Key) -> KeyRange:
        """Return the range of all keys that begin with `key`."""
        return KeyRange(key, prefix_successor(key))

    def is_empty(self) -> bool:
        """Return whether no key can lie in the range."""
        return self.max is not None and self.min >= self.max

    def contains(self, key: Key) -> bool:
        """Return whether a full key lies in the range."""
        return self.min <= key and (self.max is None or key < self.max)

    def covers(self, other: KeyRange) -> bool:
        """Return whether every key of another range lies in this one."""
        ends_first = other.max is not None and (self.max is None or other.max <= self.max)
        return self.min <= other.min and (self.max is None or ends_first)

    def contains_span(self, low: Key, high: Key) -> bool:
        """Return whether every key from `low` to the last key that begins with `high` lies in the
        range.
        """
        return self.contains(low) and (self.max is None or high < self.max[: len(high)])

    def overlaps_span(self, low: Key, high: Key) -> bool:
        """Return whether some key from `low` to the last key that begins with `high` may lie in the
        range.
        """
        return self.min[: len(high)] <= high and (self.max is None or low < self.max)

    def widen_to_parts(self, parts: int) -> KeyRange:
        """Return the least range that contains this one and whose ends have at most `parts` parts.

        With one part, the range from ("a", 5) to ("b", 2) becomes that from ("a",) to ("b\\0",): it
        may hold rows of "a" and of "b", so both row keys are read whole.
        """
        is_longer = self.max is not None and len(self.max) > parts
        high = (
            prefix_successor(self.max[:parts]) if self.max is not None and is_longer else self.max
        )
        return KeyRange(self.min[:parts], high)

    def overlaps(self, other: KeyRange) -> bool:
        """Return whether some key can lie in both ranges."""
        return not self.intersection(other).is_empty()

    def intersection(self, other: KeyRange) -> KeyRange:
        """Return the range of the keys that lie in both; it may be empty."""
        ends = [end for end in (self.max, other.max) if end is not None]
        return KeyRange(max(self.min, other.min), min(ends) if ends else None)

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
    for item in sorted((r for r in ranges if not r.is_empty()), key=lambda r: r.min):
        last = result[-1] if result else None
        if last is None or (last.max is not None and last.max < item.min):
            result.append(item)
        elif last.max is not None and (item.max is None or item.max > last.max):
            result[-1] = KeyRange(last.min, item.max)
    return result


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
        if common.max == these[i].max:
            i += 1
        else:
            j += 1
    return result
