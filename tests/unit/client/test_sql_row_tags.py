"""Row tags in SQL: columns that only their names mean."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from dormouse.client.instance import Instance
from dormouse.errors import InvalidRequestError


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": ids, "name": [f"n{each}" for each in ids]})


@pytest.fixture(scope="module")
def mice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    folder = tmp_path_factory.mktemp("tags") / "mice"
    with Instance.open(folder, background=False) as instance:
        table = instance.create_table("t", "id:long, name:string?", row_keys=["id"])
        table.ingest(rows(1, 2), tags={"day": "1", "shop": "x"})
        table.ingest(rows(3), tags={"day": "2"})
        table.ingest(rows(4, 5))
        instance.create_table("u", "id:long, name:string?", row_keys=["id"]).ingest(rows(1, 3))
        yield instance


TEXTS = [
    ("SELECT id FROM t WHERE tag('day') = '1' ORDER BY id", [(1,), (2,)]),
    (
        "SELECT tag('day') AS d, count(*) FROM t GROUP BY 1 ORDER BY 1",
        [("1", 2), ("2", 1), (None, 2)],
    ),
    ("SELECT count(*) FROM t WHERE tag('day') IS NULL", [(2,)]),
    ("SELECT count(*) FROM t WHERE tag('day') <> '1' OR tag ( 'shop' ) LIKE 'x%'", [(3,)]),
    ("SELECT * FROM t WHERE tag('day') = '2'", [(3, "n3")]),
    ("SELECT tag('day'), * FROM t WHERE id = 3", [("2", 3, "n3")]),
    ("SELECT f.tag('day'), f.* EXCLUDE (name) FROM t f WHERE f.id = 3", [("2", 3)]),
    ("SELECT * EXCLUDE name FROM t WHERE tag('day') = '2'", [(3,)]),
    ("SELECT * EXCLUDE (name) REPLACE (-id AS id) FROM t WHERE tag('day') = '2'", [(-3,)]),
    ("SELECT * REPLACE (id + 1 AS id) FROM t WHERE tag('day') = '2'", [(4, "n3")]),
    ("SELECT u.id, t.TAG('day') FROM t JOIN u USING (id) ORDER BY 1", [(1, "1"), (3, "2")]),
    ("SELECT * FROM t JOIN u USING (id) WHERE t.tag('day') = '2'", [(3, "n3", "n3")]),
    ("SELECT u.* FROM t JOIN u ON t.id = u.id AND t.tag('day') = '2'", [(3, "n3")]),
    ("SELECT * FROM (SELECT id, tag('day') AS d FROM t) WHERE d = '2'", [(3, "2")]),
    (
        "WITH a AS (SELECT *, tag('day') AS d FROM t) SELECT * FROM a WHERE d = '2'",
        [(3, "n3", "2")],
    ),
    ("SELECT max(id) FROM t WHERE tag('day') IN (SELECT tag('day') FROM t WHERE id = 1)", [(2,)]),
    ("SELECT id FROM t WHERE tag('day') = '1' ORDER BY id LIMIT 1", [(1,)]),
    ("SELECT count(COLUMNS(*)) FROM t WHERE tag('day') = '1'", [(2, 2)]),
    ("SELECT count(*) FROM t WHERE tag('none') IS NULL", [(5,)]),
]


@pytest.mark.parametrize(("text", "wanted"), TEXTS)
def test_a_statement_names_row_tags_as_columns_that_no_star_means(
    mice: Instance, text: str, wanted: list[tuple[object, ...]]
) -> None:
    found = mice.sql(text).to_arrow()
    assert list(zip(*(each.to_pylist() for each in found.columns), strict=True)) == wanted


def test_shards_without_the_tag_are_not_read(mice: Instance) -> None:
    found = mice.sql("SELECT id FROM t WHERE tag('shop') = 'x'")
    assert sorted(found.to_arrow().column("id").to_pylist()) == [1, 2]
    assert len(found.reads.shards) == 1
    plan = mice.sql("EXPLAIN SELECT id FROM t WHERE tag('shop') = 'x'").to_arrow().to_pylist()
    assert plan[0]["shards"] == 1


@pytest.mark.parametrize(
    "text",
    [
        "SELECT tag() FROM t",
        "SELECT tag(name) FROM t",
        "SELECT tag('a b') FROM t",
        "SELECT tag('a', 'b') FROM t",
        "SELECT tag('a' || 'b') FROM t",
        "SELECT tag('day'), tag('Day') FROM t",
        "SELECT tag('day') FROM t, u",
        "SELECT tag('day') FROM (SELECT 1)",
        "SELECT t.tag('day') FROM t NATURAL JOIN u",
        "FROM t WHERE tag('day') = '1'",
        "SELECT COLUMNS('n.*') FROM t WHERE tag('day') = '1'",
        "PIVOT t ON tag('day') IN ('1', '2') USING count(*)",
    ],
)
def test_what_is_not_clear_is_refused(mice: Instance, text: str) -> None:
    with pytest.raises(InvalidRequestError):
        mice.sql(text).to_arrow()


def test_a_statement_deletes_rows_by_tag(tmp_path: Path) -> None:
    with Instance.open(tmp_path / "mice", background=False) as instance:
        table = instance.create_table("t", "id:long, name:string?", row_keys=["id"])
        with table.writer(tags={"day": "1"}) as writer:
            writer.write({"id": 1})
        table.ingest(rows(2, 3))
        instance.sql("DELETE FROM t WHERE tag('day') = '1'")
        assert table.count() == 2
        assert instance.sql("SELECT id FROM t").to_arrow().num_rows == 2
