"""SQL over files that DuckDB reads itself: the same rows as streamed, and as of the rows."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from dormouse.client.instance import Instance
from dormouse.errors import DamagedShardError
from dormouse.statements import running as files
from dormouse.statements import tables
from dormouse.statements.running import VerifiedFiles

READINGS = 20_000


def readings() -> pa.Table:
    """Readings of which those of the last meter are low, or NaN: statistics know of the low ones
    alone, and are in row groups and a shard of their own.
    """
    meters = [n % 50 for n in range(READINGS)]
    highs = [n % 13 - 0.5 for n in range(READINGS)]
    lows = [float("nan") if n % 400 == 49 else -7.5 for n in range(READINGS)]
    kinds = ["grid", None, "solar"]
    return pa.table(
        {
            "meter": meters,
            "watts": [
                low if meter == 49 else high
                for meter, low, high in zip(meters, lows, highs, strict=True)
            ],
            "kind": [kinds[n % 3] for n in range(READINGS)],
        }
    )


@pytest.fixture(autouse=True)
def small_files_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LEAST_BYTES", 0)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """An instance whose shards each lie in one leaf, as after a compaction."""
    folder = tmp_path_factory.mktemp("sql") / "plain"
    with Instance.open(folder, background=False) as instance:
        columns = "meter:long, watts:double, kind:string?"
        instance.create_table("readings", columns, row_keys=["meter"], split_points=[49]).ingest(
            readings()
        )
        meters = pa.table({"meter": [1, 2, 3], "region": ["a", "b", "a"]})
        instance.create_table("meters", like=meters, row_keys=["meter"]).ingest(meters)
        yield instance


@pytest.mark.parametrize("least_share", [2, 0], ids=["files", "stream"])
@pytest.mark.parametrize(
    ("text", "reads_files"),
    [
        ("SELECT kind, count(*), sum(meter) FROM readings GROUP BY kind", True),
        ("SELECT count(*) FROM readings WHERE watts > 11 AND kind = 'solar'", True),
        ("SELECT meter FROM readings WHERE watts > 11.5", True),
        ("SELECT max(watts), min(watts) FROM readings", True),
        ("SELECT meter FROM readings WHERE kind LIKE 'so%' ORDER BY watts DESC LIMIT 9", True),
        ("SELECT count(*) FROM readings WHERE NOT watts < 3 OR kind IN ('x', 'y', 'z')", True),
        ("SELECT meter, max(kind) FROM readings WHERE meter > 3 GROUP BY meter", True),
        ("SELECT max(kind || 'x'), min(kind) FROM readings", True),
        ("SELECT count(*) FROM readings r JOIN readings s USING (meter) WHERE s.watts > 11", True),
        ("SELECT watts FROM readings ORDER BY watts DESC LIMIT 3", True),
        (
            "SELECT region, count(*) FROM readings r JOIN meters m ON r.meter = m.meter GROUP BY 1",
            True,
        ),
        ("SELECT meter FROM readings LIMIT 3 OFFSET 50000", False),
    ],
)
def test_rows_are_the_same_from_files_and_streamed(
    plain: Instance, monkeypatch: pytest.MonkeyPatch, least_share: int, text: str, reads_files: bool
) -> None:
    linked = recorded_files(monkeypatch)
    monkeypatch.setattr(files, "LEAST_SHARE", least_share)
    monkeypatch.setattr(tables, "UNTESTED_ROWS", 0)
    with duckdb.connect() as duck:
        duck.register("readings", readings())
        duck.register("meters", pa.table({"meter": [1, 2, 3], "region": ["a", "b", "a"]}))
        wanted = duck.sql(text).fetchall()
    found = [tuple(row.values()) for row in plain.sql(text).to_arrow().to_pylist()]
    assert sorted(map(repr, map(_plain, found))) == sorted(map(repr, map(_plain, wanted)))
    assert bool(linked) == (reads_files and least_share > 0)
    assert not any(Path(file).exists() for each in linked for file in re.findall("'(.+?)'", each))


def test_statistics_of_floats_which_leave_out_nan_lose_no_row(
    plain: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One column has NaN, and another gets some by a shard that is added."""
    columns = "k:long, calm:double?, wild:double, f:float"
    table = plain.create_table("floats", columns, row_keys=["k"])
    calm = [None if n % 7 == 0 else float(n * 37 % 9_973) - 4_000 for n in range(10_000)]
    calm[1:3] = [float("inf"), float("-inf")]
    wild = [float("nan") if n == 7_000 else float(n) for n in range(10_000)]
    zeros = pa.array([0.0] * 10_000, pa.float32())
    rows = pa.table({"k": range(10_000), "calm": calm, "wild": wild, "f": zeros})
    table.ingest(rows)
    linked = recorded_files(monkeypatch)
    texts = [
        "SELECT k, calm FROM floats ORDER BY calm DESC NULLS LAST LIMIT 5",
        "SELECT k, calm FROM floats ORDER BY calm, k LIMIT 5",
        "SELECT count(*) FROM floats WHERE calm > 5900",
        "SELECT wild FROM floats ORDER BY wild DESC LIMIT 2",
        "SELECT count(*), min(calm), max(calm) FROM floats WHERE wild > 6900",
        "SELECT count(*), max(a.calm) FROM floats a JOIN floats b USING (k) WHERE b.calm > 5900",
        "SELECT a.k FROM floats a JOIN floats b ON a.calm = b.wild WHERE NOT b.wild < 5900",
    ]
    with duckdb.connect() as duck:
        for _ in range(2):
            duck.register("floats", rows)
            for text in texts:
                wanted = sorted(map(repr, map(_plain, duck.sql(text).fetchall())))
                found = [tuple(row.values()) for row in plain.sql(text).to_arrow().to_pylist()]
                assert sorted(map(repr, map(_plain, found))) == wanted, text
            assert linked
            linked.clear()
            more = {"k": [3], "calm": [float("nan")], "wild": [0.5]}
            added = pa.table({**more, "f": pa.array([0.5], pa.float32())})
            table.ingest(added)
            rows = pa.concat_tables([rows, added.cast(rows.schema)])


