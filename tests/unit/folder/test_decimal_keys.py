"""Tables whose rows are found by decimals, as those of other systems are: through every door."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.errors import InvalidRequestError, RefusedSourceError

SCHEMA = "id: decimal(12,2), part: decimal(38,0), n: long"
KEYS = {"row_keys": ["id"], "sort_keys": ["part"]}
COUNTS = [-(10**12) + 1, -250, -1, 0, 1, 100, 149, 150, 151, 200, 250, 10**12 - 1]
PARTS = [Decimal(-(2**63) - 1), Decimal(0), Decimal(10**38 - 1)]
"""Whole numbers on both sides of those that have 64 bits."""


def number(count: int) -> Decimal:
    return Decimal(count).scaleb(-2)


def rows(counts: Sequence[int]) -> pa.Table:
    cells = [(number(n), part, n) for n in counts for part in PARTS]
    ids, parts, numbers = zip(*cells, strict=True)
    return pa.table(
        {
            "id": pa.array(ids, pa.decimal128(12, 2)),
            "part": pa.array(parts, pa.decimal128(38, 0)),
            "n": pa.array(numbers, pa.int64()),
        }
    )


def table_of(instance: Instance) -> TableHandle:
    """Return a table with rows of all keys, in two files and four partitions."""
    table = instance.create_table(
        "t",
        SCHEMA,
        {"iceberg": "on", "bloom_columns": "id, part"},
        ["-1", Decimal("1.5"), 2],
        **KEYS,
    )
    for half in range(2):
        table.ingest(rows(COUNTS[half::2])).wait()
    return table


def found(table: TableHandle, **asked: object) -> list[int]:
    return table.query(**asked).to_arrow()["n"].to_pylist()[:: len(PARTS)]  # type: ignore[arg-type]


CONDITIONS = {
    "id = 1.5": [150],
    "id = 1.505": [],
    "id < 1.495": COUNTS[: COUNTS.index(150)],
    "id > 9999999999.98": [10**12 - 1],
    "id BETWEEN 1.485 AND 1.505": [149, 150],
    "id IN (1, 1.5, 1.511, 2.0)": [100, 150, 200],
    "id >= CAST(2 AS DECIMAL(5, 0)) AND id < 2.51": [200, 250],
    "CAST(id AS DOUBLE) = 1.5": [150],
}


def test_rows_are_found_by_decimals_wherever_they_are(tmp_path: Path) -> None:
    with Instance.open(tmp_path / "mice", background=False) as instance:
        table = table_of(instance)
        for _ in range(2):
            assert found(table) == COUNTS
            assert found(table, exact=["1.50", 2, Decimal("-2.5")]) == [-250, 150, 200]
            assert found(table, ranges=[("-0.01", "1.50")]) == [-1, 0, 1, 100, 149]
            for condition, expected in CONDITIONS.items():
                assert found(table, where=condition) == expected, condition
                said = instance.sql(f"SELECT n FROM t WHERE {condition} ORDER BY id, part")
                assert said.to_arrow()["n"].to_pylist()[:: len(PARTS)] == expected, condition
            for part in PARTS:
                assert table.count(exact=("1.5", part)) == 1
                assert table.count(exact={"id": Decimal("1.5"), "part": int(part)}) == 1
            assert table.count([(("1.5", PARTS[1]), ("1.5", PARTS[2]))]) == 1
            instance.folder.finish(60)  # what is found is the same once all is compacted
        ends = instance.sql("SELECT min(id), max(id) FROM t").to_arrow().to_pylist()
        assert [*ends[0].values()] == [number(COUNTS[0]), number(COUNTS[-1])]
        points = [each.min for each in table.partitions()][1:]
        assert points == [(Decimal("-1.00"),), (Decimal("1.50"),), (Decimal("2.00"),)]
        assert table.check().findings == ()
        assert table.iceberg.check() == []


def test_rows_are_deleted_and_purged_by_decimals(tmp_path: Path) -> None:
    with Instance.open(tmp_path / "mice", background=False) as instance:
        table = table_of(instance)
        everything = [(n, part) for n in COUNTS for part in PARTS]

        def left() -> list[tuple[int, Decimal]]:
            return [(row["n"], row["part"]) for row in table.query().to_arrow().to_pylist()]

        table.delete(keys=["1.5", ("2.5", PARTS[0]), number(COUNTS[-1])])
        gone = {(n, part) for n in (150, COUNTS[-1]) for part in PARTS} | {(250, PARTS[0])}
        assert left() == [row for row in everything if row not in gone]
        table.delete(where="id < -0.005 AND part <= 0")
        gone |= {(n, part) for n, part in everything if n < 0 and part <= 0}
        assert left() == [row for row in everything if row not in gone]
        table.purge(keys=["2.5", 0]).wait()
        table.purge(where="id = 1.51").wait()
        gone |= {(n, part) for n, part in everything if n in (250, 0, 151)}
        assert left() == [row for row in everything if row not in gone]


def test_frames_of_any_decimals_that_fit_are_taken_and_no_number_is_rounded(tmp_path: Path) -> None:
    with Instance.open(tmp_path / "mice", background=False) as instance:
        table = instance.create_table("t", SCHEMA, **KEYS)
        part, n = [Decimal(1)], [7]
        wide = pa.array([Decimal("7.000")], pa.decimal256(60, 3))
        frames = (
            pa.table({"id": wide, "part": [1], "n": n}),
            pl.DataFrame({"id": [Decimal("7.0")], "part": part, "n": n}),
            pd.DataFrame({"id": [Decimal(7)], "part": part, "n": n}),
        )
        for frame in frames:
            table.ingest(frame).wait()
        assert table.count(exact=("7.00", 1)) == table.count() == len(frames)
        for fine in (pa.array([Decimal("2.405")]), pa.array([Decimal("1e10")]), pa.array([2.405])):
            with pytest.raises(RefusedSourceError):
                table.ingest(pa.table({"id": fine, "part": part, "n": n})).wait()
        assert table.count() == len(frames)


@pytest.mark.parametrize("kind", ["float", "double", "boolean"])
def test_what_has_no_one_order_is_still_no_key(tmp_path: Path, kind: str) -> None:
    with (
        Instance.open(tmp_path / "mice", background=False) as instance,
        pytest.raises(InvalidRequestError, match="cannot be a key"),
    ):
        instance.create_table("t", f"id: {kind}", row_keys=["id"])
