"""What an engine found, held against what Dormouse reads."""

from __future__ import annotations

import datetime as dt
import math
import pickle
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather

from tests.engines.published_tables import Version

EQUAL = "equal rows"
NULL_AS_EMPTY = ("clickhouse", "pyiceberg")
"""Engines that return something empty for some lists, maps and structs that are null: PyIceberg for
those of structs.
"""
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def task_of(versions: Iterable[Version]) -> list[dict[str, Any]]:
    """Return the task to read versions."""
    return [
        {"name": v.name, "metadata": v.metadata, "at": dict(v.at), "where": v.where}
        for v in versions
    ]


def verdict(version: Version, engine: str, folder: Path) -> str:
    """Return whether an engine found the rows of a version, or its error."""
    error = folder / f"{version.name}.error"
    if error.exists():
        return error.read_text()
    found, expected = found_rows(folder / version.name), list(version.rows)
    if engine == "clickhouse":
        expected = [_in_clickhouse(row) for row in expected]
    if engine in NULL_AS_EMPTY:
        found, expected = (list(map(_without_empty, rows)) for rows in (found, expected))
    if sorted(map(repr, map(_plain, found))) == sorted(map(repr, map(_plain, expected))):
        return EQUAL
    return f"other rows: {len(found)} of {len(version.rows)}"


def found_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows that an engine found, with nanoseconds as counts, which Python's times do not
    have.
    """
    rows = Path(f"{path}.pickle")
    if rows.exists():
        return list(pickle.loads(rows.read_bytes()))
    table = feather.read_table(f"{path}.arrow")
    for number, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns":
            column = table.column(number).cast(pa.int64())
            table = table.set_column(number, field.name, column)
    return list(table.to_pylist())


def _plain(value: Any) -> Any:
    """Return a value in the one form in which all engines' values are compared."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case _ if type(value).__name__ == "Timestamp":  # of pandas: nanoseconds
            return value.value
        case dt.datetime() if value.tzinfo:
            return value.astimezone(dt.UTC).isoformat()
        case {"key": key, "value": inner, **rest} if not rest:  # an entry of a map
            return (_plain(key), _plain(inner))
        case dict():
            return {name: _plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return type(value)(map(_plain, value))
        case str() if _UUID.fullmatch(value):
            return bytes.fromhex(value.replace("-", ""))
        case _ if type(value).__name__ == "UUID":
            return value.bytes
    return value


def _in_clickhouse(value: Any) -> Any:
    """Return a value as ClickHouse has it: text is bytes, all times are in a zone, and those of day
    are counts of whole seconds.
    """
    match value:
        case str():
            return value.encode()
        case dt.datetime() if value.tzinfo is None:
            return value.replace(tzinfo=dt.UTC)
        case dt.time():
            return (value.hour * 60 + value.minute) * 60 + value.second
        case dict():
            return {name: _in_clickhouse(inner) for name, inner in value.items()}
        case list() | tuple():
            return type(value)(map(_in_clickhouse, value))
    return value


def _without_empty(value: Any) -> Any:
    """Return a value with null for each list, map or struct in it that is empty."""
    match value:
        case dict():
            inner = {name: _without_empty(each) for name, each in value.items()}
            return None if all(each is None for each in inner.values()) else inner
        case list():
            return [_without_empty(each) for each in value] or None
    return value
