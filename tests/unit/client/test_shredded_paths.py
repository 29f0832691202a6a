"""Columns of paths in documents: the same rows as without them, and fewer bytes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.access import EVERYTHING
from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.errors import InvalidRequestError
from dormouse.features.versions import read_as_of
from dormouse.query.rows import query_rows
from dormouse.query.selection import select
from dormouse.schema.schema import Field
from dormouse.schema.types import Primitive
from dormouse.sql.conditions import parse_condition
from tests.support.queries import looked_up

SCHEMA = "id:long, payload:dynamic?"
ROWS = 6_000
PATHS = "payload.seq:long, payload.kind:string, payload.user.ok:boolean, payload.odd:long"
CONDITIONS = [
    "payload.seq = 3456",
    "payload.seq BETWEEN 100.5 AND 200",
    "payload.seq IN (5, 7, 100000)",
    "payload.seq IN (5, 'k5')",
    "payload.seq > 1e30",
    "payload.seq < 10 OR payload.kind = 'k3' AND payload.seq < 2000",
    "NOT (payload.seq >= 10)",
    "NOT (payload.seq >= 10 IS TRUE)",
    "payload.seq <> 3 AND payload.seq < 6",
    "payload.seq IS NULL",
    "payload.seq IS NOT DISTINCT FROM 17",
    "payload.kind = 'k7' AND payload.user.ok = true",
    "payload.kind LIKE 'k1%' AND payload.seq < 500",
    "payload.kind >= 'k8' AND payload.seq < 99",
    "payload.odd = 5",
    "payload.odd = 5.5",
    "payload.odd > 100",
    "payload.odd = 'five'",
    "payload.odd <> 5 AND payload.seq < 100",
    "CAST(payload.odd AS BIGINT) = 5",
    "CAST(payload.seq AS BIGINT) = id",
    "payload.noise IS NOT NULL AND payload.seq = 77",
]


def payload(n: int, chosen: random.Random) -> dict[str, object] | list[int] | None:
    if n % 501 == 0:
        return chosen.choice([None, [n]])
    body: dict[str, object] = {"seq": n, "kind": f"k{n % 10}", "user": {"ok": n % 3 == 0}}
    body["odd"] = chosen.choice([5, 5.0, 5.5, "five", 2**70, None])
    if n % 777 == 0:
        body["seq"] = str(n)
    body["noise"] = chosen.randbytes(40).hex()
    return body


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chosen = random.Random(11)
    local = tmp_path_factory.mktemp("lines") / "docs.json"
    rows = ({"id": n, "payload": payload(n, chosen)} for n in range(ROWS))
    local.write_text("\n".join(map(json.dumps, rows)))
    return local


@pytest.fixture(scope="module")
def mice(tmp_path_factory: pytest.TempPathFactory, lines: Path) -> Iterator[Instance]:
    folder = tmp_path_factory.mktemp("shredded") / "mice"
    with Instance.open(folder, background=False) as instance:
        for name, paths in (("plain", "off"), ("asked", PATHS), ("auto", "auto")):
            table = instance.create_table(
                name, SCHEMA, row_keys=["id"], properties={"shredded_paths": paths}
            )
            table.ingest(lines)
        instance.wait()
        yield instance


def ids(table: TableHandle, where: str) -> list[int]:
    return table.query(where=where, columns=["id"]).to_arrow().column("id").to_pylist()


def read_bytes(table: TableHandle, where: str) -> int:
    found = table.query(where=where, columns=["id"])
    found.to_arrow()
    return found.reads.size_bytes


@pytest.mark.parametrize("where", CONDITIONS)
def test_shredded_columns_change_no_answer(mice: Instance, where: str) -> None:
    expected = ids(mice.table("plain"), where)
    for name in ("asked", "auto"):
        assert ids(mice.table(name), where) == expected
        assert mice.table(name).count(where=where) == len(expected)


@pytest.mark.parametrize("where", CONDITIONS[:7] + CONDITIONS[14:20])
def test_merges_of_large_ranges_test_documents_too(mice: Instance, where: str) -> None:
    expected = ids(mice.table("plain"), where)
    for name in ("plain", "asked", "auto"):
        table, state = read_as_of(mice.services, mice.table(name).current(), None)
        selection = select(
            table.schema,
            state.version,
            0,
            permission=EVERYTHING,
            columns=("id",),
            condition=parse_condition(where, table.schema),
        )
        found = query_rows(mice.services, table, state, selection)
        batches = looked_up(found, 0)
        assert [key for batch in batches for key in batch["id"].to_pylist()] == expected
        assert found.reads.scans or not expected


def test_a_condition_on_a_shredded_path_reads_few_bytes(mice: Instance) -> None:
    where = "payload.kind = 'k3'"  # in every row group
    plain, asked = (read_bytes(mice.table(name), where) for name in ("plain", "asked"))
    assert 10 * asked < plain
    where = "payload.seq = 3456"  # in one
    assert 10 * read_bytes(mice.table("asked"), where) < plain


def shard_columns(instance: Instance, folder: Path) -> list[set[str]]:
    shards = [*folder.rglob("data/*.parquet")]
    assert shards
    return [set(pq.read_schema(path).names) for path in shards]


def test_the_data_shows_the_commonest_paths(tmp_path: Path, lines: Path) -> None:
    with Instance.open(tmp_path / "mice", background=False) as instance:
        instance.create_table("docs", SCHEMA, row_keys=["id"]).ingest(lines)
        instance.wait()
        (names,) = shard_columns(instance, tmp_path)
    assert names == {"id", "payload", "_2.kind:string"}  # others are of several kinds, or long


def test_compactions_purges_splits_copies_and_rebuilds_keep_them(
    tmp_path: Path, lines: Path
) -> None:
    where = "payload.seq = 4242"
    with Instance.open(tmp_path / "mice", background=False) as instance:
        table = instance.create_table(
            "docs", SCHEMA, row_keys=["id"], properties={"shredded_paths": "off"}
        )
        table.ingest(lines)
        instance.wait()
        instance.set_properties("docs", {"shredded_paths": PATHS})
        more = pa.table({"id": [ROWS + 1], "payload": ['{"seq": 4242, "kind": "k3"}']})
        table.ingest(more)
        instance.wait()
        assert ids(table, where) == [4242, ROWS + 1]  # of a shard without and one with
        instance.split("docs", forced=True)
        instance.wait()
        assert ids(table, where) == [4242, ROWS + 1]
        instance.compact("docs", everything=True)
        instance.wait()
        assert ids(table, where) == [4242, ROWS + 1]
        before = table.state().version
        assert table.delete(where="payload.kind = 'k4' AND payload.seq < 5000") > before
        assert ids(table, "payload.seq = 4244") == []
        assert ids(table, where) == [4242, ROWS + 1]
        assert len(table.query(where="payload.seq = 4244", as_of=before).to_arrow()) == 1
        purge = table.purge("payload.kind = 'k2' AND payload.seq > 4000")
        instance.wait()
        assert purge.proof().rows == 0
        assert ids(table, where) == [ROWS + 1]
        table.rebuild()
        assert ids(table, where) == [ROWS + 1]
        table.check(all_bytes=True)
        with Instance.open(tmp_path / "other", background=False) as other:
            other.copy_table(table)
            assert ids(other.table("docs"), where) == [ROWS + 1]


def test_a_renamed_column_keeps_its_paths_and_an_added_one_has_none_of_them(
    tmp_path: Path, lines: Path
) -> None:
    with Instance.open(tmp_path / "mice", background=False) as instance:
        table = instance.create_table(
            "docs", SCHEMA, row_keys=["id"], properties={"shredded_paths": "auto"}
        )
        table.ingest(lines)
        instance.wait()
        table.alter(rename={"payload": "body"})
        assert ids(table.latest(), "body.kind = 'k1' AND body.seq < 40") == [1, 11, 21, 31]
        table.latest().alter(add=[Field("payload", Primitive.DYNAMIC, nullable=True)])
        assert ids(table.latest(), "payload.kind = 'k1'") == []


@pytest.mark.parametrize(
    "paths", ["payload.seq", "payload:long", "id:long", "payload.seq:double", "nothing.x:long"]
)
def test_a_property_that_names_no_path_is_refused(tmp_path: Path, paths: str) -> None:
    with (
        Instance.open(tmp_path / "mice", background=False) as instance,
        pytest.raises(InvalidRequestError, match="shredded_paths"),
    ):
        instance.create_table("docs", SCHEMA, row_keys=["id"], properties={"shredded_paths": paths})


def test_the_latest_documents_of_keys_are_found(tmp_path: Path) -> None:
    with Instance.open(tmp_path / "mice", background=False) as instance:
        table = instance.create_table(
            "docs",
            SCHEMA,
            row_keys=["id"],
            properties={"keep": "latest", "shredded_paths": "payload.v:long"},
        )
        for v in (1, 2):
            table.ingest(pa.table({"id": [1, 2], "payload": [f'{{"v":{v}}}'] * 2}))
            instance.wait()
        table.delete(keys=[2])
        instance.wait()
        assert ids(table, "payload.v = 1") == []
        assert ids(table, "payload.v = 2") == [1]
        instance.compact("docs", everything=True)
        instance.wait()
        assert ids(table, "payload.v = 2") == [1]
        changes = table.changes(since=1).to_arrow().to_pylist()
        assert all(json.loads(row["payload"]) for row in changes if row["payload"])


def test_statements_read_few_row_groups_where_paths_are_shredded(mice: Instance) -> None:
    text = "SELECT id FROM {} WHERE payload.seq BETWEEN $1 AND 3460"
    read = {}
    for name in ("plain", "asked"):
        found = mice.sql(text.format(name), [3456])
        assert sorted(found.to_arrow().column("id").to_pylist()) == [3456, 3457, 3458, 3459, 3460]
        read[name] = found.reads.row_groups
    assert 2 * read["asked"] < read["plain"]


def test_a_column_of_paths_is_not_renamed_away_from_them(tmp_path: Path) -> None:
    with Instance.open(tmp_path / "mice", background=False) as instance:
        table = instance.create_table(
            "docs", SCHEMA, row_keys=["id"], properties={"shredded_paths": "payload.v:long"}
        )
        for change in ({"rename": {"payload": "body"}}, {"drop": ["payload"]}):
            with pytest.raises(InvalidRequestError, match="payload"):
                table.alter(**change)
        added = [Field("payload", Primitive.DYNAMIC, nullable=True)]
        with pytest.raises(InvalidRequestError, match="shredded_paths"):
            table.alter(add=added, drop=["payload"])
