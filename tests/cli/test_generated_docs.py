"""What is documented is what the code takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.generated.docs import documents

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("path", sorted(documents()))
def test_a_document_made_from_the_code_is_up_to_date(path: str) -> None:
    kept = (DOCS / path).read_text() if (DOCS / path).exists() else ""
    assert kept == documents()[path], "run: make docs"


def test_no_schema_is_left_of_a_message_that_is_gone() -> None:
    kept = {f"messages/{path.name}" for path in (DOCS / "messages").iterdir()}
    assert kept <= set(documents())
