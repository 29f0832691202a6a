"""Words of texts: what `has` finds, and the terms that an index lists, which are never fewer."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dormouse.arrow.documents import cut, matching
from dormouse.sql.conditions import has_words

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
    assert not any(map(has_words, ("", "--", " \t", "\u2014", "½²", "_\ufeff")))
    assert all(map(has_words, ("a", "-7-", "é", "世", "½ª", "\uff10")))


def test_texts_are_cut_to_words() -> None:
    texts = pa.array(["a b,A", None, "1.2 on x10_é.", "É\u00a0\U0001f600ok"])
    (pieces,) = cut(texts)
    words = ["a", "b", "1", "2", "on", "x10", "é", "\U0001f600ok"]
    assert {each.decode() for each in pieces.letters.split()} == set(words)
    spaces = [n for n, byte in enumerate(pieces.letters) if byte == 32]
    assert pieces.spaces.to_pylist() == spaces
    assert (spaces[0], spaces[-1]) == (0, len(pieces.letters) - 1)
    assert not [*cut(pa.array([None, ""], pa.string()))]
