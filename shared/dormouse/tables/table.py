"""A table as the registry knows it: name, immutable id, schema, properties, online or not."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Literal

from dormouse.errors import InvalidRequestError, NotFoundError
from dormouse.schema.schema import Schema
from dormouse.tables.csv_dialect import csv_dialect
from dormouse.tables.properties import KNOWN, Properties, properties_of
from dormouse.tables.row_rules import row_rules

REQUESTS_REMEMBERED = 16
"""A request is repeated within moments, seldom after another one."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class Table:
    """One table. `id` never changes and is never used again; names can be.

    `own` names the properties set for this very table; the others are the instance's or defaults.
    A table being deleted keeps its name until the last of it is gone. `log` tells the log of its
    state from earlier ones, if the state was ever rebuilt; `logs` are all that rebuilds ever began,
    so that deletion finds them, too. `generation` counts how often the table
    was emptied, last at `emptied_ms`: what was queued or dropped before is not for this generation.
    Since `schema_generation` it has this schema: what was stored before has none of its columns.
    `tree` is the id of the partitions it began with then, and empty if its partitions stayed.
    `named_ms` is when it was last renamed: what was dropped before was for another table's name.
    `applied` are the last requests that changed the table, the newest last.
    """

    id: str
    name: str
    schema: Schema
    properties: Properties = field(default_factory=Properties)
    own: frozenset[str] = frozenset()
    online: bool = True
    deleting: bool = False
    created_ms: int = 0
    log: str = ""
    logs: tuple[str, ...] = ()
    generation: int = 0
    schema_generation: int = 0
    emptied_ms: int = 0
    tree: str = ""
    named_ms: int = 0
    applied: tuple[str, ...] = ()

    @property
    def state_id(self) -> str:
        """The id of the table's state; what it keeps in the data bucket lies below the table's."""
        return f"{self.id}/{self.log}" if self.log else self.id

    def states(self) -> Iterator[Table]:
        """Return the table once for each state it ever began, to open the store of each."""
        for log in dict.fromkeys(("", *self.logs, self.log)):
            yield replace(self, log=log)

    @property
    def files_since_ms(self) -> int:
        """From when on files dropped in the folder of its name are for it, and its generation."""
        return max(self.created_ms, self.emptied_ms, self.named_ms)

    @property
    def settings(self) -> dict[str, int | str]:
        """The properties set for this very table."""
        return {name: getattr(self.properties, name) for name in KNOWN if name in self.own}

    def with_settings(
        self, settings: Mapping[str, int | str], defaults: Mapping[str, int | str]
    ) -> Table:
        """Return the table with just these properties of its own, over the instance's defaults."""
        return replace(self, properties=properties_of(defaults, settings), own=frozenset(settings))


def property_origins(
    own: Container[str], defaults: Container[str]
) -> dict[str, Literal["table", "instance", "default"]]:
    """Return where a table has each property from: its own, the instance's, or the default."""
    return {
        name: "table" if name in own else "instance" if name in defaults else "default"
        for name in KNOWN
    }


def applied(table: Table, request_id: str) -> Table:
    """Return the table with a request remembered, if it is one, as having changed it."""
    if not request_id:
        return table
    return replace(table, applied=(*table.applied, request_id)[-REQUESTS_REMEMBERED:])


def changed_settings(
    kept: Mapping[str, int | str], put: Mapping[str, int | str], unset: Iterable[str]
) -> dict[str, int | str]:
    """Return settings with some changed and some taken away.

    Raises:
        InvalidRequestError: a property is in both.
    """
    away = set(unset)
    if both := sorted(away & set(put)):
        raise InvalidRequestError(f"{both[0]} is to be set and unset at once")
    return {name: value for name, value in {**kept, **put}.items() if name not in away}


def check_change(kept: Table, changed: Table) -> None:
    """Check that a table may become another: what never changes stays, and its rules fit.

    Raises:
        InvalidRequestError: it may not.
    """
    for name, known in KNOWN.items():
        before, after = getattr(kept.properties, name), getattr(changed.properties, name)
        if known.is_fixed and before != after:
            raise InvalidRequestError(
                f"{name} of table {kept.name!r} is {before} and stays so",
                hint="create another table, and export this one's rows to it",
            )
    row_rules(changed.schema, changed.properties)
    csv_dialect(changed.properties)


def unknown_table(name: str, tables: Iterable[Table]) -> NotFoundError:
    """Return the error that there is no table of that name; the hint names the nearest one."""
    near = get_close_matches(name, [table.name for table in tables if not table.deleting], 1)
    hint = f"did you mean {near[0]}?" if near else "list the tables"
    return NotFoundError(f"there is no table {name!r}", hint=hint)


def can_be_name(name: str) -> bool:
    """Return whether a table can be called so; there is no use in looking for another name."""
    return _NAME.fullmatch(name) is not None


def check_name(name: str) -> str:
    """Return `name` if a table can have it as its name.

    Names are folders of the ingest bucket, so they are kept to a plain alphabet.

    Raises:
        InvalidRequestError: it cannot.
    """
    if not can_be_name(name):
        raise InvalidRequestError(
            f"a table cannot be called {name!r}",
            hint="up to 100 letters, digits, dots, dashes, underscores; first a letter or digit",
        )
    return name
