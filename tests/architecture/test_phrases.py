"""The linter of phrases finds wrong English, and nothing in sentences that are right."""

from __future__ import annotations

import pytest

from tools.phrases import wrong_phrases


@pytest.mark.parametrize(
    "text",
    [
        "hidden from who reads",
        "Only who asked sees it",
        "the request has not the token",
        "Of a deployment, requests are signed",
        "x\n    Of --failed and --refused, several",
        "List what lies in the data bucket of no known table",
    ],
)
def test_wrong_phrases_are_found(text: str) -> None:
    assert wrong_phrases(text)


def test_right_phrases_are_none() -> None:
    text = "It is for people who read. Anybody who asks is told who asked. It has not been read."
    assert wrong_phrases(text) == []
