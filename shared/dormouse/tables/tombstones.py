"""Tombstones: the proof that an id belongs to no table and never will. They are kept for ever.

The registry writes the tombstone before the first object of a table is deleted, and only for an id
that is not registered or whose table is being deleted. After that it registers no table with this
id. So everything stored under an id with a tombstone may be deleted at any time, whichever process
wrote it and when.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dormouse.schema.schema import Field, Primitive, Schema
from dormouse.tables.properties import properties_of
from dormouse.tables.table import Table

_PLACEHOLDER_SCHEMA = Schema(row_keys=(Field("deleted", Primitive.STRING),))
"""Takes the place of the schema of a deleted table, whose columns are unknown; opening its state
does not need them."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What is kept about a deleted id: the last name, the start of deletion, and what leads to all
    its states.

    `was_registered` is false if the creation of a table was refused after its state had been begun.
    """

    table_id: str
    name: str
    deleted_ms: int
    was_registered: bool
    state_store: str
    logs: tuple[str, ...] = ()

    @staticmethod
    def of(table: Table, deleted_ms: int, *, was_registered: bool = True) -> Tombstone:
        """Return the tombstone of a table as the registry last knew it."""
        store, logs = table.properties.state_store, tuple(t.log for t in table.states() if t.log)
        return Tombstone(table.id, table.name, deleted_ms, was_registered, store, logs)

    def states(self) -> Iterator[Table]:
        """Yield the table once for each state that was ever begun for it, to open each one's
        store.
        """
        properties = properties_of({}, {"state_store": self.state_store})
        table = Table(self.table_id, self.name, _PLACEHOLDER_SCHEMA, properties, logs=self.logs)
        return replace(table, deleting=True).states()
