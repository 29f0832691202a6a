"""A change that would lose row tags or origins is asked for twice."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from dormouse.client.instance import Instance
from dormouse.errors import HiddenRowsError
from tests.unit.features.http.conftest import Api

SUM = {"aggregations": "sum(n)"}


@pytest.mark.parametrize(
    ("properties", "tags"),
    [({}, {"day": "1"}), ({"row_origin": "on"}, {}), ({}, {})],
    ids=["tags", "origin", "neither"],
)
def test_aggregations_that_take_row_tags_or_origins_are_set_only_if_that_is_said(
    tmp_path: Path, properties: dict[str, str], tags: dict[str, str]
) -> None:
    with Instance.open(tmp_path / "mice", background=False) as instance:
        handle = instance.create_table("t", "k:long, n:long", properties, row_keys=["k"])
        handle.ingest(pa.table({"k": [1, 2], "n": [1, 1]}), tags=tags).wait()
        if properties or tags:
            for ask in (
                lambda: instance.set_properties("t", SUM),
                lambda: instance.set_defaults(SUM),
                lambda: instance.apply(
                    *instance.plan_declared({"tables": [{"name": "t", "properties": SUM}]})
                ),
            ):
                with pytest.raises(HiddenRowsError):
                    ask()
            problem = Api(instance).problem("PATCH", "/tables/t", {"properties": SUM})
            assert "row tags" in problem["detail"]
        instance.set_properties("t", SUM, hide_rows=bool(properties or tags))
        assert handle.count() == 2
