"""The first rows by a column are found by statistics, and are those that a sort of all finds."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dormouse.client import Instance
from dormouse.query import top_rows
from dormouse.schema.schema import Field, Primitive
from dormouse.shards.format import row_groups
from dormouse.shards.writing import parquet
from tests.support.depth import examples

ROWS = 900
INFINITY = float("inf")
COLUMNS = (
    "k:long, f:double?, g:float?, z:double, nan:double?, i:int?, l:long, s:string?, day:date?, "
    "at:timestamp?, ok:boolean?, e:long?"
)


def rows() -> pa.Table:
    """Rows whose values are clustered, so that statistics leave out most row groups."""
    chosen = random.Random(11)

    def often(value: object, of: object = None) -> object:
        return of if chosen.random() < 0.1 else value

    near = [n // 30 * 37 % 29 + chosen.randrange(6) for n in range(ROWS)]
    epoch = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    columns = {
        "k": list(range(ROWS)),
        "f": [often(often(n - 7.5, INFINITY), -INFINITY if n == 9 else None) for n in near],
        "g": [often(n / 4) for n in near],
        "z": [chosen.choice([0.0, -0.0]) for _ in near],
        "nan": [float("nan") if n == 33 else float(n) for n in near],
        "i": [None if n < 4 else n for n in near],
        "l": [n * 10**14 for n in near],
        "s": [often("é" * (n % 3) + chr(97 + n % 26)) for n in near],
        "day": [often(epoch.date() + dt.timedelta(days=n)) for n in near],
        "at": [often(epoch - dt.timedelta(seconds=n)) for n in near],
        "ok": [n % 2 == 0 for n in near],
        "e": [n % 3 for n in range(ROWS)],
    }
    types = {"g": pa.float32(), "i": pa.int32(), "at": pa.timestamp("us", "UTC")}
    return pa.table({name: pa.array(cells, types.get(name)) for name, cells in columns.items()})


@pytest.fixture(scope="module")
def mice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """Shards of three leaves, of a column that was added later too, with small row groups."""
    folder = tmp_path_factory.mktemp("top") / "mice"
    with pytest.MonkeyPatch.context() as patched, Instance.open(folder, background=False) as mice:
        patched.setattr(parquet, "FIRST_ROW_GROUP_ROWS", 16)
        patched.setattr(row_groups, "ROW_GROUP_BYTES", 1024)
        made = {"row_keys": ["k"], "split_points": [200, 600]}
        table = mice.create_table("t", COLUMNS, **made)
        table.ingest(rows().slice(0, 500))
        table.ingest(rows().slice(500))
        table.alter(add=[Field("late", Primitive.LONG, nullable=True)])
        mice.wait()
        table = mice.table("t")
        table.ingest(pa.table({"k": [1, 700], "late": [5, 3], "z": [1.5, -1.5], "l": [0, 0]}))
        mice.wait()
        yield mice


@pytest.fixture(autouse=True)
def however_much_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_rows, "MOST_SHARE", 1)


def both_ways(mice: Instance, text: str) -> tuple[pa.Table, pa.Table, bool]:
    """Return the rows by statistics and by a sort of all; and whether the first way was taken."""
    taken: list[bool] = []
    real = top_rows.top_rows

    def recorded(*arguments: object) -> pa.Table | None:
        found = real(*arguments)  # type: ignore[arg-type]
        taken.append(found is not None)
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(top_rows, "top_rows", recorded)
        found = mice.sql(text).to_arrow()
        patched.setattr(top_rows, "top_rows", lambda *_: None)
        return found, mice.sql(text).to_arrow(), any(taken)


wheres = st.sampled_from(
    ["", "WHERE i > 20", "WHERE k >= 100 AND k < 230", "WHERE s < 'c'", "WHERE f IS NULL", "WHERE k"
     " IN (3, 500)", "WHERE k < 0", "WHERE i + k > 300", "WHERE ok"]
)  # fmt: skip
names = ["f", "g", "z", "nan", "i", "l", "s", "day", "at", "ok", "e", "late"]
directions = st.sampled_from(["", "DESC", "NULLS FIRST", "DESC NULLS LAST", "ASC NULLS LAST"])
more = st.sampled_from(["", ", k", ", k DESC", ", at DESC, k"])
counts = st.sampled_from([1, 2, 7, 30, 400])


@settings(
    deadline=None,
    max_examples=examples(40),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.sampled_from(names), directions, more, wheres, counts)
@example("z", "DESC", "", "", 500)
@example("z", "", ", k", "", 500)
@example("nan", "DESC", "", "", 2)
@example("f", "DESC", ", k", "", 30)
@example("i", "NULLS FIRST", ", k", "", 7)
@example("e", "DESC NULLS LAST", ", k", "", 2)
@example("e", "DESC NULLS LAST", ", k DESC", "", 2)
@example("late", "DESC NULLS LAST", "", "", 7)
@example("late", "DESC NULLS LAST", "", "WHERE k < 300", 1)
def test_the_first_rows_are_those_of_a_sort_of_all(
    mice: Instance, column: str, direction: str, then: str, where: str, rows: int
) -> None:
    text = f"SELECT k, {column} AS x, at FROM t {where} ORDER BY {column} {direction}{then} LIMIT "
    found, wanted, _ = both_ways(mice, f"{text}{rows}")
    assert found.schema.equals(wanted.schema, check_metadata=True)
    # of equal rows, any can be the last; DataFusion sorts zeros by their signs or does not
    compared = ["k", "x"] if then and column != "z" else ["x"]
    both = [
        repr(table.select(compared).to_pylist()).replace("-0.0", "0.0") for table in (found, wanted)
    ]
    assert both[0] == both[1]


@pytest.mark.parametrize(
    ("column", "is_taken"),
    [*((name, True) for name in ("f", "g", "i", "l", "s", "day", "at", "late")), ("nan", False),
     ("ok", False), ("f + 1", False), ("lower(s)", False)],
)  # fmt: skip
def test_statistics_are_used_where_they_bound_all_values(
    mice: Instance, column: str, is_taken: bool
) -> None:
    assert both_ways(mice, f"SELECT k FROM t ORDER BY {column} DESC LIMIT 3")[2] == is_taken


def test_few_row_groups_are_read_for_the_first_rows(mice: Instance) -> None:
    found = mice.sql("SELECT k, l FROM t ORDER BY l DESC LIMIT 3")
    assert found.to_arrow().column("l").to_pylist() == sorted(rows()["l"].to_pylist())[:-4:-1]
    least = mice.sql("SELECT k, l FROM t WHERE k < 3000 AND l + 0 >= 0 ORDER BY k + l")
    least.to_arrow()
    assert found.reads.row_groups * 4 < least.reads.row_groups


def test_what_would_read_most_row_groups_is_left_to_files(
    mice: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(top_rows, "MOST_SHARE", 8)
    assert both_ways(mice, "SELECT k, l FROM t ORDER BY l DESC LIMIT 3")[2]
    assert not both_ways(mice, "SELECT k, l FROM t ORDER BY l DESC LIMIT 400")[2]
    monkeypatch.setattr(top_rows, "LOOK_UP_BYTES", 1)
    assert not both_ways(mice, "SELECT k, l FROM t ORDER BY l DESC LIMIT 3")[2]


@pytest.mark.parametrize(
    "properties", [{"filters": "where(l < 2000000000000000)"}, {"aggregations": "sum(l)"}]
)
def test_rules_of_a_table_apply_to_the_first_rows(
    tmp_path: object, properties: dict[str, str]
) -> None:
    with Instance.open(f"{tmp_path}/mice", background=False) as mice:
        table = mice.create_table("t", "k:long, l:long", properties, row_keys=["k"])
        for value in (10**15, 15 * 10**14, 3 * 10**15):
            table.ingest(pa.table({"k": [1, value], "l": [value, 7]}))
        mice.wait()
        found, wanted, was_taken = both_ways(mice, "SELECT l FROM t ORDER BY l DESC LIMIT 1")
        assert found.equals(wanted)
        assert not was_taken


def test_a_row_group_on_both_sides_of_a_split_point_is_read_once(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "FIRST_ROW_GROUP_ROWS", 16)
    monkeypatch.setattr(row_groups, "ROW_GROUP_BYTES", 256)
    properties = {"ingest_file_strategy": "one_reference_per_leaf"}
    with Instance.open(f"{tmp_path}/mice", background=False) as mice:
        made: dict[str, list[object]] = {"row_keys": ["k"], "split_points": [40, 42, 44, 300]}
        table = mice.create_table("t", "k:long, l:long", properties, **made)
        table.ingest(pa.table({"k": range(400), "l": [n * 7 % 397 for n in range(400)]}))
        mice.wait()
        found, wanted, was_taken = both_ways(mice, "SELECT k, l FROM t ORDER BY l, k LIMIT 300")
        assert found.equals(wanted)
        assert was_taken
