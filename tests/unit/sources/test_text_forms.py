"""What texts are values of which type, and which value: one table for CSV and JSON. Parquet has
types of its own, and text there is text, or a UUID.
"""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.errors import RefusedSourceError
from dormouse.files.formats import read_source
from dormouse.schema.schema import parse_schema

INF = float("inf")
NOON = dt.datetime(2026, 3, 29, 12, tzinfo=dt.UTC)
NAIVE = NOON.replace(tzinfo=None)
MICROSECOND = dt.timedelta(microseconds=1)
ID = UUID("123e4567-e89b-12d3-a456-426614174000")
BARE: dict[str, tuple[dict[str, Any], str]] = {
    "boolean": ({"true": True, "false": False}, "t|T|f|1|0|yes|no|y|on"),
    "int": (
        {"1": 1, "-1": -1, "-0": 0, "2147483647": 2**31 - 1, "-2147483648": -(2**31)},
        "+1|2147483648|1.0|1.5|1e3|1_000|1,000|0x10|٣",
    ),
    "long": (
        {"9223372036854775807": 2**63 - 1, "-9223372036854775808": -(2**63)},
        "9223372036854775808|1.0|1e3|1e18|+5",
    ),
    "float": ({"1.5": 1.5, "0.1": 0.10000000149011612, "-0.0": -0.0}, "1e39|1e|0x1p3|1_0|1d|1,5"),
    "double": ({"0.1": 0.1, "1e5": 1e5, "1E+5": 1e5, "-0.0": -0.0}, "1e309|1,5|infinit"),
    "decimal(6,2)": (
        {
            **{"1.5": Decimal("1.5"), "1.500": Decimal("1.5"), "1e2": Decimal(100)},
            **{"-9999.99": Decimal("-9999.99"), "0.000": Decimal(0)},
        },
        "1.505|10000|1e-3|NaN|inf|1,5",
    ),
    "list<long>": ({"[1,2,null]": [1, 2, None], "[]": []}, '1;2|[1.5]|["1"]|{1,2}'),
    "map<string,long>": (
        {'{"a":1,"b":null}': [("a", 1), ("b", None)], "{}": []},
        '{"a":1,"a":2}|{"a":"1"}|a=1',
    ),
    "struct<x:long?,y:string?>": (
        {'{"x":1,"y":"z"}': {"x": 1, "y": "z"}, "{}": {"x": None, "y": None}},
        '{"x":1,"q":2}|[1,"z"]',
    ),
}
"""Of types whose values JSON has itself: texts of CSV that are JSON, and texts that are refused."""
QUOTED: dict[str, tuple[dict[str, Any], str]] = {
    "string": ({t: t for t in ("", " a ", "NULL", "\\N", "NaN", "ü\U0001f42d", "'x'", '"x"')}, ""),
    "double": ({"NaN": "NaN", "Infinity": INF, "-Infinity": -INF}, "infinit|1e"),
    "float": ({"NaN": "NaN", "Infinity": INF, "-Infinity": -INF}, "infinit"),
    "bytes": ({"": b"", "YQ==": b"a", "/w==": b"\xff"}, "YQ|_w==|a|zz!"),
    "date": (
        {
            **{"2026-03-29": NOON.date(), "2026-03-29T00:00:00": NOON.date()},
            **{"0001-01-01": dt.date.min, "9999-12-31": dt.date.max},
        },
        "2026-3-29|20260329|2026-02-29|10000-01-01|29.03.2026| 2026-03-29|2026-03-29Z",
    ),
    "timestamp": (
        {
            **{"2026-03-29T12:00:00Z": NOON, "2026-03-29 12:00:00": NOON, "2026-03-29T12:00": NOON},
            **{"2026-03-29T14:00:00+02:00": NOON, "2026-03-29T14:00:00+0200": NOON},
            **{"2026-03-29T12:00:00.000001000Z": NOON + MICROSECOND},
        },
        "2026-03-29T12:00:00.1234567Z|2026-03-29T24:00:00Z|2026-03-29T23:59:60Z|1743249600"
        "|2026-03-29T12:00:00Europe/Berlin",
    ),
    "timestamp_ntz": (
        {"2026-03-29T12:00:00": NAIVE, "2026-03-29 12:00:00.000001": NAIVE + MICROSECOND},
        "2026-03-29T12:00:00Z|2026-03-29T12:00:00+02:00",
    ),
    "timestamp_ns": (
        {"2026-03-29T12:00:00.000001000Z": NOON + MICROSECOND},
        "2026-03-29T12:00:00.1234567891Z|1677-01-01T00:00:00Z|2262-04-12T00:00:00Z",
    ),
    "time": (
        {"12:00": dt.time(12), "12:00:00.000001": dt.time(12, microsecond=1)},
        "12:00:00.1234567|24:00:00|23:59:60|12:00:00Z|1:00:00|120000",
    ),
    "uuid": (
        {str(ID): ID.bytes, str(ID).upper(): ID.bytes, ID.hex: ID.bytes},
        f"{{{ID}}}|urn:uuid:{ID}|123e4567",
    ),
    "decimal(6,2)": ({"1.5": Decimal("1.5"), "+1": Decimal(1), ".5": Decimal("0.5")}, "1.505|NaN"),
}
"""Of types whose values are texts in JSON, or may be."""
ONLY_CSV: dict[str, dict[str, Any]] = {
    "boolean": {"TRUE": True, "True": True, "FALSE": False},
    "int": {"007": 7},
    "double": {"nan": "NaN", "-NaN": "NaN", "Inf": INF, "-inf": -INF, "1.": 1.0, ".5": 0.5},
}
TEXT_TOO = ("decimal(6,2)",)
"""Of what JSON has itself, what its texts may be too."""
REFUSED = "refused"


