"""Records, fields and quotes of CSV files: by RFC 4180, or refused with line and column."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dormouse.errors import InvalidRequestError, RefusedSourceError
from dormouse.files import text_files
from dormouse.files.text_files import read_csv
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import Primitive
from dormouse.tables.properties import CsvDialect, Properties, csv_dialect, parse_properties

KEY = Schema((Field("k", Primitive.STRING),))
TWO = Schema((Field("k", Primitive.STRING),), values=(Field("v", Primitive.STRING, True),))
LONGS = Schema((Field("k", Primitive.LONG),), values=(Field("v", Primitive.STRING, True),))


def read(
    body: str | bytes, schema: Schema = TWO, dialect: CsvDialect | None = None
) -> list[list[object]]:
    file = io.BytesIO(body.encode() if isinstance(body, str) else body)
    rows: list[list[object]] = []
    for batch in read_csv(file, schema, dialect):
        rows += [list(row.values()) for row in batch.to_pylist()]
    return rows


@contextmanager
def refused(where: str, *, hint: str = "") -> Iterator[None]:
    with pytest.raises(RefusedSourceError) as refusal:
        yield
    assert str(refusal.value).startswith(where), str(refusal.value)
    assert hint in refusal.value.hint


class Broken(Exception):
    """The model's no."""


def model(text: str) -> list[list[str | None]]:
    """Read the two columns of a file by the letters of RFC 4180, character by character."""
    records: list[list[str | None]] = []
    at = 0
    while at < len(text):
        record: list[str | None] = []
        while True:
            value: str | None = ""
            if text[at : at + 1] == '"':
                at += 1
                while text[at : at + 1] != '"' or text[at : at + 2] == '""':
                    if at >= len(text):
                        raise Broken
                    value = f"{value}{text[at]}"
                    at += 2 if text[at] == '"' else 1
                at += 1
            else:
                start = at
                while text[at : at + 1] not in ("", ",", '"', "\r", "\n"):
                    at += 1
                value = text[start:at] or None
            record.append(value)
            if text[at : at + 1] != ",":
                break
            at += 1
        ended = "\r\n" if text.startswith("\r\n", at) else text[at : at + 1]
        if ended not in ("", "\n", "\r\n"):
            raise Broken
        blank = record == [None]
        at += len(ended)
        if blank:
            continue
        if len(record) != 2 or record[0] is None:
            raise Broken
        records.append(record)
    return records


@given(
    st.lists(st.sampled_from(['"', '"', ",", "\n", "\r\n", "\r", "a", "ü", '""']), max_size=24)
    | st.lists(st.sampled_from(['"a"', ",", "\n", '"a,\n"', "b", '""', '"""a"""']), max_size=24),
    st.sampled_from([1, 2, 3, 5, 1024]),
)
@example(["a", ",", '""', "a", '"', "\n"], 1024)
@example(["a", ",", '"', "a", '"', '""', "\n"], 1024)
@example(["a", ",", '"', "\r", '"', "\n"], 1)
def test_what_is_read_is_what_the_rfc_says_or_it_is_refused(parts: list[str], block: int) -> None:
    body = "k,v\n" + "".join(parts)
    before = text_files.BLOCK_BYTES
    text_files.BLOCK_BYTES = block
    try:
        wanted = model(body)[1:]
    except Broken:
        with pytest.raises(RefusedSourceError, match=r"^line \d+"):
            read(body)
    else:
        assert read(body) == wanted
    finally:
        text_files.BLOCK_BYTES = before


def test_a_stray_quote_in_the_middle_is_refused_where_it_is() -> None:
    rows = [f"{n},text of row {n}" for n in range(1, 1001)]
    rows[499] = '500,"text of row 500'
    with refused("line 501, column 'v': the quote that opens the field is not closed"):
        read("k,v\n" + "\n".join(rows) + "\n")
    rows[499] = '500,text "of row 500'
    with refused("line 501, column 'v': a quote inside a field"):
        read("k,v\n" + "\n".join(rows) + "\n")


@pytest.mark.parametrize("record", ['"a","b"\n', '"a",\n', '"",""\n', 'a,"b""c"\n'])
def test_a_stray_quote_after_very_many_fields_in_quotes_is_refused_where_it_is(record: str) -> None:
    # in steps by the number of fields, not by its square: that would take an hour
    with refused("line 100002, column 'v': text after the quote"):
        read("k,v\n" + 100_000 * record + 'a,"x"y\n')


