"""DuckDB as statements use it: bounded, and without any way to files, networks or changes.

A process has one database for each scratch folder and bound of memory: opening one takes some
hundredths of a CPU second, a cursor on it none. Statements that run at the same time share its
memory. It is closed to the outside before it sees any text, and its settings are locked; it can
read and write in two folders of its own alone: verified shards, and what it spills.
"""

from __future__ import annotations

import atexit
import os
import re
import tempfile
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa

from dormouse.arrow.types import frame_schema
from dormouse.errors import (
    DormouseError,
    InvalidRequestError,
    InvariantError,
    LimitExceededError,
)
from dormouse.schema.types import UUID_BYTES
from dormouse.sql.expressions import quoted
from dormouse.statements.statement import first_line

THREADS = min(4, os.cpu_count() or 1)
_SETTINGS = (
    "SET TimeZone = 'UTC'",
    "SET threads = {threads}",
    "SET memory_limit = '{memory_bytes}B'",
    "SET temp_directory = '{spill}'",
    "SET allowed_directories = ['{files}']",
    "SET python_enable_replacements = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
"""One more setting between the last two could end the process, so these are made in one call."""
_UUID = re.compile(r"\bUUID\b")
_NO_COLUMN = re.compile(r'(?:Referenced column|"[^"]*" does not have a column named) "(.+?)"')
_OF_PLANNING = (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException)
_NO_RESULT = re.compile(r"\b(BIGNUM|BIT|GEOMETRY|TIME WITH TIME ZONE|UHUGEINT|VARIANT)\b")
"""Types whose values Arrow would have as something else, such as a time without its zone."""
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\w.+:-]*")
_QUOTE = re.compile(r"(?<!\w)['\"]|:")
"""Where DuckDB may begin to quote a value: a text, or the rest of a pattern."""
_CAST_COLUMN = re.compile(r"when casting from source column (\w+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Database:
    """A database without tables, and the folder of the files that it may read."""

    connection: duckdb.DuckDBPyConnection
    folder: tempfile.TemporaryDirectory[str]

    @property
    def files(self) -> Path:
        """The folder for verified shards."""
        return Path(self.folder.name) / "files"

    def close(self) -> None:
        """Close it, and remove its folder."""
        self.connection.close()
        self.folder.cleanup()


@dataclass(slots=True)
class _Databases:
    """The databases of this process."""

    opened: dict[tuple[int, Path, int], Database] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, scratch: Path, memory_bytes: int) -> Database:
        key = (os.getpid(), scratch, memory_bytes)  # a fork has its own
        with self.lock:
            found = self.opened.get(key)
            if found is None or not Path(found.folder.name).exists():
                found = self.opened[key] = _open(scratch, memory_bytes)
            return found

    def close(self) -> None:
        with self.lock:
            mine = [key for key in self.opened if key[0] == os.getpid()]
            for key in mine:
                self.opened.pop(key).close()


_DATABASES = _Databases()
# sources in Python must not outlive the connection: DuckDB reports them as leaks at the very end
atexit.register(_DATABASES.close)


def database(scratch: Path, memory_bytes: int) -> Database:
    """Return the database of this process for a scratch folder and a bound of memory."""
    return _DATABASES.get(scratch, memory_bytes)


def _open(scratch: Path, memory_bytes: int) -> Database:
    folder = tempfile.TemporaryDirectory(prefix="sql-", dir=scratch, ignore_cleanup_errors=True)
    connection = duckdb.connect()
    opened = Database(connection, folder)
    opened.files.mkdir()
    values = {
        "threads": THREADS,
        "memory_bytes": memory_bytes,
        "files": str(opened.files).replace("'", "''"),
        "spill": str(Path(folder.name) / "spill").replace("'", "''"),
    }
    connection.execute("; ".join(_SETTINGS).format(**values))
    return opened