def found(path: Path, kind: str) -> Any:
    try:
        batches = [*read_source(path, path.name, parse_schema(f"k: long, v: {kind}?", ["k"]))]
    except RefusedSourceError:
        return REFUSED
    (value,) = [value for batch in batches for value in batch["v"].to_pylist()]
    return "NaN" if value != value else value


def in_csv(folder: Path, kind: str, text: str) -> Any:
    body = io.StringIO()
    csv.writer(body, quoting=csv.QUOTE_ALL).writerows([["k", "v"], ["1", text]])
    (folder / "x.csv").write_text(body.getvalue())
    return found(folder / "x.csv", kind)


def in_json(folder: Path, kind: str, value: str) -> Any:
    (folder / "x.jsonl").write_text(f'{{"k": 1, "v": {value}}}\n')
    return found(folder / "x.jsonl", kind)


def in_parquet(folder: Path, kind: str, text: str) -> Any:
    pq.write_table(pa.table({"k": [1], "v": [text]}), folder / "x.parquet")
    return found(folder / "x.parquet", kind)


def same(one: Any, other: Any) -> bool:
    """Return whether values are equal; -0.0 is not 0.0 here."""
    return bool(one == other) and (not isinstance(one, float) or str(one) == str(other))


def is_json(text: str) -> bool:
    if text.strip("-") in ("NaN", "Infinity"):  # Python reads these, too
        return False
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("kind", [*{**BARE, **QUOTED}])
def test_a_text_is_the_same_value_in_each_format_or_is_refused(tmp_path: Path, kind: str) -> None:
    bare, not_bare = BARE.get(kind, ({}, ""))
    quoted, not_quoted = QUOTED.get(kind, ({}, ""))
    refused = dict.fromkeys(filter(None, f"{not_bare}|{not_quoted}".split("|")), REFUSED)
    wrong = []
    for text, value in {**bare, **quoted, **ONLY_CSV.get(kind, {}), **refused}.items():
        as_text = value if text in quoted or kind in TEXT_TOO else REFUSED
        in_files = {
            "csv": (in_csv(tmp_path, kind, text), value),
            "text of json": (in_json(tmp_path, kind, json.dumps(text)), as_text),
            "text of parquet": (
                in_parquet(tmp_path, kind, text),
                as_text if kind in ("string", "uuid") else REFUSED,
            ),
        }
        if kind in BARE and is_json(text):
            in_files["json"] = in_json(tmp_path, kind, text), value
        wrong += [(of, text, both) for of, both in in_files.items() if not same(*both)]
    assert not wrong