def test_two_stray_quotes_make_no_value_of_all_between_them() -> None:
    rows = [f"{n},text of row {n}" for n in range(1, 5001)]
    rows[499], rows[3999] = '500,"text of row 500', '4000,text of row 4000"'
    with refused("line 501, column 'v': the quoted field has more than 1,000 line ends"):
        read("k,v\n" + "\n".join(rows) + "\n")


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ('k,v\na,b"c\n', "line 2, column 'v': a quote inside a field"),
        ('k,v\na,b"\n', "line 2, column 'v': a quote inside a field"),
        ('k,v\n"a"b,c\n', "line 2, column 'k': text after the quote that closes"),
        ('k,v\na, "b"\n', "line 2, column 'v': a quote inside a field"),
        ('k,v\na,"b" \n', "line 2, column 'v': text after the quote that closes"),
        ('k,v\n"a\nb"c,d\n', "line 3, column 'k': text after the quote that closes"),
        ('k,v\nx,y\na,"b\nc\n', "line 3, column 'v': the quote that opens the field is not closed"),
        ('k,v\na,""b"\n', "line 2, column 'v': text after the quote that closes"),
        ("k,v\na,b\nc\n", "line 3: fields of the record: 1; of the file: 2"),
        ("k,v\na,b\nc,d,e\n", "line 3: fields of the record: 3; of the file: 2"),
        ("k,v\na,b\n \n", "line 3: fields of the record: 1; of the file: 2"),
        ("k,v\na,b\rc,d\n", "line 2, column 'v': a carriage return without a line feed"),
        ("k,v\ra,b\r", "line 1, column 2: a carriage return without a line feed"),
        ("k,v\na,b\r", "line 2, column 'v': a carriage return without a line feed"),
        (b"k,v\na,b\n\nc,\xff\n", "line 4, column 'v': the text is not UTF-8"),
        (b'k,v\n"a\nb",x\nc,\xff\n', "line 4, column 'v': the text is not UTF-8"),
        ('k,"v\na,b\n', "line 1, column 2: the quote that opens the field is not closed"),
        ('k,v"\na,b\n', "line 1, column 2: a quote inside a field"),
        ("", "the file is empty"),
        ("\n\n", "the file is empty"),
        ("k,v,v\n", "the file has column 'v' more than once"),
        ("k,v,v \n", "the table has no column 'v '"),
        ("k,v".encode("utf-16"), "the file is in UTF-16"),
        ("k,v\na,b\n".encode("utf-16-le"), "the table has no columns 1, 2 of the file"),
    ],
)
def test_what_is_not_well_formed_is_refused_with_its_place(body: str | bytes, where: str) -> None:
    with refused(where):
        read(body)


def test_a_value_is_refused_with_the_line_its_record_begins_in() -> None:
    body = 'k,v\n\n1,"a\nb"\n\n2,"c\r\n\r\nd"\nx,"e\nf"\n'
    with refused("line 9, column 'k': the value is not of type long"):
        read(body, LONGS)


def test_an_empty_field_is_null_and_empty_quotes_are_empty_text() -> None:
    assert read('k,v\na,\nb,""\n"",c\n') == [["a", None], ["b", ""], ["", "c"]]
    with refused("line 3, column 'k': there is no value"):
        read('k,v\n1,""\n,x\n', LONGS)
    with refused("line 2, column 'k': the value is not of type long"):
        read('k,v\n"",x\n', LONGS)


def test_line_ends_blank_lines_and_the_mark_of_utf_8() -> None:
    wanted = [["a", "b"], ["c", "d"]]
    for body in ("k,v\na,b\nc,d", "k,v\r\na,b\r\nc,d\r\n", "\ufeffk,v\na,b\r\n\n\r\nc,d\n\n\n"):
        assert read(body) == wanted
    assert read('k,v\n"a\r\nb","c\rd\n\n"\n') == [["a\r\nb", "c\rd\n\n"]]
    assert read("k,v\na,\0\n") == [["a", "\0"]]
    assert read('\ufeff"k","v"\na,b\n') == [["a", "b"]]


def test_a_mark_of_utf_8_that_begins_no_file_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read("k,v\n\ufeffa,b\n") == [["\ufeffa", "b"]]
    monkeypatch.setattr(text_files, "BLOCK_BYTES", 10)
    rows = [["\ufeffa", f"b{n}"] for n in range(30)]
    assert read("k,v\n" + "".join(f"{k},{v}\n" for k, v in rows)) == rows


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_nothing_after_a_quoted_field_is_null_also_where_the_file_ends(end: str) -> None:
    assert read(f'k,v\n"a",{end}') == [["a", None]]
    assert read(f'k,v\na,b\n"a",{end}') == [["a", "b"], ["a", None]]
    assert read(f'k,v\n"a",""{end}') == [["a", ""]]


def test_a_blank_line_in_a_file_of_one_column_is_a_null() -> None:
    assert read("k\na\nb\n", KEY) == [["a"], ["b"]]
    with refused("line 3, column 'k': there is no value"):
        read("k\na\n\nb\n", KEY)


def test_a_record_that_no_block_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "BLOCK_BYTES", 100)
    monkeypatch.setattr(text_files, "RECORD_BYTES", 1000)
    assert read(f'k,v\na,"{"x" * 900}"\nb,c\n')[1] == ["b", "c"]
    more = "c,d\n" * 200
    with refused("line 3: the record is longer than 1,000 bytes"):
        read(f"k,v\na,b\nb,{'x' * 1200}\n{more}")
    with refused("line 3, column 'v': the quote that opens the field is not closed"):
        read(f'k,v\na,b\nb,"{"x" * 1200}\n{more}')


