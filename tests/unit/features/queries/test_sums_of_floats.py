"""Sums of floats are added in another order by each way of a statement, and differ by rounding."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.schema.schema import Schema
from dormouse.statements import answering, files, running
from tests.support.world import World
from tests.unit.features.asking import asks, ended, result
from tests.unit.features.queries.test_cut_statements import whole

ROWS = 4_000
TEXT = "SELECT sum(f), sum(q), sum(v), sum(d) FROM t"
SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "k", "type": "LongType"}],
        "valueFields": [
            {"name": "f", "type": "DoubleType"},
            {"name": "q", "type": "DoubleType"},
            {"name": "v", "type": "LongType"},
            {"name": "d", "type": {"DecimalType": {"precision": 9, "scale": 2}}},
        ],
    }
)


def rows() -> pa.Table:
    """`f` has numbers of all sizes, of which most sums are rounded; `q` has quarters."""
    chosen = random.Random(5)
    numbers = range(ROWS)
    return pa.table(
        {
            "k": list(numbers),
            "f": [chosen.choice([-1, 1]) * math.exp(chosen.uniform(-20, 20)) for _ in numbers],
            "q": [chosen.randrange(-4000, 4000) / 4 for _ in numbers],
            "v": [chosen.randrange(-(10**12), 10**12) for _ in numbers],
            "d": pa.array(
                [Decimal(chosen.randrange(10**6)) / 100 for _ in numbers], pa.decimal128(9, 2)
            ),
        }
    )


@pytest.fixture(scope="module")
def sums(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("sums"))
    splits = [(900,), (1700,), (3100,)]
    world.create("t", SCHEMA, splits=splits, query_cut_bytes=1, query_task_bytes=1)
    for number, at in enumerate((0, ROWS // 2)):
        file = pa.BufferOutputStream()
        pq.write_table(rows().slice(at, ROWS // 2), file)
        world.drop(f"t/{number}.parquet", file.getvalue().to_pybytes())
    world.settle()
    yield world


def direct(world: World) -> pa.Table:
    """Sums of decimals are no part of plain statements."""
    with pytest.MonkeyPatch.context() as patched:
        patched.delattr(running, "run_in_process")
        return whole(world, TEXT.replace(", sum(d)", ""), {})


def from_files(world: World) -> pa.Table:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(answering, "answer_plain", lambda *_: None)
        return whole(world, TEXT, {})


def streamed(world: World) -> pa.Table:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(files, "LEAST_SHARE", 0)
        return from_files(world)


def cut(world: World) -> pa.Table:
    asks(world, "sums", sql=TEXT)
    world.settle()
    assert ended(world, "sums").tasks > 1
    return result(world, "sums")


@pytest.mark.parametrize("way", [direct, from_files, streamed, cut])
def test_sums_of_floats_differ_by_rounding_alone_and_others_not_at_all(
    sums: World, way: Callable[[World], pa.Table]
) -> None:
    found: list[Any] = [column[0].as_py() for column in way(sums).columns]
    cells = {name: rows()[name].to_pylist() for name in ("f", "q", "v", "d")}
    rounding = ROWS * 2**-53 * math.fsum(map(abs, cells["f"]))
    assert abs(found[0] - math.fsum(cells["f"])) <= rounding
    # no partial sum of quarters is rounded, and none of whole numbers and decimals
    exact = [math.fsum(cells["q"]), sum(cells["v"]), sum(cells["d"])]
    assert found[1:] == exact[: len(found) - 1]
