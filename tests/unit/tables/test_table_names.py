"""A name of a table is a plain word: it is a folder, a part of paths and messages, and is shown."""

from __future__ import annotations

import pytest

from dormouse.errors import InvalidRequestError
from dormouse.tables.table import check_name


@pytest.mark.parametrize("name", ["flights", "A", "2026", "a.b-c_d", "a" * 100])
def test_plain_words_are_names(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "a\\b",
        "-rf",
        ".hidden",
        "_x",
        "a b",
        "a\n",
        "a\0b",
        "a\x1b[2J",
        "fl\u0456ghts",  # a Cyrillic letter that looks like an i
        "\ufb02ights",  # fl as one character
        "flights\u200b",  # a space without width
        "\u202estqgilf",  # written from right to left
        "１",
        "a" * 101,
        "<b>a</b>",
        "a'--",
        "${jndi}",
        "%2e%2e",
        "name#x",
    ],
)
def test_what_climbs_hides_or_looks_like_another_is_no_name(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="cannot be called"):
        check_name(name)
