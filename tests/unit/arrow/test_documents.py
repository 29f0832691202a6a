"""JSON documents: what is stored of them, what is refused, and what is at a path."""

from __future__ import annotations

import json
import random
from decimal import Decimal

import pyarrow as pa
import pytest

from dormouse.arrow import documents
from dormouse.arrow.documents import ABSENT, document, holds, typed, typed_columns, values_at
from dormouse.schema.types import Primitive

EXACT = [
    b"9007199254740993",
    b"1.50",
    b"1e400",
    b"-0.0",
    b"1E+2",
    b"12345678901234567890123456789012345678901234567890.10",
    b'{"b":1,"a":2,"":3,"a.b":4}',
    b'"\\u0041\\ud83d\\ude00 \\u0000"',
    '"é 𝄞"'.encode(),
    b"[]",
    b"{}",
    b"null",
    b'[[[[{"x":[null,true,false]}]]]]',
]


@pytest.mark.parametrize("text", EXACT)
def test_a_document_is_stored_as_it_was_given(text: bytes) -> None:
    assert document(text) == text


def test_only_white_space_between_tokens_is_left_out() -> None:
    given = b' { "b" : 1.50 ,\t"a b": [ 1 , "x  y\\n" ] }\r\n'
    assert document(given) == b'{"b":1.50,"a b":[1,"x  y\\n"]}'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "not one JSON document"),
        (b"{} {}", "not one JSON document"),
        (b"1 x", "not one JSON document"),
        (b"{'a': 1}", "not one JSON document"),
        (b"[1,]", "not one JSON document"),
        (b"01", "not one JSON document"),
        (b'"a\nb"', "not one JSON document"),
        (b"\xef\xbb\xbf{}", "not one JSON document"),
        (b'"\xff"', "not UTF-8"),
        (b"NaN", "no number"),
        (b'{"a":[-Infinity]}', "no number"),
        (b'{"a":1,"a":2}', "twice"),
        (b'[{"x":{"a":1,"b":2,"\\u0061":3}}]', "twice"),
        (b'{"a":1,"a":"\\u0022:"}', "twice"),
        (b'{"a":1,"a":"\\"\\u003A"}', "twice"),
        (b'"\\ud800"', "surrogate"),
        (b'{"\\udc00x":1}', "surrogate"),
        (b'["\\ud800","\\udc00"]', "surrogate"),
        (b"[" * 101 + b"]" * 101, "deeper"),
        (b"[" * 100_000 + b"]" * 100_000, "deeper"),
        (b"1" * 1_001, "digits"),
        (b"1e1000000", "exponent"),
        (b'{"a":1e-99999999999999999999}', "exponent"),
    ],
)
def test_what_is_no_document_is_refused_without_quoting_it(text: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as refused:
        document(text)
    assert text[:40].decode(errors="replace") not in str(refused.value) or len(text) < 10


def test_a_document_may_nest_a_hundred_deep_and_brackets_in_texts_do_not_count() -> None:
    deep = b"[" * 100 + b"]" * 100
    text = b'["' + b"[{" * 200 + b'\\"[",1]'
    assert (document(deep), document(text)) == (deep, text)


def test_a_document_has_a_longest_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_BYTES", 10)
    assert document(b'"12345678"') == b'"12345678"'
    with pytest.raises(ValueError, match="longer"):
        document(b'"123456789"')


def test_a_path_leads_through_names_and_places_from_zero() -> None:
    texts = ['{"a":{"b":[10,{"c.d":null}]}}', '{"a":[1]}', "[5]", None, '{"a":{"0":7}}']
    paths = [("a", "b", 0), ("a", "b", 1, "c.d"), (0,), ("a", 0), ("a", "b", 2), ()]
    found = values_at(texts, paths)
    assert found[0] == [10, ABSENT, ABSENT, ABSENT, ABSENT]
    assert found[1] == [None, ABSENT, ABSENT, ABSENT, ABSENT]
    assert found[2] == [ABSENT, ABSENT, 5, ABSENT, ABSENT]
    assert found[3] == [ABSENT, 1, ABSENT, ABSENT, ABSENT]
    assert found[4] == [ABSENT] * 5
    assert found[5][3] is ABSENT


@pytest.mark.parametrize(
    ("op", "value", "constants", "expected"),
    [
        ("=", 5, [Decimal("5.0")], True),
        ("=", 2**53 + 1, [Decimal(2**53)], False),
        ("=", Decimal("1e400"), [Decimal("1e400")], True),
        ("=", Decimal("0.1"), [Decimal("0.10")], True),
        ("=", Decimal("-0.0"), [Decimal(0)], True),
        ("=", "5", [Decimal(5)], False),
        ("<>", "5", [Decimal(5)], True),
        ("=", True, [Decimal(1)], False),
        ("=", None, [Decimal(1)], False),
        ("<>", None, [Decimal(1)], True),
        ("<", "a", [Decimal(5)], False),
        (">=", "a", [Decimal(5)], False),
        ("<", "Z", ["a"], True),
        ("IN", 2, ["2", Decimal(2)], True),
        ("IN", [2], ["2", Decimal(2)], False),
        ("=", ABSENT, [Decimal(1)], None),
        ("<>", ABSENT, [Decimal(1)], None),
        ("IS DISTINCT FROM", ABSENT, [Decimal(1)], True),
        ("IS NOT DISTINCT FROM", ABSENT, [Decimal(1)], False),
        ("IS DISTINCT FROM", "1", [Decimal(1)], True),
        ("IS NOT DISTINCT FROM", 1, [Decimal(1)], True),
    ],
)
def test_a_value_is_compared_exactly_and_with_its_own_kind_alone(
    op: str, value: object, constants: list[object], expected: bool | None
) -> None:
    assert holds(op, value, constants) is expected


def test_whole_numbers_of_a_column_are_those_of_64_bits_however_they_are_written() -> None:
    texts = ["5", "5.0", "5e0", "5.5", "9223372036854775807", "9223372036854775808", '"5"', "true"]
    values = values_at([*texts, "null", "1e400", "-0.0", "0e30"], [()])[0]
    expected = [5, 5, 5, None, 2**63 - 1, None, None, None, None, None, 0, 0]
    assert typed(values, Primitive.LONG).to_pylist() == expected


def _value(chosen: random.Random, depth: int) -> object:
    kind = chosen.randrange(4 if depth > 2 else 12)
    if kind == 0:
        return chosen.choice([None, True, False])
    if kind == 1:
        return chosen.choice([0, -5, 2**63 - 1, -(2**63), 2**63, 2**70, 10**300])
    if kind == 2:
        return chosen.choice([1.5, 5.0, 1e300, -0.0])
    if kind == 3:
        return chosen.choice(["", "x", 'é\n\0"\\', "2026-01-01", "5", "𝄞", "null"])
    if kind < 6:
        return [_value(chosen, depth + 1) for _ in range(chosen.randrange(3))]
    names = chosen.sample(["a", "b", "c.d", "", 'é"', "x y"], chosen.randrange(4))
    return {name: _value(chosen, depth + 1) for name in names}


@pytest.mark.parametrize("seed", range(60))
def test_shapes_read_the_same_values_as_whole_documents(seed: int) -> None:
    chosen = random.Random(seed)
    shape = [_value(chosen, 3) for _ in range(4)]
    if seed % 2:  # alike, as most columns are
        made: list[object] = [
            {"a": {"b": shape[0], 'é"': _value(chosen, 1)}, "": shape[1], "n": {"m": shape[2]}}
            for _ in range(20)
        ]
    else:
        made = [_value(chosen, 0) for _ in range(20)]
    texts = [
        document(json.dumps(each, ensure_ascii=chosen.random() < 0.5).encode()).decode()
        for each in made
    ]
    column = pa.array([*texts, None], pa.large_string())
    kinds = [Primitive.LONG, Primitive.STRING, Primitive.BOOLEAN]
    wanted = [
        (path, chosen.choice(kinds)) for path in [("a", "b"), ("",), ("n", "m"), ('é"',), ("b",)]
    ]
    for some in ([each] for each in wanted), [wanted]:
        for asked in some:
            values = values_at(column.to_pylist(), [path for path, _ in asked])
            for (found, is_whole), (_, kind), cells in zip(
                typed_columns(column, asked), asked, values, strict=True
            ):
                assert found.equals(typed(cells, kind))
                numbers = [c for c in cells if type(c) in (int, Decimal)]
                if kind is Primitive.LONG:
                    lost = len(numbers) - sum(v is not None for v in found.to_pylist())
                    assert is_whole == (lost == 0)
