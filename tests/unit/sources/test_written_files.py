"""Files that pandas, Polars, DuckDB and Spark really wrote: each means what was written.

`tests/spark/written_files.py` made them; the version is in the name.
"""

from __future__ import annotations

import datetime as dt
import math
from pathlib import Path

import pytest

from dormouse.errors import RefusedSourceError
from dormouse.files.formats import read_source
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import Primitive

WRITTEN = Path(__file__).parent / "written"
FILES = sorted(path for path in WRITTEN.iterdir() if path.suffix in (".csv", ".json"))
EPOCH = next(path for path in FILES if "epoch" in path.name)
TEXTS = [path for path in FILES if path != EPOCH]
AT, UTC = Primitive.TIMESTAMP, dt.UTC
TIMES = [
    dt.datetime(2024, 2, 29, 12, tzinfo=UTC),
    dt.datetime(1969, 12, 31, 23, 59, 59, 123456, tzinfo=UTC),
    dt.datetime(2024, 2, 29, tzinfo=UTC),
]


def schema(unit: str = "", day_unit: str = "") -> Schema:
    times = [Field(name, AT, unit=unit) for name in ("naive", "utc", "off")]
    others = [
        Field("day", Primitive.DATE, unit=day_unit),
        Field("f", Primitive.DOUBLE, nullable=True),
        Field("b", Primitive.BOOLEAN, nullable=True),
        Field("s", Primitive.STRING, nullable=True),
    ]
    return Schema((Field("k", Primitive.LONG),), values=(*times, *others))


def rows(path: Path, wanted: Schema) -> dict[str, list[object]]:
    (batch,) = read_source(path, path.name, wanted)
    return batch.to_pydict()


def test_all_four_wrote_files_in_both_formats() -> None:
    found = {(path.name.partition("-")[0], path.suffix) for path in FILES}
    libraries = ("duckdb", "pandas", "polars", "spark")
    assert found == {(name, ending) for name in libraries for ending in (".csv", ".json")}


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_what_a_library_wrote_is_what_is_read(path: Path) -> None:
    found = rows(path, schema())
    times = TIMES
    if "spark" in path.name:  # it writes milliseconds
        times = [time.replace(microsecond=time.microsecond // 1000 * 1000) for time in TIMES]
    assert found["naive"] == found["utc"] == found["off"] == times
    assert found["day"] == [time.date() for time in TIMES]
    assert found["f"] == [1.5, -0.0, None]
    if "iso" not in path.name:  # pandas writes 0.0 in JSON
        assert math.copysign(1, found["f"][1]) == -1  # type: ignore[arg-type]
    assert found["b"] == [True, False, None]
    assert found["s"] == ["a", 'say "a, b"\nc', None]


def test_the_milliseconds_of_pandas_are_refused_until_the_schema_says_what_they_are() -> None:
    for unit in ("", "milliseconds"):
        with pytest.raises(RefusedSourceError, match="line 1, column '(naive|day)'") as refusal:
            rows(EPOCH, schema(unit))
        assert "numbers need a unit" in refusal.value.hint
    with pytest.raises(RefusedSourceError, match="line 1, column 'day'"):
        rows(EPOCH, schema("milliseconds", "days"))  # pandas writes dates as milliseconds, too
