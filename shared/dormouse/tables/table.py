"""A table as the registry records it: name, immutable id, schema, properties, online or offline."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Literal

from dormouse.errors import InvalidRequestError, NotFoundError
from dormouse.schema.schema import Schema
from dormouse.tables.bloom_columns import bloom_columns
from dormouse.tables.csv_dialect import csv_dialect
from dormouse.tables.origins import Origin
from dormouse.tables.properties import KNOWN, Properties, properties_of
from dormouse.tables.published import check_published
from dormouse.tables.row_rules import row_rules

RETAINED_REQUESTS = 16
"""The number of requests that a table remembers. A request is repeated within moments, and
seldom after another one."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class Table:
    """One table. Its `id` never changes and is never reused; its name may change.

    `own` names the properties set for this table; the others come from the instance or the
    defaults. A table that is being deleted keeps its name until everything of it is gone.

    `log` distinguishes the log of its state from earlier logs, if the state was ever rebuilt;
    `logs` lists every log that a rebuild began, so that deletion finds all of them.

    `generation` counts the resets of the table, and `reset_ms` is the time of the last one:
    messages and files from before are refused. The schema has been the same since
    `schema_generation`; shards of earlier generations have none of its columns. `tree` is the id of
    the stored partition tree that the generation started with, empty if the reset kept the
    partitions. `restored` is the id of the stored record of the version that the generation
    started with, empty if it started without rows. `purged_version` is the version at which the
    last purge ended: earlier ones may have rows that it removed, and do not come back.

    `renamed_ms` is the time of the last renaming: files dropped before were for another table of
    this name. `applied_requests` holds the ids of the last requests that changed the table, newest
    last. `origins` are the tables that it was copied from, with what they had ingested,
    and the names that it had.
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
    reset_ms: int = 0
    tree: str = ""
    restored: str = ""
    purged_version: int = 0
    renamed_ms: int = 0
    applied_requests: tuple[str, ...] = ()
    origins: tuple[Origin, ...] = ()

    @property
    def state_id(self) -> str:
        """The id of the table's state. What the state stores in the data bucket has the table's
        prefix.
        """
        return f"{self.id}/{self.log}" if self.log else self.id

    def states(self) -> Iterator[Table]:
        """Yield the table once for each state that was ever begun for it, to open each one's
        store.
        """
        for log in dict.fromkeys(("", *self.logs, self.log)):
            yield replace(self, log=log)

    @property
    def files_since_ms(self) -> int:
        """The time from which files dropped under the table's name are for this table and
        generation.
        """
        return max(self.created_ms, self.reset_ms, self.renamed_ms)

    @property
    def settings(self) -> dict[str, int | str]:
        """The properties set for this table itself."""
        return {name: getattr(self.properties, name) for name in KNOWN if name in self.own}

    def with_settings(
        self, settings: Mapping[str, int | str], defaults: Mapping[str, int | str]
    ) -> Table:
        """Return the table with exactly these properties of its own, over the instance's
        defaults.
        """
        return replace(self, properties=properties_of(defaults, settings), own=frozenset(settings))


def property_sources(
    own: Container[str], defaults: Container[str]
) -> dict[str, Literal["table", "instance", "default"]]:
    """Return where the value of each property comes from: the table, the instance, or the
    default.
    """
    return {
        name: "table" if name in own else "instance" if name in defaults else "default"
        for name in KNOWN
    }


def with_applied_request(table: Table, request_id: str) -> Table:
    """Return the table with a request recorded as applied; the same table if there is no request
    id.
    """
    if not request_id:
        return table
    return replace(
        table, applied_requests=(*table.applied_requests, request_id)[-RETAINED_REQUESTS:]
    )


def merge_settings(
    kept: Mapping[str, int | str], put: Mapping[str, int | str], unset: Iterable[str]
) -> dict[str, int | str]:
    """Return `kept` with the properties in `put` changed and those in `unset` removed.

    Raises:
        InvalidRequestError: a property is in both.
    """
    away = set(unset)
    if both := sorted(away & set(put)):
        raise InvalidRequestError(f"{both[0]} cannot be set and unset at once")
    return {name: value for name, value in {**kept, **put}.items() if name not in away}


def check_change(kept: Table, changed: Table) -> None:
    """Check that a table may change in this way: fixed properties stay, and its row rules fit its
    schema.

    Raises:
        InvalidRequestError: it may not.
    """
    for name, known in KNOWN.items():
        before, after = getattr(kept.properties, name), getattr(changed.properties, name)
        if known.is_fixed and before != after:
            raise InvalidRequestError(
                f"{name} of table {kept.name!r} is {before} and cannot change",
                hint="create another table, and export this one's rows to it",
            )
    row_rules(changed.schema, changed.properties)
    bloom_columns(changed.schema, changed.properties)
    csv_dialect(changed.properties)
    check_published(changed.schema, changed.properties)


def table_not_found(name: str, tables: Iterable[Table]) -> NotFoundError:
    """Return the error that no table has this name; the hint suggests the most similar name."""
    near = get_close_matches(name, [table.name for table in tables if not table.deleting], 1)
    hint = f"did you mean {near[0]}?" if near else "`dormouse table list` shows all"
    return NotFoundError(f"there is no table {name!r}", hint=hint)


def can_be_name(name: str) -> bool:
    """Return whether a table can have this name."""
    return _NAME.fullmatch(name) is not None


def check_name(name: str) -> str:
    """Return `name` if a table can have it.

    Names are folders of the ingest bucket, so they are limited to a plain alphabet.

    Raises:
        InvalidRequestError: it cannot.
    """
    if not can_be_name(name):
        raise InvalidRequestError(
            f"a table cannot be called {name!r}",
            hint="up to 100 letters, digits, dots, dashes, underscores; first a letter or digit",
        )
    return name
