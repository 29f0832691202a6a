"""DuckDB as statements use it: bounded, and without any way to files, networks or changes.

A process has one database for each scratch folder and bound of memory: opening one takes some
hundredths of a CPU second, a cursor on it none. Statements that run at the same time share its
memory. Only the last few are kept without a statement: each has threads. It is closed to the
outside before it sees any text, and its settings are locked; it can read and write in two folders
of its own alone: verified shards, and what it spills.
"""

import os
import re
import threading
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary, finalize

import duckdb
import pyarrow as pa
from duckdb.sqltypes import DuckDBPyType

from dormouse import errors
from dormouse.arrow.documents import matching
from dormouse.arrow.types import frame_schema
from dormouse.schema.types import NANOSECONDS, UUID_BYTES, FieldType
from dormouse.sql.conditions import has_words, quoted
from dormouse.statements import documents
from dormouse.statements.statement import HAS, first_line
from dormouse.system import OwnFolder

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
_NO_COLUMN = re.compile(r'(?:Referenced column|"[^"]*" does not have a column named) "(.+?)"')
_OF_PLANNING = (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException)
_NOTHING = "struct or map of nothing"
_NO_RESULT = frozenset(
    {"bignum", "bit", "geometry", _NOTHING, "time with time zone", "uhugeint", "union", "variant"}
)
"""Types that Arrow has as something else, such as a time without its zone; and those that neither
Parquet nor a table has: unions, which Arrow cannot take out of structs, and what has no members."""
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\w.+:-]*")
_QUOTE = re.compile(r"(?<!\w)['\"]|:")
"""Where DuckDB may begin to quote a value: a text, or the rest of a pattern."""
_BEYOND = "nanoseconds are compared with times of the years 1677 to 2262"
_CAST_COLUMN = re.compile(r"when casting from source column (\w+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class DuckDatabase:
    """A database without tables, and the folder of the files that it may read."""

    connection: duckdb.DuckDBPyConnection
    folder: OwnFolder

    @property
    def files(self) -> Path:
        """The folder for verified shards."""
        return Path(self.folder.name) / "files"


_OPENED: WeakValueDictionary[tuple[int, Path, int, bool], DuckDatabase] = WeakValueDictionary()
_OPENING = threading.Lock()
_LAST: deque[DuckDatabase] = deque(maxlen=4)
_INHERITED: list[object] = []
"""What a fork has of its parent: to close it would wait for threads that only the parent has, and
remove its folder."""


def database(scratch: Path, memory_bytes: int, *, spills: bool = True) -> DuckDatabase:
    """Return the database of this process for a scratch folder and a bound of memory. Values that
    are encrypted where they are stored must not be in one that spills: DuckDB writes them in plain.
    """
    key = (os.getpid(), scratch, memory_bytes, spills)  # a fork has its own
    with _OPENING:
        entry = _OPENED.get(key)
        if entry is None or not Path(entry.folder.name).exists():
            entry = _OPENED[key] = _open(scratch, memory_bytes, spills=spills)
            finalize(entry, _close, os.getpid(), entry.connection, entry.folder)
        _LAST.append(entry)
        return entry


def _close(pid: int, connection: duckdb.DuckDBPyConnection, folder: OwnFolder) -> None:
    """Close a database, and remove its folder; also as a process ends: sources must not outlive it,
    or DuckDB reports leaks at the very end.
    """
    if pid != os.getpid():
        _INHERITED.append((connection, folder))
        return
    connection.close()
    folder.cleanup()


def _open(scratch: Path, memory_bytes: int, *, spills: bool) -> DuckDatabase:
    folder = OwnFolder(prefix="sql-", dir=scratch)
    connection = duckdb.connect()
    opened = DuckDatabase(connection, folder)
    opened.files.mkdir()
    values = {
        "threads": THREADS,
        "memory_bytes": memory_bytes,
        "files": str(opened.files).replace("'", "''"),
        "spill": str(Path(folder.name) / "spill").replace("'", "''") if spills else "",
    }
    documents.register(connection)
    texts = ["VARCHAR"] * 2
    connection.create_function(HAS, _has, texts, "BOOLEAN", type="arrow")  # type: ignore[call-overload]  # no types by name in the stubs
    connection.execute("; ".join(_SETTINGS).format(**values))
    return opened


def plan(
    cursor: duckdb.DuckDBPyConnection,
    sql: str,
    parameters: dict[str, object],
    tables: Mapping[str, str],
) -> tuple[duckdb.DuckDBPyRelation, list[DuckDBPyType]]:
    """Return a query as a relation, and the types of its columns. Those of UUIDs come as bytes: as
    text they would lose their type. `tables` are the names of references, and of their tables:
    names of columns, which may hold them, say the latter.
    Raises InvalidRequestError: a column has a type that no result has.
    """
    relation = cursor.sql(sql, params=parameters or None)
    names, types = relation.columns, relation.types
    for own, table in tables.items():
        names = [name.replace(f'"{own}"', table) for name in names]
    columns = []
    for n, (name, kind) in enumerate(zip(names, types, strict=True), start=1):
        ids = set(_ids(kind))
        unknown = ids & _NO_RESULT
        if unknown:
            raise errors.InvalidRequestError(
                f"column {name} of the result has the type {min(unknown).upper()}, which no "
                "result has",
                hint="CAST it, for example to VARCHAR",
            )
        is_cast = "uuid" in ids and "tuple" not in ids  # no type of SQL is a tuple
        cell = f"CAST(#{n} AS {_bytes(kind)})" if is_cast else f"#{n}"
        columns.append(f"{cell} AS {quoted(name)}")
    if columns == [f"#{n} AS {quoted(name)}" for n, name in enumerate(relation.columns, start=1)]:
        return relation, types
    return relation.project(", ".join(columns)), types


def _parts(kind: DuckDBPyType) -> list[tuple[str, DuckDBPyType]]:
    """Return the names and the types of what a nested type holds."""
    if kind.id not in ("array", "list", "map", "struct", "tuple", "union"):
        return []
    return [(name, part) for name, part in kind.children if isinstance(part, DuckDBPyType)]


def _ids(kind: DuckDBPyType) -> Iterator[str]:
    """Yield what a type, and all in it, are called in small letters."""
    parts = [part for _, part in _parts(kind)]
    is_map, is_struct = kind.id == "map", kind.id in ("struct", "tuple")
    is_empty = (is_map and parts[0].id == "null") or (is_struct and not parts)
    yield _NOTHING if is_empty else kind.id
    for part in parts:
        yield from _ids(part)


def _bytes(kind: DuckDBPyType) -> str:
    """Return a type with BLOB in place of UUID."""
    parts = [(name, _bytes(part)) for name, part in _parts(kind)]
    match kind.id:
        case "uuid":
            return "BLOB"
        case "list":
            return f"{parts[0][1]}[]"
        case "map":
            return f"MAP({parts[0][1]}, {parts[1][1]})"
        case "struct":
            members = (f"{quoted(name)} {part}" for name, part in parts)
            return f"STRUCT({', '.join(members)})"
    return str(kind)  # the values of UUIDs in others are texts


def result_schema(schema: pa.Schema, types: Iterable[DuckDBPyType]) -> pa.Schema:
    """Return the schema that rows with a schema of DuckDB's have as a result: UTC is called so,
    parts of lists have the names that Arrow gives them, UUIDs are UUIDs, JSON documents are such.
    """
    fields = [
        pa.field(each.name, pa.json_() if str(kind) == "JSON" else _plain(each.type, kind))
        for each, kind in zip(schema, types, strict=True)
    ]
    return frame_schema(pa.schema(fields))


def _plain(kind: pa.DataType, source: DuckDBPyType) -> pa.DataType:
    parts = [part for _, part in _parts(source)]
    match kind:
        case pa.TimestampType() if kind.tz is not None:
            return pa.timestamp(kind.unit, "UTC")
        case pa.MapType():
            return pa.map_(_plain(kind.key_type, parts[0]), _plain(kind.item_type, parts[1]))
        case pa.ListType():
            return pa.list_(_plain(kind.value_type, parts[0]))
        case pa.StructType() if source.id in ("struct", "tuple"):
            members = zip(kind, parts, strict=True)
            return pa.struct([pa.field(f.name, _plain(f.type, part)) for f, part in members])
    return pa.binary(UUID_BYTES) if source.id == "uuid" and kind == pa.binary() else kind


def explained(
    error: duckdb.Error, names: Mapping[str, str], columns: Mapping[str, FieldType]
) -> errors.DormouseError:
    """Return an error of DuckDB as one of ours; `columns` are those of the tables of the statement,
    `names` what references are called in it.

    One from running a plan may quote values of rows, which no error of ours has.
    """
    line = first_line(error).partition(". Use TRY")[0]  # or a setting, which is locked
    for own, name in names.items():
        line = line.replace(own, name)
    if isinstance(error, duckdb.OutOfMemoryException):
        return errors.LimitExceededError(
            "the statement needs more memory than it may use, even with spilling; what reads "
            "encrypted columns does not spill",
            hint="ask for less at once, or give it more memory",
        )
    if isinstance(error, duckdb.InternalException | duckdb.FatalException):
        line = _without_values(line, str(error), columns)
        return errors.InvariantError(f"DuckDB broke the statement off: {line[:2_000]}")
    if match := _NO_COLUMN.search(line):
        name = match[1]
        hint = errors.did_you_mean(name, columns, "columns: " + ", ".join(columns))
        return errors.InvalidRequestError(f"there is no column {name}", hint=hint)
    if columns and not isinstance(error, _OF_PLANNING):
        line = _without_values(line, str(error), columns)
    is_conversion = isinstance(error, duckdb.ConversionException)
    hint = _BEYOND if is_conversion and NANOSECONDS & set(columns.values()) else ""
    return errors.InvalidRequestError(f"the statement failed: {line[:2_000]}", hint=hint)


def _without_values(line: str, text: str, columns: Collection[str]) -> str:
    """Return what the first line of an error's text says before it quotes anything, and the column
    that the text names.
    """
    quote, cast = _QUOTE.search(line), _CAST_COLUMN.search(text)
    said = _NUMBER.sub("…", line[: quote.start()].rstrip() + " …" if quote else line)
    column = cast[1] if cast and cast[1] in columns else ""
    return f"{said} in column {column}" if quote and column else said


def _has(texts: Any, searched: Any) -> Any:
    needles = searched.unique().to_pylist()
    if len(needles) == 1:
        return _matching(texts, needles[0])
    cells = zip(texts.to_pylist(), searched.to_pylist(), strict=True)
    return pa.array([_matching(pa.array([t]), w)[0].as_py() for t, w in cells], pa.bool_())


def _matching(texts: Any, words: str) -> Any:
    texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    if not has_words(words):
        return pa.repeat(pa.scalar(False), len(texts))
    return matching(texts.cast(pa.string()), words)
