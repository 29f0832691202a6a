"""The positive proof that an id belongs to no table and never will: kept for ever, a hundred bytes.

The registry puts it before the first thing of a table is destroyed, and only over an id that is not
registered or is in deletion; from then on it registers no table of that id. So what lies under an
id with a tombstone can be deleted at any time, no matter which process put it there, and when.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dormouse.schema.schema import Field, Primitive, Schema
from dormouse.tables.properties import properties_of
from dormouse.tables.table import Table

_FORGOTTEN = Schema(row_keys=(Field("forgotten", Primitive.STRING),))
"""Where a table is asked for whose columns nobody knows any more: a state is found without."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What is kept of an id: the last name, when deletion began, and what leads to all states.

    `was_registered` is false where a table was asked for and refused, after its state was begun.
    """

    table_id: str
    name: str
    deleted_ms: int
    was_registered: bool
    state_store: str
    logs: tuple[str, ...] = ()

    @staticmethod
    def of(table: Table, deleted_ms: int, *, was_registered: bool = True) -> Tombstone:
        """Return the tombstone of a table as the registry knew it last."""
        store, logs = table.properties.state_store, tuple(t.log for t in table.states() if t.log)
        return Tombstone(table.id, table.name, deleted_ms, was_registered, store, logs)

    def states(self) -> Iterator[Table]:
        """Return the table once for each state it ever began, to open the store of each."""
        properties = properties_of({}, {"state_store": self.state_store})
        table = Table(self.table_id, self.name, _FORGOTTEN, properties, logs=self.logs)
        return replace(table, deleting=True).states()
