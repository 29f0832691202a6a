"""Schemas inferred from files: what a column is taken for, and what cannot be inferred."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.errors import InvalidRequestError, RefusedSourceError
from dormouse.files import formats
from dormouse.files.formats import infer_file, read_source
from dormouse.schema.schema import choose_schema
from dormouse.schema.types import Primitive, show_type
from dormouse.tables.properties import CsvDialect


def csv_types(tmp_path: Path, *cells: str) -> str:
    """Return the type of a column of these cells, or why it has none."""
    path = tmp_path / "rows.csv"
    path.write_text("k,v\n" + "".join(f"x,{cell}\n" for cell in cells))
    column = infer_file(path).columns[1]
    return show_type(column.type) if column.type else column.problem


def json_type(tmp_path: Path, *values: object) -> str:
    return written_json_type(tmp_path, *map(json.dumps, values))


def written_json_type(tmp_path: Path, *texts: str) -> str:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f'{{"k": 1, "v": {text}}}\n' for text in texts))
    column = infer_file(path).columns[1]
    return show_type(column.type) if column.type else column.problem


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "", "-9223372036854775808"], "long"),
        (["9223372036854775808"], "decimal(20,0)"),
        (["18446744073709551615", "-1"], "decimal(20,0)"),
        (["1", "123456789012345678901"], "decimal(38,0)"),
        (["-170141183460469231731687303715884105728"], "string"),
        (["9223372036854775807.5", "18446744073709551617"], "string"),
        (["1", "2.5", "-1e3"], "double"),
        (["NaN", "inf", "1"], "double"),
        (["nan", ""], "string"),
        (["inf", "-Infinity"], "string"),
        (["1.10", "1.100"], "string"),
        (["1.9", "1.10"], "string"),
        (["1.50", "19.90", "3", "nan"], "double"),
        (["1.0", "2.25", "-0.0"], "double"),
        (["12E3"], "string"),
        (["7", "2E5"], "string"),
        (["1.0E20", "1e+20", "1e20", "1.5e-7", "4.9E-324"], "double"),
        (["1.0", "-0"], "double"),
        (["0.30000000000000004", "1.7976931348623157e308", "5e-324"], "double"),
        (["1.000000000000000056e-01"], "double"),
        (["99999999999999999.99"], "string"),
        (["1234567890123456.78"], "string"),
        (["1234567890123456789012345678.1234567890"], "string"),
        (["1e400"], "string"),
        (["007", "8"], "string"),
        (["+41", "42"], "string"),
        (["0x1F"], "string"),
        (["true", "FALSE"], "boolean"),
        (["0", "1"], "long"),
        (["true", "1"], "string"),
        (["2024-02-29"], "date"),
        (["2023-02-29"], "string"),
        (["20240229"], "long"),
        (["2024-02-29T10:00:00Z", "2024-02-29 10:00:00+01:00"], "timestamp"),
        (["2024-02-29 10:00", "2024-02-29"], "timestamp_ntz"),
        (["2024-02-29T10:00:00Z", "2024-02-29T10:00:00"], "string"),
        (["2024-02-29T10:00:00.000000001Z"], "timestamp_ns"),
        (["2024-02-29T10:00:00.000000001", "2024-02-29"], "timestamp_ntz_ns"),
        (["10:30", "10:30:45.5"], "time"),
        (["24:30"], "string"),
        (["123e4567-e89b-12d3-a456-426614174000"], "uuid"),
        (["2024-02-29", "n/a"], "string"),
        ([" 1"], "string"),
        (['""'], "string"),
        (["", ""], "is empty in every row"),
        ([], "is empty in every row"),
    ],
)
def test_a_csv_column_has_the_narrowest_type_that_reads_all_of_its_cells(
    cells: list[str], kind: str, tmp_path: Path
) -> None:
    assert csv_types(tmp_path, *cells) == kind


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None, 2], "long"),
        ([1, 2.5], "double"),
        ([2**63], "decimal(20,0)"),
        ([1, -(2**64)], "decimal(20,0)"),
        ([10**37], "decimal(38,0)"),
        ([2**127], "no double and no decimal of 38 digits holds exactly"),
        ([2**53 + 1, 0.5], "decimal(38,1)"),
        ([2**53, 0.1, 5e-324, 1e300], "double"),
        ([True, None], "boolean"),
        (["a", ""], "string"),
        (["1", "2"], "string"),
        (["2024-02-29", None], "date"),
        (["2024-02-29T10:00:00Z"], "timestamp"),
        (["2024-02-29", "x"], "string"),
        ([[1], [], None, [None, 2.5]], "list<double>"),
        ([{"a": 1}, {"b": "x", "a": None}], "struct<a:long?,b:string?>"),
        ([[{"a": [True]}]], "list<struct<a:list<boolean>?>>"),
        ([None, None], "is null in every row"),
        ([1, "x"], "mixes numbers (line 1) and texts (line 2)"),
        ([True, 1], "mixes truth values (line 1) and numbers (line 2)"),
        ([[1, "x"]], "has arrays, and what is in them mixes numbers (line 1) and texts (line 1)"),
        ([[], [None]], "has arrays, and what is in them is null in every row"),
        ([{"a": None}], "has objects whose 'a' is null in every row"),
        ([{}], "has objects without names"),
        (json.loads("[" * 20 + "1" + "]" * 20), "nested too deep"),
    ],
)
def test_json_values_of_one_column_must_be_alike(
    values: list[object], kind: str, tmp_path: Path
) -> None:
    assert json_type(tmp_path, *values).endswith(kind)


def test_numbers_of_json_have_a_type_that_holds_each_of_them(tmp_path: Path) -> None:
    for texts, kind in {
        ("1.10", "1.100", "12E3", "-0.0"): "double",
        ("99999999999999999.99", "1"): "decimal(38,2)",
        ("1234567890123456789012345678.1234567890",): "decimal(38,10)",
        ("[99999999999999999.99]",): "list<decimal(38,2)>",
        ("99999999999999999.99", "1e300"): "no double and no decimal of 38 digits holds exactly",
        ("1e400",): "no double and no decimal of 38 digits holds exactly",
        ("1e-400",): "no double and no decimal of 38 digits holds exactly",
    }.items():
        assert written_json_type(tmp_path, *texts).endswith(kind), texts
    with pytest.raises(RefusedSourceError, match="line 1 has a number of an extreme exponent"):
        written_json_type(tmp_path, "1e99999999999999999999")


def test_a_parquet_file_says_its_types(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    schema = pa.schema(
        [
            pa.field("a", pa.int16(), nullable=False),
            ("b", pa.decimal128(12, 2)),
            ("c", pa.duration("s")),
        ]
    )
    pq.write_table(schema.empty_table(), path)
    found = infer_file(path).columns
    assert [(c.name, c.type and show_type(c.type), c.nullable) for c in found] == [
        ("a", "int", True),  # required is what happens to have no null
        ("b", "decimal(12,2)", True),
        ("c", None, True),
    ]
    assert "duration" in found[2].problem


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_what_was_inferred_reads_the_file(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"rows{suffix}.gz"
    text = "id,at,v\n1,2024-01-01T00:00:00Z,x\n2,2024-01-02T00:00:00Z,\n"
    if suffix == ".jsonl":
        text = '{"id":1,"at":"2024-01-01T00:00:00Z","v":["x"]}\n{"id":2,"at":"2024-01-01"}\n'
    path.write_bytes(gzip.compress(text.encode()))
    schema = choose_schema(infer_file(path).columns, ["id"])
    assert sum(batch.num_rows for batch in read_source(path, path.name, schema)) == 2


def test_only_the_first_rows_of_a_large_file_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "SAMPLE_ROWS", 2)
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n' * 2)
    assert infer_file(path).is_whole
    path.write_text('{"a": 1}\n' * 2 + "damaged")
    with pytest.raises(RefusedSourceError):
        infer_file(path)
    path.write_text('{"a": 1}\n' * 2 + '{"a": "x"}\n')
    found = infer_file(path)
    assert (found.rows, found.is_whole) == (2, False)


def test_a_csv_file_is_read_in_the_dialect_of_the_table(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a;b\n1;NULL\n")
    dialect = CsvDialect(separator=";", null="NULL")
    assert [c.name for c in infer_file(path, dialect).columns] == ["a", "b"]
    with pytest.raises(RefusedSourceError, match="has no header"):
        infer_file(path, CsvDialect(has_header=False))


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("rows.xml", b"a", "no known format"),
        ("rows.parquet", b"a,b", "is named .parquet but is not Parquet"),
        ("rows.csv.gz", b"a,b", "is not gzipped"),
        ("rows.csv", b'a,b\n"1', "quote"),
        ("rows.jsonl", b"", "has no rows"),
        ("rows.jsonl", b"[1]", "line 1 is not a JSON object"),
    ],
)
def test_a_file_that_cannot_be_read_says_so(
    name: str, content: bytes, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InvalidRequestError, match=reason):
        infer_file(path)


def test_no_error_quotes_a_value(tmp_path: Path) -> None:
    problems = [
        json_type(tmp_path, "SECRET", 1),
        json_type(tmp_path, {"a": "SECRET"}, ["SECRET"]),
        json_type(tmp_path, ["SECRET", 1]),
    ]
    assert all(problem and "SECRET" not in problem for problem in problems)


def test_later_blocks_of_a_file_count_as_the_first(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("k,v\n" + f"{'x' * 1000},1\n" * 5000 + "x,1.5\n")
    assert infer_file(path).columns[1].type is Primitive.DOUBLE
