"""Words of texts: what `has` finds, and the terms that an index lists, which are never fewer."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from dormouse.arrow.words import has_words, matching, parts_of, terms_of

TEXTS = [
    "Connection refused by 10.0.0.1:80",
    "disconnection, REFUSED",
    "v1.2.3.4.5 user_id=42",
    "“quoted” word\u00a0after\u2014dash",
    "Straße ÜBER naïve",
    "tab\tline\nend",
    "",
    None,
    "ſtop K\u212a",
]


@pytest.mark.parametrize(
    ("wanted", "rows"),
    [
        ("connection", [0]),
        ("REFUSED", [0, 1]),
        ("connection refused", [0]),
        ("10.0.0.1", [0]),
        ("0.0.0", []),
        ("1.2.3.4", []),
        ("2.3.4.5", [2]),
        ("user", [2]),
        ("user_id", [2]),
        ("quoted", [3]),
        ("after", [3]),
        ("dash", [3]),
        ("strasse", []),
        ("STRAßE", [4]),
        ("über", [4]),
        ("line", [5]),
        ("stop", [8]),
        ("kk", [8]),
    ],
)
def test_words_are_found_whole_and_in_any_case(wanted: str, rows: list[int]) -> None:
    found = matching(pa.array(TEXTS), wanted).to_pylist()
    ends = pa.py_buffer(pa.array([100, 104], pa.int32()).buffers()[1])
    later = pa.StringArray.from_buffers(
        1, ends, pa.py_buffer(b"x" * 100 + b" A b")
    )  # not where its buffer begins
    assert matching(later, "b").to_pylist() == [True]
    assert found[7] is None
    assert [n for n, is_found in enumerate(found) if is_found] == rows
    assert [matching(pa.array([text], pa.string()), wanted)[0].as_py() for text in TEXTS] == found


def test_text_without_letters_and_digits_has_no_words() -> None:
    assert not any(map(has_words, ("", "--", " \t", "\u2014")))
    assert all(map(has_words, ("a", "-7-", "é", "世")))


def test_terms_are_words_and_addresses_each_once() -> None:
    texts = pa.array(["a b,A", None, "1.2.3.4.5 on 10.0.0.1.", "x10.0.0.2y 1234.1.1.1"])
    words = {term.decode() for term in terms_of(texts, "word").to_pylist()}
    assert words == {
        f" {word}"
        for word in ["a", "b", "1", "2", "3", "4", "5", "on", "10", "0", "x10", "2y", "1234"]
    }
    terms = terms_of(texts, "log").to_pylist()
    assert len(terms) == len(set(terms))
    addresses = {"1.2.3.4", "2.3.4.5", "10.0.0.1", "10.0.0.2"}
    assert {term.decode() for term in terms} - words == {f" {each}" for each in addresses}
    assert terms_of(pa.array([None, ""], pa.string()), "log").to_pylist() == []


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("tokenizer", ["word", "log"])
def test_the_terms_of_what_is_found_are_terms_of_the_text(seed: int, tokenizer: str) -> None:
    chosen = random.Random(seed)
    pieces = ["ab", "B", "1", "22", ".", " ", "-", "é", "ß", "\u00a0", "“", "1.2.3.4", "\n", "İ"]
    for _ in range(100):
        text = "".join(chosen.choices(pieces, k=8))
        start = chosen.randrange(len(text))
        wanted = text[start : start + chosen.randrange(1, 12)].upper()
        terms = set(terms_of(pa.array([text]), tokenizer).to_pylist())
        if has_words(wanted) and matching(pa.array([text]), wanted)[0].as_py():
            assert set(terms_of(pa.array([wanted]), tokenizer).to_pylist()) <= terms
        piece = text[start : start + chosen.randrange(1, 12)]
        whole, rest = parts_of(piece, is_begun=start == 0, is_ended=text.endswith(piece))
        assert set(terms_of(pa.array([whole]), tokenizer).to_pylist()) <= terms
        assert all(any(part.encode() in term for term in terms) for part in rest)