def test_blocks_are_cut_between_records_wherever_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [[f"k{n}", f'say "{n}",\nplease\r\n' * (n % 4)] for n in range(300)]
    lines = [f'{k},"{v.replace(chr(34), chr(34) * 2)}"' for k, v in rows]
    for block in (7, 50, 999, 100_000):
        monkeypatch.setattr(text_files, "BLOCK_BYTES", block)
        assert read("k,v\n" + "\n".join(lines)) == rows


@pytest.mark.parametrize(
    ("properties", "body"),
    [
        ({"csv_separator": ";"}, "k;v\na;b,c\nd;\n"),
        ({"csv_separator": "\\t"}, "k\tv\na\tb,c\nd\t\n"),
        ({"csv_separator": "|", "csv_quote": "'"}, "k|v\n'a'|b,c\nd|\n"),
        ({"csv_quote": ""}, "k,v\na,b.c\nd,\n"),
        ({"csv_quote": "\\"}, "k,v\na,\\b,c\\\nd,\n"),
        ({"csv_header": "no"}, 'a,"b,c"\nd,\n'),
        ({"csv_null": "\\N"}, 'k,v\na,"b,c"\nd,\\N\n'),
        ({"csv_null": "NULL"}, 'k,v\na,"b,c"\nd,NULL\n'),
    ],
)
def test_properties_of_the_table_say_how_its_files_are_written(
    properties: dict[str, str], body: str
) -> None:
    dialect = csv_dialect(parse_properties(properties))
    wanted = "b.c" if not dialect.quote else "b,c"
    assert read(body, TWO, dialect) == [["a", wanted], ["d", None]]


def test_a_null_text_is_null_where_it_is_the_whole_field_and_not_quoted() -> None:
    dialect = csv_dialect(parse_properties({"csv_null": "NULL"}))
    body = 'k,v\na,NULL\nb,"NULL"\nc,NULLS\nd,\n'
    wanted = [["a", None], ["b", "NULL"], ["c", "NULLS"], ["d", ""]]
    assert read(body, TWO, dialect) == wanted
    with refused("line 2, column 'k': there is no value"):
        read("k,v\nNULL,b\n", TWO, dialect)


@pytest.mark.parametrize("quote", ["\\", "$", "&", "'"])
def test_a_carriage_return_within_any_quotes_is_text(quote: str) -> None:
    dialect = csv_dialect(parse_properties({"csv_quote": quote}))
    assert read(f"k,v\na,{quote}b\rc{quote}\n", TWO, dialect) == [["a", "b\rc"]]
    with refused("line 3, column 'v': a carriage return"):
        read(f"k,v\na,{quote}b\rc{quote}\nd,e\rf\n", TWO, dialect)


def test_without_quotes_a_quote_is_text() -> None:
    dialect = csv_dialect(parse_properties({"csv_quote": ""}))
    assert read('k,v\na",b"c\n"d,"\n', TWO, dialect) == [['a"', 'b"c'], ['"d', '"']]


def test_without_a_header_a_record_has_all_columns() -> None:
    dialect = csv_dialect(parse_properties({"csv_header": "no"}))
    assert read("", TWO, dialect) == []
    with refused("line 1: fields of the record: 1; of the file: 2"):
        read("a\n", TWO, dialect)


@pytest.mark.parametrize(
    "settings",
    [
        {"csv_separator": "ab"},
        {"csv_separator": ""},
        {"csv_separator": "\n"},
        {"csv_separator": ",\n"},
        {"csv_separator": "x"},
        {"csv_separator": "ü"},
        {"csv_quote": "''"},
        {"csv_quote": "\r"},
        {"csv_header": "maybe"},
        {"csv_null": "a\nb"},
        {"csv_separator": ";", "csv_quote": ";"},
        {"csv_null": "a,b"},
        {"csv_null": '""'},
    ],
)
def test_settings_that_mean_two_things_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(InvalidRequestError):
        csv_dialect(parse_properties(settings))


def test_the_usual_dialect_is_that_of_a_table_without_settings() -> None:
    assert csv_dialect(Properties()) == CsvDialect()


@pytest.mark.parametrize(
    ("header", "separator"), [("k;v", "';'"), ("v\tw", r"'\t'"), ("x|V|y", "'|'"), ("K; v", "';'")]
)
def test_another_separator_is_suggested(header: str, separator: str) -> None:
    with pytest.raises(RefusedSourceError, match="no column 1 of the file") as error:
        read(f"{header}\n")
    assert error.value.hint.endswith(f"set csv_separator={separator}")


def test_values_without_a_header_are_not_quoted() -> None:
    for text in ("Hazel;3\n", "Hazel,3\n", "Hazel\n"):
        with pytest.raises(RefusedSourceError) as error:
            read(text)
        assert "Hazel" not in error.value.explanation
