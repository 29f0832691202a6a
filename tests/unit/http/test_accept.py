"""Which media type a client prefers, by its header Accept."""

from __future__ import annotations

import pytest

from dormouse.http.messages import preferred_type

JSON, LINES, CSV = "application/json", "application/x-ndjson", "text/csv"


@pytest.mark.parametrize(
    ("accept", "preferred"),
    [
        ("", JSON),
        ("*/*", JSON),
        ("text/*", CSV),
        ("text/csv, application/json", CSV),
        ("text/csv;q=0.5, application/json", JSON),
        ("text/csv;q=0.5,application/json;q=0.4", CSV),
        ("TEXT/CSV; Q=0.9; header=present, */*;q=0.1", CSV),
        ("*/*;q=0.1, text/csv", CSV),
        ("application/json;q=0, */*", LINES),
        ("application/*;q=0, */*", CSV),
        ("application/*;q=0.2, application/json;q=0, text/*;q=0.1", LINES),
        ("image/png", None),
        ("text/csv;q=0", None),
        ("text/csv;q=high", None),
        ("text/csv;q=nan", None),
        ("text/csv;q=2", None),
        ("text/csv;q=-1", None),
        (",,;;q=,/", None),
        ("image/png;q=1, text/csv;q=0.001", CSV),
    ],
)
def test_the_most_specific_range_rates_a_type(accept: str, preferred: str | None) -> None:
    assert preferred_type({"accept": accept}, [JSON, LINES, CSV]) == preferred


def test_any_type_is_accepted_without_the_header() -> None:
    assert preferred_type({}, [CSV, JSON]) == CSV
    assert preferred_type({}, []) is None
