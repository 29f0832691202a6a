"""Hostile files: each has the outcome that `hostile/cases.py` says, and nothing else."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path

import pytest

from dormouse.errors import RefusedSourceError
from dormouse.files.formats import read_source
from dormouse.schema.schema import Schema
from dormouse.schema.types import parse_type_text
from tests.unit.sources.hostile.cases import CASES, Case
from tests.unit.sources.hostile.page import PAGE, page


def schema_of(kind: str) -> Schema:
    name = {"decimal": "decimal(10,2)"}.get(kind.rstrip("?"), kind.rstrip("?"))
    value = {"name": "v", "type": parse_type_text(name).to_json(), "nullable": kind.endswith("?")}
    return Schema.from_json(
        {"rowKeyFields": [{"name": "k", "type": "LongType"}], "valueFields": [value]}
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_hostile_file_is_refused_or_means_what_it_says(tmp_path: Path, case: Case) -> None:
    local = tmp_path / "file"
    local.write_bytes(case.body)
    source = read_source(local, f"x.{case.ending}", schema_of(case.kind))
    if isinstance(case.outcome, str):
        with pytest.raises(RefusedSourceError) as refusal:
            list(source)
        assert case.outcome in refusal.value.explanation
        return
    found = [value for batch in source for value in batch.column(1).to_pylist()]
    assert len(found) == len(case.outcome)
    assert all(map(is_same, found, case.outcome)), found


def is_same(found: object, wanted: object) -> bool:
    if isinstance(found, float) and isinstance(wanted, float):
        signs = math.copysign(1, found) == math.copysign(1, wanted)
        return math.isnan(found) == math.isnan(wanted) and (
            math.isnan(found) or (found == wanted and signs)
        )
    if isinstance(found, Decimal):
        return str(found) == wanted
    return found == wanted and type(found) is type(wanted)


def test_there_are_enough_of_them_and_no_name_comes_twice() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 100


def test_the_page_beside_others_is_of_these_cases() -> None:
    assert PAGE.read_text() == page()