def test_a_column_with_one_value_beside_nan_is_no_constant(plain: Instance) -> None:
    rows = pa.table({"k": [1, 2], "f": [5.0, float("nan")]})
    plain.create_table("small", "k:long, f:double", row_keys=["k"]).ingest(rows)
    texts = [
        "SELECT k, f FROM small ORDER BY k DESC",
        "SELECT avg(f) FROM small",
        "SELECT k, f AS x FROM small WHERE k + 0 = 2",
        "SELECT isnan(f) FROM small ORDER BY k",
        "SELECT count(DISTINCT x) FROM (SELECT f AS x FROM small)",
        "SELECT max(x) FROM (SELECT f AS x FROM small)",
        "SELECT x FROM (SELECT f AS x FROM small) ORDER BY x DESC LIMIT 1",
    ]
    with duckdb.connect() as duck:
        duck.register("small", rows)
        for text in texts:
            found = [tuple(row.values()) for row in plain.sql(text).to_arrow().to_pylist()]
            assert repr(found) == repr(duck.sql(text).fetchall()), text


def recorded_files(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which files are added that statements read."""
    linked: list[str] = []

    def recorded(*arguments: Any) -> str | None:
        found = query(*arguments)
        linked.extend([] if found is None else [found])
        return found

    query = VerifiedFiles.query
    monkeypatch.setattr(VerifiedFiles, "query", recorded)
    return linked


def test_types_are_the_same_from_files_and_streamed(
    plain: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "SELECT kind, kind || 'x' AS joined, [kind] AS listed, {'k': kind} AS held, "
        "MAP([meter], [kind]) AS mapped, meter FROM readings ORDER BY meter, kind LIMIT 40"
    )
    from_files = plain.sql(text).to_arrow()
    monkeypatch.setattr(files, "LEAST_SHARE", 0)
    streamed = plain.sql(text).to_arrow()
    assert from_files.schema.types == streamed.schema.types
    assert from_files.to_pylist() == streamed.to_pylist()


def test_the_last_groups_are_whole(plain: Instance) -> None:
    columns = "meter:long, at:long, n:long"
    table = plain.create_table(
        "sums", columns, {"aggregations": "sum(n)"}, row_keys=["meter"], sort_keys=["at"]
    )
    for _ in range(3):
        rows = {"meter": [n % 40 for n in range(READINGS)], "at": list(range(READINGS))}
        table.ingest(pa.table({**rows, "n": [1] * READINGS}))
    last = plain.sql('SELECT "at", n FROM sums ORDER BY meter DESC, "at" DESC LIMIT 2').to_arrow()
    assert last.to_pylist() == [{"at": READINGS - 1, "n": 3}, {"at": READINGS - 41, "n": 3}]


def _plain(row: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(round(cell, 6) if isinstance(cell, float) else str(cell) for cell in row)


def test_what_starts_again_with_files_is_not_interrupted(plain: Instance) -> None:
    """Scans of a plan find one after the other that files are better."""
    text = (
        "SELECT region FROM meters WHERE meter > 1 UNION ALL SELECT region FROM meters o "
        "WHERE meter NOT IN (SELECT meter FROM meters i WHERE i.region > o.region)"
    )
    for _ in range(8):
        assert plain.sql(text).to_arrow().num_rows == 5


NARROW = [
    # one reference, whose rows are wanted twice: DuckDB scans it once, for both
    "WITH a AS NOT MATERIALIZED (SELECT * FROM readings) SELECT "
    "(SELECT count(kind) FROM a WHERE meter < 5), (SELECT count(watts) FROM a WHERE meter > 48)",
    "WITH a AS NOT MATERIALIZED (SELECT * FROM readings) SELECT count(*) FROM (SELECT kind FROM a "
    "WHERE meter < 5 UNION ALL SELECT kind FROM a WHERE watts > 3 AND meter > 48)",
    # several, each with bounds of its own
    "SELECT (SELECT count(kind) FROM readings WHERE meter < 49), (SELECT count(watts) FROM "
    "readings WHERE meter > 48), (SELECT max(kind) FROM readings WHERE kind < 's'), count(*) "
    "FROM readings x JOIN readings y ON x.meter = y.meter WHERE x.meter > 48 AND y.watts < 0",
]


@pytest.mark.parametrize("text", NARROW)
def test_no_scan_loses_rows_by_the_bounds_of_another(plain: Instance, text: str) -> None:
    with duckdb.connect() as duck:
        duck.register("readings", readings())
        wanted = duck.sql(text).fetchall()
    assert [tuple(row.values()) for row in plain.sql(text).to_arrow().to_pylist()] == wanted


def test_many_references_verify_a_table_once_and_leave_no_threads(plain: Instance) -> None:
    """Each of them would take threads and a pass over the files of its own."""
    one = "SELECT kind FROM readings WHERE watts > {}"
    plain.sql(one.format(0)).to_arrow()  # what is cached of the files is read before
    reads = []
    for references in (1, 32):
        before = threading.active_count()
        found = plain.sql(" UNION ALL ".join(one.format(n) for n in range(references)))
        next(iter(found))
        assert threading.active_count() <= before + 2
        found.close()
        reads.append(found.reads.size_bytes)
    assert reads[0] == reads[1] > 0


@pytest.mark.parametrize("least_share", [2, 0], ids=["files", "stream"])
def test_a_damaged_shard_is_refused_before_duckdb_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least_share: int
) -> None:
    monkeypatch.setattr(files, "LEAST_SHARE", least_share)
    with Instance.open(tmp_path / "mice", background=False) as mice:
        mice.create_table("readings", like=readings(), row_keys=["meter"]).ingest(readings())
        (shard,) = (tmp_path / "mice").glob("tables/*/data/*.parquet")
        stored = bytearray(shard.read_bytes())
        stored[len(stored) // 2] ^= 1
        shard.chmod(0o600)
        shard.write_bytes(stored)
        with pytest.raises(DamagedShardError):
            mice.sql("SELECT max(watts), max(kind), max(meter + 1) FROM readings").to_arrow()