def plan(
    cursor: duckdb.DuckDBPyConnection, sql: str, parameters: dict[str, object]
) -> tuple[duckdb.DuckDBPyRelation, list[str]]:
    """Return a query as a relation, and the types of its columns. Those of UUIDs come as bytes: as
    text they would lose their type.

    Raises:
        InvalidRequestError: a column has a type that no result has.
    """
    values = parameters or None
    found = cursor.sql(sql, params=values)
    types = [str(kind) for kind in found.types]
    for name, kind in zip(found.columns, types, strict=True):
        if unknown := _NO_RESULT.search(kind):
            raise InvalidRequestError(
                f"column {name} of the result has the type {unknown[1]}, which no result has",
                hint="CAST it, for example to VARCHAR",
            )
    if not any(map(_UUID.search, types)):
        return found, types
    columns = ", ".join(
        f"CAST(#{n} AS {_UUID.sub('BLOB', kind)}) AS {quoted(name)}"
        if _UUID.search(kind)
        else f"#{n} AS {quoted(name)}"
        for n, (name, kind) in enumerate(zip(found.columns, types, strict=True), start=1)
    )
    return cursor.sql(f"SELECT {columns} FROM ({sql})", params=values), types


def result_schema(schema: pa.Schema, types: Iterable[str]) -> pa.Schema:
    """Return the schema that rows with a schema of DuckDB's have as a result: UTC is called so,
    parts of lists have the names that Arrow gives them, and UUIDs are UUIDs.
    """
    fields = [
        pa.field(each.name, _plain(each.type, is_uuid=bool(_UUID.search(kind))))
        for each, kind in zip(schema, types, strict=True)
    ]
    return frame_schema(pa.schema(fields))


def _plain(kind: pa.DataType, *, is_uuid: bool) -> pa.DataType:
    plain = partial(_plain, is_uuid=is_uuid)
    match kind:
        case pa.TimestampType() if kind.tz is not None:
            return pa.timestamp(kind.unit, "UTC")
        case pa.MapType():
            return pa.map_(plain(kind.key_type), plain(kind.item_type))
        case pa.ListType():
            return pa.list_(plain(kind.value_type))
        case pa.StructType():
            return pa.struct([pa.field(f.name, plain(f.type)) for f in kind])
    return pa.binary(UUID_BYTES) if is_uuid and kind == pa.binary() else kind


def explained(
    error: duckdb.Error, names: Mapping[str, str], columns: Collection[str]
) -> DormouseError:
    """Return an error of DuckDB as one of ours; `columns` are those of the tables of the statement,
    `names` what references are called in it.

    One from running a plan may quote values of rows, which no error of ours has.
    """
    line = first_line(error).partition(". Use TRY")[0]  # or a setting, which is locked
    for own, name in names.items():
        line = line.replace(own, name)
    if isinstance(error, duckdb.OutOfMemoryException):
        return LimitExceededError(
            "the statement needs more memory than it may use, even with spilling",
            hint="ask for less at once, or give it more memory",
        )
    if isinstance(error, duckdb.InternalException | duckdb.FatalException):
        line = _without_values(line, str(error), columns)
        return InvariantError(f"DuckDB broke the statement off: {line[:2_000]}")
    if missing := _NO_COLUMN.search(line):
        name = missing[1]
        near = get_close_matches(name, list(columns), 1)
        hint = f"did you mean {near[0]}?" if near else "columns: " + ", ".join(columns)
        return InvalidRequestError(f"there is no column {name}", hint=hint)
    if columns and not isinstance(error, _OF_PLANNING):
        line = _without_values(line, str(error), columns)
    return InvalidRequestError(f"the statement failed: {line[:2_000]}")


def _without_values(line: str, text: str, columns: Collection[str]) -> str:
    """Return what the first line of an error's text says before it quotes anything, and the column
    that the text names.
    """
    quote, cast = _QUOTE.search(line), _CAST_COLUMN.search(text)
    said = _NUMBER.sub("…", line[: quote.start()].rstrip() + " …" if quote else line)
    column = cast[1] if cast and cast[1] in columns else ""
    return f"{said} in column {column}" if quote and column else said
