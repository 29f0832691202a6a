"""What is stored of a long job: its request, its numbered parts, their ends, and attempts at them.

An export, a query over messages, a purge and a job of Spark's are each stored as one object, the
request, which says all that their parts need; the objects of parts lie below it. An object is put
once and never changes: of several deliveries, the one that puts it first decides, and the others
read what it put. What the parts read is put before the request, which makes it valid, so a crash
leaves parts without a request: leftovers, which the sweep deletes.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Generic, TypeVar

import msgspec

from dormouse.errors import NotFoundError
from dormouse.features.requests import Kind
from dormouse.ports import Storage
from dormouse.query.selection import (
    Selection,
    StoredSelection,
    decode_pieces,
    encode_pieces,
    load_selection,
    store_selection,
)
from dormouse.schema.schema import Schema
from dormouse.state.state import Piece
from dormouse.tables.properties import properties_of
from dormouse.tables.table import Table

OBJECTS_AT_ONCE = 8
_RULES = ("filters", "aggregations", "keep", "latest_by", "row_origin")
_Form = TypeVar("_Form", bound=msgspec.Struct)


class SelectedRows(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """Rows of one version of a table, stored as a message would ask for them."""

    rows: StoredSelection

    def __post_init__(self) -> None:
        """Parse the rows: what is damaged is refused where it is read."""
        assert self._loaded

    @cached_property
    def _loaded(self) -> tuple[Schema, Selection]:
        return load_selection(self.rows)

    @property
    def schema(self) -> Schema:
        """The schema that the names and keys of the selection are of."""
        return self._loaded[0]

    @property
    def selection(self) -> Selection:
        """Which rows are selected."""
        return self._loaded[1]


class ReadTable(SelectedRows, frozen=True, forbid_unknown_fields=True):
    """The version of a table that a job reads, and what reading its rows needs.

    The properties are the row rules when the job began. So all its parts read the same rows,
    whatever changes in the table meanwhile.
    """

    id: str
    name: str
    filters: str = ""
    aggregations: str = ""
    keep: str = "all"
    latest_by: str = ""
    row_origin: str = "off"

    @staticmethod
    def of(table: Table, scope: Selection) -> "ReadTable":
        """Return what is to be read of a table as it is now."""
        rules = {name: getattr(table.properties, name) for name in _RULES}
        return ReadTable(store_selection(scope, table.schema), table.id, table.name, **rules)

    @property
    def table(self) -> Table:
        """The table when the job began, with the properties that reading its rows needs."""
        rules = {name: getattr(self, name) for name in _RULES}
        return Table(self.id, self.name, self.schema, properties_of({}, rules))


@dataclass(frozen=True, slots=True)
class Parts(Generic[_Form]):
    """The parts of a job, numbered from 0: what each reads, of `kind`, and how each ended.

    The path of what a part reads names the delivery that planned the parts, if several do at once:
    the request that is saved first names the one that counts.
    """

    storage: Storage
    kind: str
    path: Callable[[int], str]
    ends: Kind[_Form]
    end_path: Callable[[int], str]

    def save(self, parts: Iterable[Sequence[Piece]]) -> int:
        """Save what each part reads, at least one part; return their number."""

        def save(numbered: tuple[int, Sequence[Piece]]) -> None:
            part, pieces = numbered
            path = self.path(part)
            self.storage.put(path, encode_pieces(pieces, self.kind, path))

        numbered, count = enumerate(parts), 0
        with ThreadPoolExecutor(OBJECTS_AT_ONCE) as threads:
            while some := list(islice(numbered, 4 * OBJECTS_AT_ONCE)):  # few are in memory
                count += len(list(threads.map(save, some)))
        if not count:
            save((0, ()))
        return max(1, count)

    def pieces(self, part: int) -> tuple[Piece, ...]:
        """Return what a part reads.

        Raises:
            NotFoundError: the job has ended, or has no such part.
            CorruptDataError: what is stored is damaged.
        """
        path = self.path(part)
        return decode_pieces(self.storage.get(path), self.kind, path)

    def end(self, part: int, end: _Form) -> None:
        """Save how a part ended, unless another attempt was quicker."""
        self.ends.put(self.storage, self.end_path(part), end)

    def has_ended(self, part: int) -> bool:
        """Return whether a part has ended, even if what is stored of that is damaged."""
        try:
            self.storage.get(self.end_path(part))
        except NotFoundError:
            return False
        return True

    def ended(self, count: int) -> list[int]:
        """Return those of so many parts that have ended, in order."""
        prefix = self.end_path(0).rpartition("/")[0]
        paths = {item.path for item in self.storage.list(f"{prefix}/")}
        return [part for part in range(count) if self.end_path(part) in paths]

    def load_ends(self, parts: Iterable[int]) -> list[_Form]:
        """Return how parts ended that have.

        Raises:
            NotFoundError: the job has ended meanwhile.
            CorruptDataError: an end is damaged.
        """

        def load(part: int) -> _Form:
            path = self.end_path(part)
            return self.ends.decode(self.storage.get(path), path)

        with ThreadPoolExecutor(OBJECTS_AT_ONCE) as threads:
            return list(threads.map(load, parts))
