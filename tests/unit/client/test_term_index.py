"""Tables with a term index: the same rows as without it at every door, and fewer bytes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import Field
from dormouse.schema.types import Primitive
from dormouse.shards import parquet

SCHEMA = "id:long, message:string?, level:string"
ROWS = 24_000
RARE = {4_000: "zebrafish", 15_000: "Zebrafish_2", 15_001: "xzebrafish", 20_000: "zebra fish"}
CONDITIONS = [
    "has(message, 'zebrafish')",
    "has(message, 'ZEBRA fish')",
    "has(message, '10.77.1.2')",
    "has(message, 'naïve') OR has(message, 'zebra')",
    "has(message, 'zebrafish') AND level = 'INFO'",
    "message LIKE '%ebrafi%'",
    "message LIKE '%x_ebra%h'",
    "message ILIKE '%ZEBRAFISH%'",
    "contains(message, 'zebra f') AND NOT has(message, 'zebrafish')",
    "ends_with(message, 'brafish_2')",
    "message = 'only this'",
    "message IN ('only this', 'or that')",
    "has(message, 'absent') AND has(message, 'refused')",
]


def messages() -> list[str | None]:
    chosen = random.Random(5)
    words = [
        "connection",
        "refused",
        "by",
        "retry",
        "in",
        "ms",
        "accepted",
        "order",
        "user",
        "cache",
        "miss",
        "timeout",
    ]
    lines: list[str | None] = []
    for n in range(ROWS):
        address = f"10.{chosen.randrange(70)}.{chosen.randrange(256)}.{chosen.randrange(256)}"
        text = " ".join(chosen.choices(words, k=6))
        lines.append(f"{text} {chosen.getrandbits(64):016x} {address}:{n % 9000} {RARE.get(n, '')}")
    lines[77], lines[9_000] = None, "only this"
    lines[11_000], lines[13_000] = "lost 10.77.1.2: naïve", "at 110.77.1.2"
    lines[14_000] = r"c:\temp"
    return lines


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    levels = ["INFO", "WARN", "ERROR"]
    level = [levels[n % 3] for n in range(ROWS)]
    return pa.table({"id": range(ROWS), "message": messages(), "level": level})


@pytest.fixture(scope="module")
def mice(tmp_path_factory: pytest.TempPathFactory, rows: pa.Table) -> Iterator[Instance]:
    with Instance.open(tmp_path_factory.mktemp("terms") / "mice", background=False) as instance:
        for name, columns in (("plain", ""), ("words", "message"), ("logs", "message:log, level")):
            table = instance.create_table(
                name, SCHEMA, row_keys=["id"], properties={"term_index": columns}
            )
            table.ingest(rows)
        small = instance.create_table("small", "id:long, level:string", row_keys=["id"])
        small.ingest(pa.table({"id": range(8), "level": ["INFO"] * 8}))
        instance.wait()
        yield instance


def ids(table: TableHandle, where: str) -> list[int]:
    return table.query(where=where, columns=["id"]).to_arrow().column("id").to_pylist()


def read_bytes(table: TableHandle, where: str) -> int:
    found = table.query(where=where)
    found.to_arrow()
    return found.reads.size_bytes


@pytest.mark.parametrize("where", CONDITIONS)
def test_an_index_changes_no_answer_and_reads_less(mice: Instance, where: str) -> None:
    expected = ids(mice.table("plain"), where)
    for name in ("words", "logs"):
        table = mice.table(name)
        assert ids(table, where) == expected
        assert table.count(where=where) == len(expected)
        found = mice.sql(f"SELECT id FROM {name} WHERE {where.replace('ILIKE', 'ilike')}")
        assert sorted(found.to_arrow().column("id").to_pylist()) == expected
    if "10.77" in where:  # each of its numbers is in every block
        assert ids(mice.table("logs"), where) == [11_000]
    assert 2 * read_bytes(mice.table("logs"), where) < read_bytes(mice.table("plain"), where)


def test_words_are_found_at_once_and_absent_ones_without_reading_rows(mice: Instance) -> None:
    assert ids(mice.table("words"), "has(message, 'zebrafish')") == [4_000, 15_000]
    found = mice.table("words").query(where="has(message, 'nowhere')")
    assert not len(found.to_arrow())
    assert found.reads.row_groups == 0


@pytest.mark.parametrize(
    "where",
    [
        "has(message, 'zebrafish')",
        "has(w.message, $word)",
        "message LIKE '%ebrafi%' AND level = 'INFO'",
        r"message LIKE 'c:\temp%'",
        "(prefix(message, 'absent') OR has(message, 'absent')) AND id > 5",
    ],
)
def test_statements_read_little_and_find_the_same(mice: Instance, where: str) -> None:
    values = {"word": "zebrafish"} if "$" in where else {}
    found = mice.sql(f"SELECT id FROM words w WHERE {where}", values)
    plain = mice.sql(f"SELECT id FROM plain w WHERE {where}", values)
    assert found.to_arrow().sort_by("id") == plain.to_arrow().sort_by("id")
    assert 2 * found.reads.size_bytes < plain.reads.size_bytes
    shown = mice.sql(f"EXPLAIN SELECT id FROM words w WHERE {where}", values).to_arrow()
    assert shown.column("row_groups")[0].as_py() <= 2


@pytest.mark.parametrize(
    "text",
    [
        "WITH w AS (SELECT id, 'zed' AS message FROM words) SELECT count(*) AS n FROM w "
        "WHERE message = 'zed'",
        "WITH Words AS (SELECT id, 'zed' AS message FROM words) SELECT count(*) AS n FROM words "
        "WHERE has(message, 'zed')",
        "SELECT count(*) AS n FROM words AS w(id, level, message) WHERE message = 'INFO' OR "
        "message <> 'INFO'",
    ],
)
def test_what_a_name_of_with_or_an_alias_stands_for_is_no_text_of_the_table(
    mice: Instance, text: str
) -> None:
    assert mice.sql(text).to_arrow().to_pylist() == [{"n": ROWS}]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT w.id, o.level FROM words w JOIN small o ON w.id = 4000 + o.id "
        "WHERE has(w.message, 'zebrafish')",
        "SELECT w.id FROM words w, small WHERE has(message, 'zebrafish') AND small.id < 3",
        "SELECT w.id, small.id FROM small LEFT JOIN words w ON w.id = 4000 + small.id "
        "WHERE has(w.message, 'zebrafish') OR contains(w.message, 'absent')",
        "SELECT w.id, small.id FROM words w FULL JOIN small USING (id) "
        "WHERE w.message LIKE '%ebrafi%'",
        "WITH rare AS (SELECT id FROM words WHERE has(message, 'zebrafish')) "
        "SELECT rare.id, small.id FROM rare, small WHERE small.id = 1",
        "SELECT id FROM small WHERE NOT EXISTS "
        "(FROM words w WHERE has(w.message, 'zebrafish') AND w.id = 4000 + small.id)",
        "SELECT id FROM words WHERE has(message, 'zebrafish') "
        "UNION ALL SELECT id FROM words x WHERE x.message = 'only this'",
    ],
)
def test_statements_of_several_tables_read_little_and_find_the_same(
    mice: Instance, text: str
) -> None:
    found, plain = (mice.sql(text.replace("words", name)) for name in ("words", "plain"))
    expected = sorted(map(str, plain.to_arrow().to_pylist()))
    assert expected
    assert sorted(map(str, found.to_arrow().to_pylist())) == expected
    assert 2 * found.reads.size_bytes < plain.reads.size_bytes


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*) AS n FROM words w POSITIONAL JOIN small s "
        "WHERE has(w.message, 'zebrafish') AND s.id IS NULL",
        "SELECT s.id AS n FROM small s ASOF JOIN words w ON 5000 * s.id + 4000 >= w.id "
        "WHERE contains(w.message, 'x') OR has(w.message, 'zebrafish') ORDER BY ALL",
        "SELECT count(*) AS n FROM small s LEFT JOIN words w ON w.id = s.id "
        "WHERE has(w.message, 'absent') OR s.id < 5",
        "SELECT count(*) AS n FROM small s LEFT JOIN words w ON w.id = s.id "
        "WHERE NOT coalesce(has(w.message, 'zebrafish'), false)",
        "SELECT count(*) AS n FROM words w(id, level, message) WHERE has(level, 'zebrafish')",
        "SELECT count(*) AS n FROM small s ANTI JOIN words w USING (id) WHERE s.id < 5",
        "SELECT count(*) AS n FROM words WHERE has(message, 'zebrafish') USING SAMPLE 24000 ROWS",
    ],
)
def test_what_rows_are_beside_or_lack_bounds_nothing(mice: Instance, text: str) -> None:
    found, plain = (mice.sql(text.replace("words", name)) for name in ("logs", "plain"))
    expected = plain.to_arrow()
    assert found.to_arrow() == expected and expected.num_rows
    assert found.reads.row_groups == plain.reads.row_groups


def test_names_that_are_two_for_the_engine_are_two(tmp_path: Path) -> None:
    with Instance.open(tmp_path / "mice", background=False) as instance:
        texts = [f"w{number}" for number in range(ROWS)]
        table = instance.create_table(
            "t",
            "id:long, Ä:string, ä:string, D:dynamic?, É:dynamic?, é:dynamic?",
            row_keys=["id"],
            properties={"term_index": "Ä, ä"},
        )
        table.ingest(
            pa.table(
                {
                    "id": range(ROWS),
                    "Ä": texts,
                    "ä": texts[::-1],
                    "D": ["{}"] * ROWS,
                    "É": [f'{{"n": {number}}}' for number in range(ROWS)],
                    "é": [f'{{"n": {-number}}}' for number in range(ROWS)],
                }
            )
        ).wait()
        for text, expected in (
            ("""SELECT id FROM t WHERE has("Ä", 'w5') OR has("ä", 'w5')""", [5, ROWS - 6]),
            ("""SELECT id FROM t WHERE has("ä", 'w5')""", [ROWS - 6]),
            ("""SELECT "Ä".id FROM t "Ä" JOIN t "ä" USING (id) WHERE has("Ä"."ä", 'w5')
            AND has("ä"."Ä", 'w23994')""", [ROWS - 6]),
            ("""SELECT id FROM t WHERE "é".n = -5""", [5]),
            ("""SELECT id FROM t WHERE "É".n = 5""", [5]),
        ):  # fmt: skip
            assert sorted(instance.sql(text).to_arrow().column("id").to_pylist()) == expected, text


def test_statements_of_any_shape_have_the_function(mice: Instance) -> None:
    text = (
        "SELECT count(*) FILTER (has(a.message, 'ZEBRA')), bool_or(has(b.message, b.level)), "
        "count(has(a.message, NULL)) FROM words a JOIN plain b USING (id) WHERE a.id > 100"
    )
    (row,) = mice.sql(text).to_arrow().to_pylist()
    assert list(row.values()) == [1, False, 0]
    with pytest.raises(InvalidRequestError, match="letter or a digit"):
        mice.sql("SELECT has(message, '--') FROM words").to_arrow()


@pytest.mark.parametrize("text", ["--", "½", "\u2026 \u201c"])
def test_a_text_without_a_word_is_not_looked_for(mice: Instance, text: str) -> None:
    with pytest.raises(InvalidRequestError, match="letter or a digit"):
        mice.table("plain").query(where=f"has(message, '{text}')")
    with pytest.raises(InvalidRequestError, match="letter or a digit"):
        mice.sql(f"SELECT id FROM plain WHERE has(message, '{text}')")


def test_compactions_purges_splits_copies_and_rebuilds_keep_it(
    tmp_path: Path, rows: pa.Table
) -> None:
    where = "has(message, 'zebrafish')"
    with Instance.open(tmp_path / "mice", background=False) as instance:
        table = instance.create_table("logs", SCHEMA, row_keys=["id"])
        table.ingest(rows.slice(0, ROWS // 2))
        instance.set_properties("logs", {"term_index": "message"})
        table.ingest(rows.slice(ROWS // 2))
        instance.wait()
        assert ids(table, where) == [4_000, 15_000]  # of a shard without and one with
        for change in ("split", "compact"):
            if change == "split":
                instance.split("logs", forced=True)
            else:
                instance.compact("logs", everything=True)
            instance.wait()
            assert ids(table, where) == [4_000, 15_000]
        before = table.state().version
        table.delete(where="has(message, 'zebrafish') AND id < 5000")
        assert ids(table, where) == [15_000]
        assert len(table.query(where=where, as_of=before).to_arrow()) == 2
        purge = table.purge("has(message, 'zebrafish_2')")
        instance.wait()
        assert purge.proof().rows == 0
        assert ids(table, where) == []
        assert ids(table, "has(message, 'zebra')") == [20_000]
        table.rebuild()
        assert ids(table, "has(message, 'zebra')") == [20_000]
        table.check(all_bytes=True)
        instance.compact("logs", everything=True)
        instance.wait()
        found = table.query(where="has(message, 'zebrafish')")
        assert not len(found.to_arrow())
        assert found.reads.row_groups == 0  # what was purged is not in the index either
        with Instance.open(tmp_path / "other", background=False) as other:
            other.copy_table(table)
            copied = other.table("logs").query(where="has(message, 'zebra')")
            assert len(copied.to_arrow()) == 1
            assert copied.reads.row_groups == 1


def test_an_added_column_has_no_words_and_a_renamed_one_needs_the_property_changed(
    tmp_path: Path, rows: pa.Table
) -> None:
    with Instance.open(tmp_path / "mice", background=False) as instance:
        table = instance.create_table(
            "logs", SCHEMA, row_keys=["id"], properties={"term_index": "message"}
        )
        table.ingest(rows)
        instance.wait()
        for change in ({"rename": {"message": "text"}}, {"drop": ["message"]}):
            with pytest.raises(InvalidRequestError, match="term_index"):
                table.alter(**change)  # type: ignore[arg-type]
        instance.set_properties("logs", {"term_index": ""})
        table.latest().alter(rename={"message": "text"})
        instance.set_properties("logs", {"term_index": "text"})
        found = table.latest().query(where="has(text, 'zebrafish')")
        assert len(found.to_arrow()) == 2
        assert found.reads.row_groups == 2
        table.latest().alter(add=[Field("message", Primitive.STRING, nullable=True)])
        assert ids(table.latest(), "has(message, 'zebrafish')") == []


def test_the_latest_rows_are_found_and_older_ones_stay_hidden(tmp_path: Path) -> None:
    with Instance.open(tmp_path / "mice", background=False) as instance:
        table = instance.create_table(
            "latest",
            SCHEMA,
            row_keys=["id"],
            properties={"keep": "latest", "term_index": "message"},
        )
        for word in ("old", "new"):
            table.ingest(
                pa.table(
                    {
                        "id": range(9_000),
                        "message": [f"{word} w{n % 5_000}" for n in range(9_000)],
                        "level": ["INFO"] * 9_000,
                    }
                )
            )
            instance.wait()
        assert ids(table, "has(message, 'old')") == []
        assert ids(table, "has(message, 'w77')") == [77, 5_077]
        assert len(ids(table, "has(message, 'new')")) == 9_000
        found = instance.sql("SELECT count(*) AS n FROM latest WHERE has(message, 'old')")
        assert found.to_arrow().column("n").to_pylist() == [0]


@pytest.mark.parametrize(
    ("properties", "sort_keys"),
    [
        ({"keep": "latest"}, []),
        ({"keep": "latest", "latest_by": "n"}, ["at"]),
        ({"aggregations": "last(message), last(n)"}, ["at"]),
        ({"aggregations": "first(message), first(n)", "filters": "where(k < '5')"}, ["at"]),
        ({"aggregations": "max(message), sum(n)"}, ["at"]),
    ],
)
def test_rows_that_are_chosen_of_several_are_those_of_a_scan_and_fewer_are_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    properties: dict[str, str],
    sort_keys: list[str],
) -> None:
    monkeypatch.setattr(parquet, "FIRST_ROW_GROUP_ROWS", 16)
    monkeypatch.setattr(parquet, "MAX_ROW_GROUP_ROWS", 16)
    chosen = random.Random(3)
    with Instance.open(tmp_path / "mice", background=False) as instance:
        kinds = ({}, {"term_index": "message"}, {"term_index": "message", "bloom_columns": "n"})
        names = [f"t{number}" for number in range(len(kinds))]
        for name, more in zip(names, kinds, strict=True):
            instance.create_table(
                name,
                "k:string, at:long, message:string, n:long",
                row_keys=["k"],
                sort_keys=sort_keys,
                properties={**properties, **more},  # type: ignore[arg-type]
            )
        words = [f"w{number}" for number in range(400)]
        for number in range(4):
            keys = chosen.sample(range(600), k=400)
            rows = pa.table(
                {
                    "k": [f"{k:03}" * (1 + k % 2) for k in keys],
                    "at": chosen.choices(range(3), k=400),
                    "message": [" ".join(chosen.choices(words, k=2)) for _ in keys],
                    "n": chosen.choices(range(9), k=400),
                }
            )
            for name in names:
                instance.table(name).ingest(rows)
                if number == 1 and "keep" in properties:
                    instance.table(name).delete(where="n = 4")
        plain, *indexed = map(instance.table, names)
        assert plain.status().shards == 4
        fewer = 0
        for word in words[:12]:
            has = f"has(message, '{word}')"
            for where in (has, f"{has} AND n = 2", f"message LIKE '{word} %' OR {has}"):
                expected = plain.query(where=where)
                rows = expected.to_arrow()
                for table in indexed:
                    found = table.query(where=where)
                    assert found.to_arrow() == rows, where
                    fewer += found.reads.row_groups < expected.reads.row_groups // 2
        assert bool(fewer) == ("max" not in properties.get("aggregations", ""))


def test_filters_of_tables_use_words(tmp_path: Path, rows: pa.Table) -> None:
    with Instance.open(tmp_path / "mice", background=False) as instance:
        properties = {"filters": "where(NOT has(message, 'zebrafish'))", "term_index": "message"}
        table = instance.create_table("logs", SCHEMA, row_keys=["id"], properties=properties)
        table.ingest(rows)
        instance.wait()
        assert ids(table, "has(message, 'zebrafish') OR has(message, 'zebra')") == [20_000]


def test_other_readers_read_a_shard_with_a_term_index(tmp_path: Path, rows: pa.Table) -> None:
    folder = tmp_path / "mice"
    with Instance.open(folder, background=False) as instance:
        properties = {"term_index": "message", "bloom_columns": "id"}
        instance.create_table("t", SCHEMA, row_keys=["id"], properties=properties).ingest(rows)
        instance.wait()
        assert ids(instance.table("t"), "has(message, 'zebrafish')") == [4_000, 15_000]
        instance.table("t").check(all_bytes=True)
    (shard,) = folder.glob("tables/*/data/*.parquet")
    assert pq.read_table(shard).to_pydict() == rows.to_pydict()
    text = f"SELECT count(*) FROM '{shard}' WHERE message LIKE '%zebrafi%'"
    assert duckdb.connect().execute(text).fetchall() == [(2,)]
