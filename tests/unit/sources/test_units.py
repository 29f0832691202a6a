"""Numbers for times and dates: refused unless the schema says what they count."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dormouse.errors import InvalidRequestError, RefusedSourceError
from dormouse.files.casting import parse_text_times
from dormouse.files.formats import read_source
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import FieldType, ListType, MapType, Member, Primitive, StructType

AT, DAY = Primitive.TIMESTAMP, Primitive.DATE
MICROSECOND = dt.timedelta(microseconds=1)
NOON_US = 1_709_208_000_000_000


def schema_of(kind: FieldType, unit: str = "") -> Schema:
    return Schema((Field("k", Primitive.LONG),), values=(Field("v", kind, True, unit=unit),))


def read(folder: Path, name: str, body: bytes | str, schema: Schema) -> list[object]:
    local = folder / "local"
    local.write_bytes(body.encode() if isinstance(body, str) else body)
    (batch,) = read_source(local, name, schema)
    column = batch.column(1)
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64()).to_pylist()
    return column.cast(pa.int32()).to_pylist() if pa.types.is_date(column.type) else column


def files(text: str) -> list[tuple[str, str]]:
    return [("x.csv", f"k,v\n1,{text}\n"), ("x.json", f'{{"k":1,"v":{text}}}\n')]


@pytest.mark.parametrize(
    ("kind", "unit", "text", "number"),
    [
        (AT, "seconds", "1709208000", NOON_US),
        (AT, "milliseconds", "1709208000000", NOON_US),
        (AT, "microseconds", str(NOON_US), NOON_US),
        (AT, "nanoseconds", f"{NOON_US}000", NOON_US),
        (AT, "microseconds", "-9223372036854775808", -(2**63)),
        (AT, "seconds", "-1", -1_000_000),
        (DAY, "days", "19782", 19782),
        (DAY, "days", "-2147483648", -(2**31)),
    ],
)
def test_a_number_counts_what_the_schema_says(
    tmp_path: Path, kind: FieldType, unit: str, text: str, number: int
) -> None:
    for name, body in files(text):
        assert read(tmp_path, name, body, schema_of(kind, unit)) == [number], name


@pytest.mark.parametrize(
    ("kind", "unit", "text"),
    [
        (AT, "seconds", "9223372036855"),
        (AT, "seconds", "1709208000.0"),
        (AT, "seconds", "1.7e9"),
        (AT, "nanoseconds", "1709208000000000001"),
        (AT, "microseconds", "9223372036854775808"),
        (DAY, "days", "2147483648"),
        (DAY, "days", "0.5"),
    ],
)
def test_a_number_that_would_be_rounded_or_overflow_is_refused(
    tmp_path: Path, kind: FieldType, unit: str, text: str
) -> None:
    for name, body in files(text):
        with pytest.raises(RefusedSourceError, match="line [12], column 'v'"):
            read(tmp_path, name, body, schema_of(kind, unit))


@pytest.mark.parametrize("kind", [AT, DAY])
@pytest.mark.parametrize("text", ["7", "1709208000000", "-1", "1.5", "1e3", "20240229"])
def test_a_number_without_a_unit_is_refused_with_what_to_do(
    tmp_path: Path, kind: FieldType, text: str
) -> None:
    for name, body in files(text):
        with pytest.raises(RefusedSourceError, match="column 'v'") as refusal:
            read(tmp_path, name, body, schema_of(kind))
        assert "numbers need a unit" in refusal.value.hint
        assert ("milliseconds" in refusal.value.hint) == (kind is AT)
        assert text not in refusal.value.explanation


def test_text_of_digits_is_no_number_in_json(tmp_path: Path) -> None:
    with pytest.raises(RefusedSourceError, match="line 1, column 'v'"):
        read(tmp_path, "x.json", '{"k":1,"v":"1709208000"}', schema_of(AT, "seconds"))


def test_texts_and_numbers_may_be_mixed(tmp_path: Path) -> None:
    schema = schema_of(AT, "seconds")
    noon = [NOON_US, None, NOON_US]
    body = "k,v\n1,1709208000\n2,\n3,2024-02-29 12:00\n"
    assert read(tmp_path, "x.csv", body, schema) == noon
    lines = '{"k":1,"v":1709208000}\n{"k":2}\n{"k":3,"v":"2024-02-29 12:00"}'
    assert read(tmp_path, "x.json", lines, schema) == noon


@pytest.mark.parametrize(
    ("unit", "stored", "number"),
    [("milliseconds", pa.int64(), 5000), ("seconds", pa.uint16(), 5_000_000)],
)
def test_whole_numbers_of_parquet_count_it_too(
    tmp_path: Path, unit: str, stored: pa.DataType, number: int
) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"k": [1, 2], "v": pa.array([5, None], stored)}), sink)
    body = sink.getvalue().to_pybytes()
    assert read(tmp_path, "x.parquet", body, schema_of(AT, unit)) == [number, None]
    with pytest.raises(RefusedSourceError, match="column 'v' is u?int") as refusal:
        read(tmp_path, "x.parquet", body, schema_of(AT))
    assert "unit" in refusal.value.hint


def test_numbers_of_parquet_that_overflow_are_refused(tmp_path: Path) -> None:
    for unit, kind, bad in (("seconds", AT, 2**62), ("nanoseconds", AT, 1), ("days", DAY, 2**31)):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"k": [1, 2], "v": [0, bad]}), sink)
        with pytest.raises(RefusedSourceError, match="row 2 of row group 1, column 'v'"):
            read(tmp_path, "x.parquet", sink.getvalue().to_pybytes(), schema_of(kind, unit))


def test_a_unit_holds_at_any_depth(tmp_path: Path) -> None:
    members = StructType((Member("at", ListType(AT)), Member("by", MapType(AT, DAY), True)))
    value = '{"at":[1,null,"1970-01-01T00:00:02Z"],"by":{"3":"1970-01-05"}}'
    body = f'{{"k":1,"v":{value}}}\n{{"k":2,"v":{{"at":[]}}}}'
    column = read(tmp_path, "x.json", body, schema_of(members, "seconds"))
    texts = str(column)
    assert all(f"00:00:0{n}" in texts for n in (1, 2, 3))
    assert "1970-01-05" in texts
    with pytest.raises(RefusedSourceError, match="line 1, column 'v'"):
        read(tmp_path, "x.json", body, schema_of(members))
    with pytest.raises(RefusedSourceError, match="line 1, column 'v'"):
        read(tmp_path, "x.json", body.replace('"1970-01-05"', "4"), schema_of(members, "seconds"))


@pytest.mark.parametrize(
    ("kind", "unit"),
    [(AT, "days"), (DAY, "seconds"), (AT, "fortnights"), (Primitive.LONG, "seconds")],
)
def test_a_unit_that_the_type_cannot_have_is_refused(kind: FieldType, unit: str) -> None:
    with pytest.raises(InvalidRequestError, match="'v' cannot have numbers of the unit"):
        Schema.from_json(
            {
                "rowKeyFields": [{"name": "k", "type": "LongType"}],
                "valueFields": [{"name": "v", "type": kind.to_json(), "unit": unit}],
            }
        )


def test_a_unit_is_part_of_the_schema_s_json() -> None:
    schema = schema_of(AT, "milliseconds")
    assert Schema.loads(schema.dumps()) == schema
    assert '"unit":"milliseconds"' in schema.dumps()
    assert "unit" not in schema_of(AT).dumps()


CLOCKS = st.sampled_from(
    ["", "T12", " 12:30", "T12:30:45", " 12:30:45.5", "T12:30:45.123456", " 12:30:45.123456000"]
)
ZONES = st.sampled_from(["", "Z", " UTC", "+00", "-0530", "+05:30", " +05:30", "-23:59"])
ODD = ["2024-02-29", "2024-02-29 12:00 UTC", "1970-01-01T00:00:00.000000000Z", "2024-02-29T12-05"]


@given(st.dates().map(str), CLOCKS, ZONES)
def test_a_time_means_the_same_beside_any_other_and_what_python_says(
    day: str, clock: str, zone: str
) -> None:
    text = day + clock + (zone if clock else "")
    alone = parse_text_times(pa.array([text]), AT, "").cast(pa.int64())
    beside = [parse_text_times(pa.array([text, odd]), AT, "").cast(pa.int64())[0] for odd in ODD]
    assert {*beside} == {*alone}
    plain = text.replace("123456000", "123456").replace(" UTC", "Z").replace(" +", "+")
    time = dt.datetime.fromisoformat(plain)
    time = time if time.tzinfo else time.replace(tzinfo=dt.UTC)
    assert alone.to_pylist() == [(time - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // MICROSECOND]


@given(st.text("0123456789-:+.TZ UTC", max_size=30), st.sampled_from([AT, DAY]))
@example("2024-02-29T24:00:00Z", AT)
@example("2024-02-29T12:00:00.Z", AT)
@example("2024-02-29T12:00:00+24:00", AT)
@example("2024-02-29T12:00:00.1234567", AT)
@example("2024-02-29T12:00:00.0000000001", AT)
@example("2024-02-29T01:00:00", DAY)
@example("2024-02-29T00:00:00+01:00", DAY)
@example("2024-02-29T00:00:00.000Z", DAY)
def test_a_text_is_a_time_beside_any_other_or_beside_none(text: str, kind: Primitive) -> None:
    found = set()
    for others in ([], *([odd] for odd in (ODD if kind is AT else ["2024-02-29 00:00", None]))):
        try:
            found.add(str(parse_text_times(pa.array([text, *others], pa.string()), kind, "")[0]))
        except (pa.ArrowException, ValueError):
            found.add("refused")
    assert len(found) == 1


@pytest.mark.parametrize("clock", ["T00:00:00.5", " 00:00:01", "T12:00", " 00:00+01:00"])
def test_a_date_with_a_time_that_is_not_its_midnight_is_refused(tmp_path: Path, clock: str) -> None:
    for name, body in (
        ("x.csv", f"k,v\n1,2024-02-29{clock}\n"),
        ("x.json", f'{{"k":1,"v":"2024-02-29{clock}"}}\n'),
    ):
        with pytest.raises(RefusedSourceError, match="line [12], column 'v'"):
            read(tmp_path, name, body, schema_of(DAY))


@given(
    st.lists(
        st.tuples(
            st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9998, 1, 1)),  # noqa: DTZ001  # local
            st.integers(-18 * 3600 + 1, 18 * 3600 - 1),
        ),
        min_size=1,
    )
)
def test_offsets_with_seconds_are_those_of_local_mean_time(
    times: list[tuple[dt.datetime, int]],
) -> None:
    """Spark writes 1880-01-02T03:04:05.000-04:56:02 in the zone of New York."""
    zoned = [
        time.replace(tzinfo=dt.timezone(dt.timedelta(seconds=offset))) for time, offset in times
    ]
    cells = pa.array([*(time.isoformat() for time in zoned), "1880-01-02T03:04:05", None])
    found = parse_text_times(cells, Primitive.TIMESTAMP, "").to_pylist()
    assert found == [*zoned, dt.datetime(1880, 1, 2, 3, 4, 5, tzinfo=dt.UTC), None]
