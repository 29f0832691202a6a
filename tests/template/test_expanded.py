"""A change of the template that changes a deployment is seen as such, however it is written."""

from __future__ import annotations

import json

import pytest

from tests.template.expanded import FILE, VARIANTS, expanded, written


@pytest.fixture(scope="module")
def entries() -> dict[str, dict[str, object]]:
    return expanded()


def test_the_template_expands_to_what_was_reviewed(entries: dict[str, dict[str, object]]) -> None:
    reviewed = json.loads(FILE.read_text())
    for variant in VARIANTS:
        found, expected = entries[variant], reviewed[variant]
        assert found.keys() == expected.keys(), "run: make expanded, and review the change"
        for key, entry in found.items():
            assert entry == expected[key], f"{variant}, {key}: run: make expanded, and review"


def test_the_file_is_written_as_it_is_made(entries: dict[str, dict[str, object]]) -> None:
    assert FILE.read_text() == written(entries), "run: make expanded"
