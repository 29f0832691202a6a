"""What conditions find in exported files and published tables, asked of engines: the rows that
Dormouse finds, or what the engine itself means by the comparison. Row groups are of two rows, so
that bounds and pages are used.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from dormouse.arrow.types import arrow_schema
from dormouse.client.instance import Instance
from dormouse.files import results
from dormouse.schema.schema import parse_schema
from dormouse.shards import parquet
from tests.engines import conditions_reader
from tests.engines.conditions_reader import CONDITIONS, UTC_NOON, sql
from tests.engines.environment import PYTHON
from tests.support.waiting import LIMIT_SECONDS

INF, NAN = math.inf, math.nan
SCHEMA = parse_schema(
    "id: long, d: double?, f: float?, s: string?, l: long?, n: decimal(30, 5)?, t: timestamp?, "
    "ntz: timestamp_ntz?, day: date?, b: bytes?, o: boolean?",
    ["id"],
)
FLOATS = [-INF, -1.5, -0.0, 0.0, 1.5, 2.0, INF, NAN, None, NAN]
TEXTS = ["", "a", "ab", "z", "ü", "\ud7ff", "\ue000", "\U0001f42d", None, "Z"]
LONGS = [-(2**63), -1, 0, 2**53, 2**53 + 1, 2**63 - 1, None, 1, 2, 3]
DECIMALS = [-150000, 150000, 149999, 150001, 1234567890123456789012345, 1234567890123456789012344]
DECIMALS += [0, None, -(10**25) + 1, 200000]
BYTES = [b"", b"\0", b"\xff", b"\xff\0", b"a", None, b"\x80", b"\xfe\xff", b"\xff\xff", b"z"]
MICROSECOND = dt.timedelta(microseconds=1)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
TIMES = [UTC_NOON - MICROSECOND, UTC_NOON, UTC_NOON + MICROSECOND, EPOCH - 1_000_001 * MICROSECOND]
TIMES += [EPOCH, EPOCH.replace(year=1582), None, EPOCH.replace(year=9999), UTC_NOON]
TIMES += [EPOCH - 1_000_000 * MICROSECOND]
DAYS = [None if time is None else time.date() for time in TIMES]
ROWS: list[dict[str, Any]] = [
    {
        **{"id": n, "d": FLOATS[n], "f": FLOATS[n], "s": TEXTS[n], "l": LONGS[n], "t": TIMES[n]},
        **{"ntz": TIMES[n] and TIMES[n].replace(tzinfo=None), "day": DAYS[n], "b": BYTES[n]},
        **{"n": None if DECIMALS[n] is None else Decimal(DECIMALS[n]).scaleb(-5)},
        **{"o": (True, False, None)[n % 3]},
    }
    for n in range(10)
]
NAN_IS_NOTHING = {
    **{"d = NaN": [], "d <> NaN": [0, 1, 2, 3, 4, 5, 6, 7, 9], "d < NaN": []},
    **{"d > 1.5": [5, 6], "d >= infinity": [6], "d >= 0, of -0.0": [2, 3, 4, 5, 6]},
    **{"f >= NaN, of floats": [], "f > 1.5, of floats": [5, 6]},
}
"""What is found where NaN equals nothing and is above nothing, as in the standard of floats."""
NO_NAN = "Cannot create expression literal from NaN"
OTHERWISE: Mapping[str, Mapping[str, list[int] | str]] = {
    "duckdb": {},
    "polars": {},
    "datafusion": {"n > 25 digits": [4, 5]},  # a number with a fraction is a double in its SQL
    "pyarrow": NAN_IS_NOTHING,
    "pyiceberg": {
        **NAN_IS_NOTHING,
        **{name: NO_NAN for name, (_, _, value) in CONDITIONS.items() if value != value},
        "n = 1.50": "Could not convert 1.50 into a decimal(30, 5)",
    },
}
"""What an engine finds that is not what Dormouse finds."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the exported files, the published metadata, and what Dormouse finds."""
    root = tmp_path_factory.mktemp("conditions") / "mice"
    with pytest.MonkeyPatch.context() as patch, closing(Instance.open(root, background=False)) as i:
        for module, name in (
            (results, "ROW_GROUP_ROWS"),
            (parquet, "FIRST_ROW_GROUP_ROWS"),
            (parquet, "MAX_ROW_GROUP_ROWS"),
        ):
            patch.setattr(module, name, 2)
        table = i.create_table("t", SCHEMA, {"iceberg": "on"})
        table.ingest(pa.Table.from_pylist(ROWS, arrow_schema(SCHEMA)))
        i.wait()
        table.export(to="out").wait()
        found = {
            name: table.query(where=sql(asked).replace("+00:00'", "'")).read_all()["id"].to_pylist()
            for name, asked in CONDITIONS.items()
        }
        files = root / "exports" / "out" / "*.parquet"
        yield str(files), table.iceberg.show().metadata, found


@pytest.mark.parametrize("engine", OTHERWISE)
def test_an_engine_finds_the_rows_that_dormouse_does_or_what_it_means_by_the_words(
    engine: str, made: tuple[str, str, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    files, metadata, ours = made
    if engine == "pyiceberg":
        assert PYTHON.exists(), "the engines are not installed: make .venv/engines/.installed"
        command = [PYTHON, conditions_reader.__file__, engine, metadata]
        said = subprocess.check_output(command, text=True, timeout=LIMIT_SECONDS)
    else:
        conditions_reader.main(engine, files)
        said = capsys.readouterr().out
    found = json.loads(said)["found"]
    for name, expected in {**ours, **OTHERWISE[engine]}.items():
        is_refused = isinstance(expected, str)
        assert expected in found[name] if is_refused else found[name] == expected, (engine, name)
