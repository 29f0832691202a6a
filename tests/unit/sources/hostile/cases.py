"""Hostile CSV and JSON files as a table: what is wrong, the bytes, and what must become of them.

Each file has a key `k` of whole numbers and a column `v` of the type named. The outcome is a part
of the reason of the refusal, or the values of `v`. `peers.py` asks others about the same files.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """One file. `outcome` is a reason, or a list of values."""

    name: str
    ending: str
    kind: str
    body: bytes
    outcome: str | list[object]


def _csv(name: str, kind: str, body: str | bytes, outcome: str | list[object]) -> Case:
    return Case(name, "csv", kind, body if isinstance(body, bytes) else body.encode(), outcome)


def _json(name: str, kind: str, body: str | bytes, outcome: str | list[object]) -> Case:
    return Case(name, "json", kind, body if isinstance(body, bytes) else body.encode(), outcome)


def _cell(name: str, kind: str, cell: str, outcome: str | list[object]) -> Case:
    return _csv(name, kind, f"k,v\n1,{cell}\n", outcome)


def _value(name: str, kind: str, value: str, outcome: str | list[object]) -> Case:
    return _json(name, kind, f'{{"k":1,"v":{value}}}\n', outcome)


def _thousand(at: int, line: str, more: dict[int, str] | None = None) -> str:
    lines = [f"{n},text {n}" for n in range(1, 1001)]
    for number, text in {at: line, **(more or {})}.items():
        lines[number - 1] = text
    return "k,v\n" + "\n".join(lines) + "\n"


_OPEN = "the quote that opens the field is not closed"
_INSIDE = "a quote inside a field that does not begin with one"
_AFTER = "text after the quote that closes the field"
_FIELDS = "fields of the record: "
_STRUCTURE = [
    _csv("stray quote opens row 500 of 1,000", "string", _thousand(500, '500,"text'), _OPEN),
    _csv("stray quote within row 500 of 1,000", "string", _thousand(500, '500,te"xt'), _INSIDE),
    _csv(
        "stray quotes in rows 5 and 900, with text between",
        "string",
        _thousand(5, '5,"text', {900: '900,"text'}),
        _AFTER,
    ),
    _cell("text after a closing quote", "string", '"a"b', _AFTER),
    _cell("blank before a quote", "string", ' "a"', _INSIDE),
    _cell("quote escaped by a backslash", "string", r'"a\"b"', _AFTER),
    _csv("end of file inside quotes", "string", 'k,v\n1,"a', _OPEN),
    _csv("a field too few", "string", "k,v\n1,a\n2\n", _FIELDS + "1"),
    _csv("a field too many", "string", "k,v\n1,a\n2,b,c\n", _FIELDS + "3"),
    _csv("trailing separators", "string", "k,v\n1,a,\n2,b,\n", _FIELDS + "3"),
    _csv("line end inside quotes", "string", 'k,v\n1,"a\r\nb"\n', ["a\r\nb"]),
    _csv("lone CR between records", "string", "k,v\n1,a\r2,b\n", "a carriage return"),
    _csv("lone CRs as line ends", "string", "k,v\r1,a\r", "a carriage return"),
    _csv("LF and CRLF mixed", "string", "k,v\r\n1,a\n2,b\r\n", ["a", "b"]),
    _csv("blank lines", "string", "k,v\n\n1,a\n\n", ["a"]),
    _csv("line of one blank", "string", "k,v\n1,a\n \n", _FIELDS + "1"),
    _csv("NUL in text", "string", "k,v\n1,a\0b\n", ["a\0b"]),
    _csv("invalid UTF-8", "string", b"k,v\n1,a\xff\n", "the text is not UTF-8"),
    _csv("UTF-16 with mark", "string", "k,v\n1,a\n".encode("utf-16"), "in UTF-16"),
    _csv("UTF-16 without mark", "string", "k,v\n1,a\n".encode("utf-16-le"), "no columns 1, 2"),
    _csv("mark of UTF-8", "string", "\ufeffk,v\n1,a\n", ["a"]),
    _csv("name twice in the header", "string", "k,v,v\n1,a,b\n", "'v' more than once"),
    _csv("column missing", "string", "k\n1\n", "no column 'v'"),
    _csv("column unknown", "string", "k,v,w\n1,a,b\n", "no column 'w'"),
    _csv("header in capitals", "string", "K,V\n1,a\n", "no columns 'K', 'V'"),
    _csv("no header", "string", "1,a\n2,b\n", "no columns 1, 2"),
    _csv("empty file", "string", "", "the file is empty"),
    _csv("only a header", "string", "k,v\n", []),
    _csv("empty and empty quotes", "string?", 'k,v\n1,\n2,""\n', [None, ""]),
    _cell("blanks around text", "string", " a ", [" a "]),
    _cell("the word NULL", "string?", "NULL", ["NULL"]),
    _cell("the word NA", "string?", "NA", ["NA"]),
]
_CELLS = [
    _cell("thousands separated", "int", '"1,000"', "not of type int"),
    _cell("leading zeros", "int", "007", [7]),
    _cell("hexadecimal", "int", "0xFFFFFFFF", "not of type int"),
    _cell("exponent for an int", "int", "1e5", "not of type int"),
    _cell("float for an int", "int", "1.0", "not of type int"),
    _cell("half for an int", "int", "1.5", "not of type int"),
    _cell("blank before an int", "int", " 1", "not of type int"),
    _cell("plus before an int", "int", "+1", "not of type int"),
    _cell("minus zero as int", "int", "-0", [0]),
    _cell("underscore in an int", "int", "1_000", "not of type int"),
    _cell("Arabic digit", "int", "٣", "not of type int"),
    _cell("empty quotes for an int", "int?", '""', "not of type int"),
    _cell("2³¹ as int", "int", "2147483648", "not of type int"),
    _cell("2⁶³ as long", "long", "9223372036854775808", "not of type long"),
    _cell("100 digits as long", "long", "1" * 100, "not of type long"),
    _cell("NaN for a long", "long?", "NaN", "not of type long"),
    _cell("2⁵³+1 as double", "double", "9007199254740993", "not of type double"),
    _cell("2²⁴+1 as float", "float", "16777217", "not of type float"),
    _cell("25 digits of a fraction", "double", "0.1000000000000000000000001", [0.1]),
    _cell("1e400 as double", "double", "1e400", "not of type double"),
    _cell("1e-400 as double", "double", "1e-400", "not of type double"),
    _cell("1e39 as float", "float", "1e39", "not of type float"),
    _cell("inf", "double", "inf", [float("inf")]),
    _cell("nan with a payload", "double", "nan(12)", "not of type double"),
    _cell("decimal comma", "double", '"1,5"', "not of type double"),
    _cell("digits beyond a decimal", "decimal", "1.005", "not of type decimal"),
    _cell("digits before a decimal", "decimal", "123456789012.5", "not of type decimal"),
    _cell("60 zeros after a decimal", "decimal", "1." + "0" * 60, ["1.00"]),
    _cell("True", "boolean", "True", [True]),
    _cell("1 for a boolean", "boolean", "1", "not of type boolean"),
    _cell("yes for a boolean", "boolean", "yes", "not of type boolean"),
    _cell("30 February", "date", "2024-02-30", "not of type date"),
    _cell("American date", "date", "02/03/2024", "not of type date"),
    _cell("date without dashes", "date", "20240229", "not of type date"),
    _cell("time of day in a date", "date", "2024-02-29 12:00:00", "not of type date"),
    _cell("year 12024", "timestamp", "12024-01-01T00:00:00Z", "not of type timestamp"),
    _cell("24:00", "timestamp", "2024-02-29T24:00:00Z", "not of type timestamp"),
    _cell("leap second", "timestamp", "2016-12-31T23:59:60Z", "not of type timestamp"),
    _cell("nanoseconds", "timestamp", "2024-02-29T12:00:00.123456789", "not of type timestamp"),
    _cell("milliseconds as a number", "timestamp", "1709208000000", "not of type timestamp"),
    _cell("zone by name", "timestamp", "2024-02-29 12:00:00 Europe/Paris", "not of type timestamp"),
]
_JSON = [
    _json("a name twice", "int", '{"k":1,"v":1,"v":2}\n', "a name twice"),
    _json("a name twice, once escaped", "int", '{"k":1,"v":1,"\\u0076":2}\n', "a name twice"),
    _value("10,000 nested lists", "int", "[" * 10_000 + "]" * 10_000, "line 1"),
    _value("lone surrogate", "string", r'"\ud800"', "line 1 is not a JSON object"),
    _json("invalid UTF-8 in JSON", "string", b'{"k":1,"v":"\xff"}\n', "line 1"),
    _json("comment", "int", '{"k":1,/* one */"v":1}\n', "line 1 is not a JSON object"),
    _json("trailing comma", "int", '{"k":1,"v":1,}\n', "line 1 is not a JSON object"),
    _json("array at the top", "int", '[{"k":1,"v":1}]\n', [1]),
    _json("object over two lines", "int", '{"k":1,\n"v":1}\n', "line 1 is not a JSON object"),
    _json("two objects in a line", "int", '{"k":1,"v":1}{"k":2,"v":2}\n', "line 1 is not a JSON"),
    _json("single quotes", "int", "{'k':1,'v':1}\n", "line 1 is not a JSON object"),
    _value("text for an int", "int", '"1"', "not of type int"),
    _value("number for text", "string", "1", "not of type string"),
    _value("float for an int in JSON", "int", "1.0", "not of type int"),
    _value("exponent for an int in JSON", "int", "1e2", "not of type int"),
    _value("2⁶³ as long in JSON", "long", "9223372036854775808", "not of type long"),
    _value("2⁵³+1 as double in JSON", "double", "9007199254740993", "not of type double"),
    _value("1e400 in JSON", "double", "1e400", "not of type double"),
    _value("NaN as a word", "double", "NaN", "line 1 is not a JSON object"),
    _value("NaN as text", "double", '"NaN"', [float("nan")]),
    _value("minus zero", "double", "-0", [-0.0]),
    _value("leading zero", "int", "01", "line 1 is not a JSON object"),
    _value("true for an int", "int", "true", "not of type int"),
    _value("1 for a boolean in JSON", "boolean", "1", "not of type boolean"),
    _value("text for a boolean", "boolean", '"true"', "not of type boolean"),
    _value("null for what cannot be", "int", "null", "there is no value"),
    _value("milliseconds in JSON", "timestamp", "1709208000000", "not of type timestamp"),
    _value("digits as text for a time", "timestamp", '"1709208000"', "not of type timestamp"),
    _value("digits beyond a decimal in JSON", "decimal", "1.005", "not of type decimal"),
    _value("object for text", "string", '{"a":1}', "not of type string"),
    _json("name unknown", "int", '{"k":1,"v":1,"w":1}\n', "no column 'w'"),
    _json("name missing", "int", '{"k":1}\n', "there is no value"),
    _json("mark of UTF-8 before JSON", "int", '\ufeff{"k":1,"v":1}\n', [1]),
    _json("JSON in UTF-16", "int", '{"k":1,"v":1}\n'.encode("utf-16"), "in UTF-16"),
    _json("empty file of JSON", "int", "", []),
    _json("NUL after the object", "int", '{"k":1,"v":1}\0\n', "line 1 is not a JSON object"),
]
CASES = [*_STRUCTURE, *_CELLS, *_JSON]
