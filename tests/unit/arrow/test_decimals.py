"""Decimal numbers in ingested files: exactly what is written, or refused; never another number."""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dormouse.errors import RefusedSourceError
from dormouse.files.formats import read_source
from dormouse.schema.schema import Schema

_DIGITS = st.text("0159", max_size=60) | st.sampled_from(["0" * 58, "9" * 38, "1" + "0" * 57])


@st.composite
def numbers(draw: st.DrawFn) -> str:
    """Return decimal numbers, also very long ones and ones far from one."""
    whole, part = draw(_DIGITS), draw(_DIGITS)
    exponent = draw(st.just("") | st.integers(-130, 130).map(lambda e: f"e{e}"))
    sign = draw(st.sampled_from(["", "-"]))
    return f"{sign}{whole or '0'}.{part or '0'}{exponent}"


def value_of(text: str, precision: int, scale: int) -> Fraction | None:
    """Return the number if such a decimal holds it; None if not."""
    number = Fraction(text)
    scaled = abs(number) * 10**scale
    return number if scaled.denominator == 1 and scaled < 10**precision else None


def read(folder: Path, name: str, body: str, precision: int, scale: int) -> Fraction | None:
    """Return the decimal in a file of one row; None if the file is refused."""
    kind = {"DecimalType": {"precision": precision, "scale": scale}}
    schema = Schema.from_json(
        {
            "rowKeyFields": [{"name": "k", "type": "LongType"}],
            "valueFields": [{"name": "d", "type": kind}],
        }
    )
    local = folder / "local"
    local.write_text(body)
    try:
        (batch,) = read_source(local, name, schema)
    except RefusedSourceError:
        return None
    return Fraction(batch.column(1)[0].as_py())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("decimals")


@given(numbers(), st.integers(1, 38), st.integers(0, 38))
@example("1." + "0" * 58, 18, 0)  # Arrow reads 0
@example("7e-66", 30, 27)  # Arrow reads 0
@example("1" + "0" * 59 + ".0", 10, 1)  # Arrow reads 0
@example("11.0", 38, 38)  # Arrow reads 0.79…
@example("1.5", 3, 1)
def test_a_decimal_is_what_is_written_or_refused(
    folder: Path, text: str, precision: int, scale: int
) -> None:
    precision = max(precision, scale)
    wanted = value_of(text, precision, scale)
    assert read(folder, "x.csv", f"k,d\n1,{text}\n", precision, scale) == wanted
    assert read(folder, "x.json", f'{{"k":1,"d":"{text}"}}\n', precision, scale) == wanted


@st.composite
def stored_decimals(draw: st.DrawFn) -> tuple[pa.DataType, Decimal]:
    """Return a decimal type of Arrow's, and a number of just its digits."""
    precision = draw(st.integers(1, 76) | st.just(38))
    scale = draw(st.integers(0, precision))
    kind = pa.decimal128 if precision <= 38 else pa.decimal256
    digits = draw(st.integers(-(10**precision) + 1, 10**precision - 1) | st.integers(-99, 99))
    return kind(precision, scale), Decimal(digits % 10**precision).scaleb(-scale, Context(prec=76))


@given(stored_decimals(), st.integers(1, 38), st.integers(0, 38))
@example((pa.decimal128(38, 0), Decimal(368)), 38, 38)  # Arrow gives 0.49…
def test_a_decimal_of_a_parquet_file_is_what_it_was_or_refused(
    folder: Path, stored: tuple[pa.DataType, Decimal], precision: int, scale: int
) -> None:
    kind, number = stored
    precision = max(precision, scale)
    columns = {"k": pa.array([1]), "d": pa.array([number], kind)}
    columns["l"] = pa.array([[number, None]], pa.list_(kind))
    pq.write_table(pa.table(columns), folder / "stored")
    wanted = {"DecimalType": {"precision": precision, "scale": scale}}
    fields = [
        {"name": "d", "type": wanted},
        {"name": "l", "type": {"ListType": {"elementType": wanted}}},
    ]
    schema = Schema.from_json(
        {"rowKeyFields": [{"name": "k", "type": "LongType"}], "valueFields": fields}
    )
    try:
        (batch,) = read_source(folder / "stored", "x.parquet", schema)
    except RefusedSourceError as refusal:
        # Fewer than all that fit may be taken: of types that have more digits than 76 in common.
        fits = value_of(f"{number:f}", precision, scale) is not None
        assert not fits or kind.precision - kind.scale + scale > 76, refusal
    else:
        assert batch.to_pylist() == [{"k": 1, "d": number, "l": [number, None]}]


@pytest.mark.parametrize("text", ["1e-999999999", "1e999999999", "0e-999999999999999999999"])
@pytest.mark.parametrize("form", ["k,d\n1,{}\n", '{{"k":1,"d":"{}"}}\n', '{{"k":1,"d":{}}}\n'])
def test_an_exponent_beyond_all_bounds_crashes_nothing(folder: Path, text: str, form: str) -> None:
    """Over the first of these Arrow ended the process."""
    name = "x.csv" if form.startswith("k") else "x.json"
    assert read(folder, name, form.format(text), 38, 2) in (None, 0)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-inf", "1_000", " 1", "0x1", "", "٣", "1e"])
def test_what_is_no_decimal_is_refused(folder: Path, text: str) -> None:
    assert read(folder, "x.csv", f'k,d\n1,"{text}"\n', 38, 2) is None


def test_decimals_within_other_values_are_held_to_the_same(folder: Path) -> None:
    inner = {"DecimalType": {"precision": 18, "scale": 0}}
    kinds: dict[str, object] = {
        "l": {"ListType": {"elementType": inner}},
        "m": {"MapType": {"keyType": "StringType", "valueType": inner}},
        "b": {"MapType": {"keyType": "BooleanType", "valueType": inner}},
        "s": {"StructType": {"fields": [{"name": "x", "type": inner, "nullable": True}]}},
    }
    number = "1." + "0" * 58
    schema = Schema.from_json(
        {
            "rowKeyFields": [{"name": "k", "type": "LongType"}],
            "valueFields": [{"name": name, "type": kind} for name, kind in kinds.items()],
        }
    )
    local = folder / "nested"
    local.write_text(
        f'{{"k":1,"l":[{number},null],"m":{{"a":{number}}},"b":[[true,{number}]],'
        f'"s":{{"x":{number}}}}}\n'
    )
    (batch,) = read_source(local, "x.json", schema)
    one = Decimal(1)
    assert batch.to_pylist() == [
        {"k": 1, "l": [one, None], "m": [("a", one)], "b": [(True, one)], "s": {"x": one}}
    ]
    local.write_text('{"k":1,"l":[1e-999999999],"m":{},"b":[],"s":{}}\n')
    with pytest.raises(RefusedSourceError, match="'l'"):
        list(read_source(local, "x.json", schema))
