"""A table as the registry knows it: name, immutable id, schema, properties, online or not."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import msgspec

from dormouse.errors import InvalidRequestError
from dormouse.model.schema import Schema

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

_CHOICES = {
    "compaction_strategy": ("size_ratio", "batch"),
    "state_store": ("s3", "dynamodb"),
    "commits": ("append", "strict"),
    "ingest_file_strategy": ("auto", "one_file_per_leaf", "one_reference_per_leaf"),
}


def _either(choices: tuple[str, ...]) -> str:
    return f"{', '.join(choices[:-1])} or {choices[-1]}"


class Properties(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What can be set for a table, with the defaults of the original where it has them.

    Sizes are bytes, times seconds; `size_ratio` is described in `policy.compaction`. `state_store`
    is where the state is kept, in objects of the data bucket (`s3`) or in items (`dynamodb`); it
    stays as it was when the table was made. `commits` are put in any order and judged in it
    (`append`), or each on the very version it was judged by before (`strict`). A compaction begins
    a new shard when one has grown to `shard_target_bytes`. An ingest writes a shard for each leaf
    (`one_file_per_leaf`), one for all leaves (`one_reference_per_leaf`), or what suits the size of
    the pieces (`auto`). `filters` and `aggregations` say which rows count and which become one.
    `max_fields` bounds how many columns the schema may grow to.
    """

    compaction_strategy: str = "size_ratio"
    compaction_files: int = 12
    compaction_size_ratio: int = 3
    compaction_jobs_per_partition: int = 2**31 - 1
    split_threshold_rows: int = 1_000_000_000
    gc_delay_seconds: int = 15 * 60
    orphan_age_seconds: int = 7 * 24 * 60 * 60
    job_patience_seconds: int = 60 * 60
    state_store: str = "s3"
    commits: str = "append"
    shard_target_bytes: int = 512 * 1024 * 1024
    ingest_file_strategy: str = "auto"
    filters: str = ""
    aggregations: str = ""
    max_fields: int = 1_000

    def __post_init__(self) -> None:
        """Refuse values that make no sense."""
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise InvalidRequestError(
                    f"{name} cannot be {getattr(self, name)!r}", hint=f"it is {_either(choices)}"
                )
        for name, least in (
            ("compaction_files", 2),
            ("compaction_size_ratio", 1),
            ("compaction_jobs_per_partition", 1),
            ("split_threshold_rows", 2),
            ("gc_delay_seconds", 0),
            ("orphan_age_seconds", 0),
            ("job_patience_seconds", 0),
            ("shard_target_bytes", 1),
            ("max_fields", 1),
        ):
            if getattr(self, name) < least:
                raise InvalidRequestError(f"{name} must be at least {least}")


@dataclass(frozen=True, slots=True)
class Table:
    """One table. `id` never changes and is never used again; names can be.

    A table being deleted keeps its name until the last of it is gone. `log` tells the log of its
    state from earlier ones, if the state was ever rebuilt.
    """

    id: str
    name: str
    schema: Schema
    properties: Properties = field(default_factory=Properties)
    online: bool = True
    deleting: bool = False
    created_ms: int = 0
    log: str = ""

    @property
    def state_id(self) -> str:
        """The id of the table's state; what it keeps in the data bucket lies below the table's."""
        return f"{self.id}/{self.log}" if self.log else self.id


def check_name(name: str) -> str:
    """Give `name` back if a table can be called so.

    Names are folders of the ingest bucket, so they are kept to a plain alphabet.

    Raises:
        InvalidRequestError: it cannot.
    """
    if not _NAME.fullmatch(name):
        raise InvalidRequestError(
            f"a table cannot be called {name!r}",
            hint="up to 100 letters, digits, dots, dashes, underscores; first a letter or digit",
        )
    return name


def parse_properties(body: object) -> Properties:
    """Build properties from parsed JSON, the defaults where it is silent.

    Raises:
        InvalidRequestError: an unknown name or a bad value; the message says which.
    """
    try:
        return msgspec.convert(body, Properties)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"bad table properties: {error}") from error
