"""Statements for Spark: exact over what who asks may read, and nothing else is reached."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec import structs
from pyspark import SparkContext
from pyspark.sql import DataFrame

from dormouse.access import AccessRule
from dormouse.client.instance import Instance
from dormouse.errors import DormouseError
from dormouse.features.queries import load_query
from dormouse.features.query_plans import spark_text
from dormouse.features.query_runs import compute, following
from dormouse.messages.stages import CancelQuery, OutboundMessage, StatementJob
from dormouse.tables.properties import SparkOptions
from dormouse_spark import statement
from dormouse_spark.datasource import TableReader
from dormouse_spark.statement import naming_errors, open_views, parsed, source_of, write_statement
from tests.support.spark_access import WorldAccess
from tests.support.waiting import LIMIT_SECONDS
from tests.support.world import LETTERS, World, letters
from tests.unit.features.asking import asks, ended, parts

WHO = "aws-id:ADAM"
FILTERED = "where(at < 100)"


def begun(world: World, sql: str, **asked: object) -> StatementJob:
    asks(world, sql=sql, spark=SparkOptions(), who=WHO, **asked)
    (sent,) = world.deliver(world.queue.popleft())
    assert isinstance(sent.message, StatementJob), sent
    return sent.message


def run(spark: SparkContext, world: World, job: StatementJob) -> None:
    """Let a driver compute a statement."""
    write = partial(write_statement, spark, WorldAccess(world), world.services)
    compute(world.services, job, write)
    world.queue += following(world.services, job)
    world.settle()


@pytest.fixture
def tables(world: World) -> World:
    """Two tables, one of them filtered and with a version before, and one with a hidden column."""
    table = world.create("letters", splits=[("m",)], gc_delay_seconds=3600, filters=FILTERED)
    world.create("other.table")
    world.drop("letters/1.parquet", letters("abcxy"))
    world.drop("other.table/1.parquet", letters("bcdx"))
    world.settle()
    assert world.state(table).version == 2
    world.drop("letters/2.parquet", letters("z", at=5) + letters("q", at=500))
    world.settle()
    rules = (
        AccessRule(WHO, "letters", ("read",)),
        AccessRule(WHO, "other.table", ("read",), ("note",)),
    )
    world.tables.change_access_rules(lambda _: rules)
    return world


ANSWERS = {
    "SELECT letter FROM letters ORDER BY 1 DESC": "zyxcba",
    "SELECT letters.letter FROM letters EXCEPT "
    "SELECT letters.letter FROM letters VERSION AS OF 2": "z",
    "WITH letters AS (SELECT * FROM letters WHERE letter < :x) "
    "FROM letters JOIN `other.table` o USING (letter) |> SELECT letter;": "bc",
    "SELECT '${env:HOME}' = concat('$', '{env:HOME}') AS letter": "True",
}
REFUSED = {
    "SELECT note FROM `other.table`": "UNRESOLVED_COLUMN",
    "SELECT * FROM `other.table` WHERE note = 'b1'": "UNRESOLVED_COLUMN",
    "SELECT letter FROM letters, none": "TABLE_OR_VIEW_NOT_FOUND",
    "SELECT letter FROM default.letters": "TABLE_OR_VIEW_NOT_FOUND",
    "SELECT *, 'letters' FROM letters, text.`/etc/hostname`": "TABLE_OR_VIEW_NOT_FOUND",
    "SELECT (SELECT max(x) FROM (SELECT TRANSFORM(at) USING 'cat' AS (x string) FROM letters))": (
        "does what no query over tables does (ScriptTransformation)"
    ),
    "SELECT reflect('java.lang.System', 'lineSeparator') FROM letters": "UNRESOLVED_ROUTINE",
    "SELECT try_reflect('java.lang.System', 'lineSeparator') FROM letters": "UNRESOLVED_ROUTINE",
    "SET letters = 1": "PARSE_SYNTAX_ERROR",
    "CREATE TEMPORARY VIEW letters AS SELECT 1": "PARSE_SYNTAX_ERROR",
    "WITH a AS (SELECT 1) INSERT INTO letters SELECT * FROM a": "PARSE_SYNTAX_ERROR",
    "INSERT OVERWRITE DIRECTORY 'x' USING csv SELECT * FROM letters": "PARSE_SYNTAX_ERROR",
    "EXPLAIN SELECT * FROM letters": "PARSE_SYNTAX_ERROR",
    "SELECT 1; DROP TABLE letters": "PARSE_SYNTAX_ERROR",
    "SELECT CAST(note AS INT) FROM letters": "Spark ended the statement: CAST_INVALID_INPUT",
}
USED = {
    "SELECT letter FROM (TABLE `other.table` UNION ALL SELECT note, at FROM letters)": {
        "other.table": {"letter"},
        "letters": {"note"},
    },
    "SELECT count(*) FROM letters": {"letters": set()},
    "SELECT note FROM letters WHERE letter > 'a' ORDER BY at": {
        "letters": {"letter", "at", "note"}
    },
    "SELECT s.letter FROM (SELECT * FROM letters) AS s (letter, b, c)": {"letters": {"letter"}},
    "SELECT max(b) FROM letters AS l (a, b, c)": {"letters": {"at"}},
    "SELECT letter FROM letters JOIN `other.table` USING (letter)": {
        "letters": {"letter"},
        "other.table": {"letter"},
    },
    "SELECT l.letter FROM letters l NATURAL JOIN letters m": {"letters": {"letter", "at", "note"}},
    "SELECT letters.* EXCEPT (at) FROM letters": {"letters": {"letter", "note"}},
    "SELECT (SELECT max(o.at) FROM `other.table` o WHERE o.letter = l.letter) FROM letters l": {
        "letters": {"letter"},
        "other.table": {"letter", "at"},
    },
    "SELECT to_json(struct(*)) FROM letters": {"letters": {"letter", "at", "note"}},
    "WITH w AS (TABLE letters) SELECT x.letter, y.note FROM w x JOIN w y ON x.at = y.at": {
        "letters": {"letter", "at", "note"}
    },
}


def test_statements_see_the_views_of_who_asks_and_reach_nothing_else(
    spark: SparkContext, tables: World
) -> None:
    begun(tables, "SELECT 1 FROM letters, letters VERSION AS OF 2, `other.table`")
    query = load_query(tables.results, "q")
    assert query is not None
    session, _ = open_views(spark, WorldAccess(tables), tables.services, query)

    def found(sql: str) -> tuple[DataFrame, dict[str, set[str]]]:
        asked = structs.replace(query.asked, parameters={"x": "x"} if ":x" in sql else {})
        return parsed(session, structs.replace(query, asked=asked, text=spark_text(sql).text))

    for sql, expected in ANSWERS.items():
        letters = [str(row["letter"]) for row in found(sql)[0].collect()]
        assert "".join(letters if "ORDER" in sql else sorted(letters)) == expected, sql
    for sql, columns in USED.items():
        assert found(sql)[1] == columns, sql
        narrow = open_views(spark, WorldAccess(tables), tables.services, query, columns)
        asked = structs.replace(
            query, asked=structs.replace(query.asked, parameters={}), text=spark_text(sql).text
        )
        rows = [
            sorted(map(repr, f.collect())) for f in (found(sql)[0], parsed(narrow[0], asked)[0])
        ]
        assert rows[0] == rows[1], sql
    for sql, says in REFUSED.items():
        with pytest.raises(DormouseError) as raised, naming_errors():
            found(sql)[0].collect()
        assert says in str(raised.value), sql


def test_a_statement_reads_the_columns_that_it_uses_alone(tables: World) -> None:
    begun(tables, "SELECT 1 FROM letters")
    query = load_query(tables.results, "q")
    assert query is not None
    (read,) = query.views.values()
    snapshot, _ = statement._snapshot(tables.services, WorldAccess(tables), read)
    for columns in (["letter"], ["note", "at"], ["letter", "at", "note"]):
        source = source_of("narrow", snapshot, columns)({})
        reader = source.reader(source.schema())
        batches = [b for part in reader.partitions() for b in reader.read(part)]
        assert isinstance(reader, TableReader)
        assert list(reader.snapshot.selection.columns) == columns
        table = pa.Table.from_batches(batches)
        assert table.num_rows == 6 and table.column_names == source.schema().names
        assert {n for n in table.column_names if len(set(table[n].to_pylist())) > 1} == set(columns)


def test_what_was_written_first_is_the_result(spark: SparkContext, tables: World) -> None:
    sql = "SELECT l.letter, l.at FROM letters l JOIN `other.table` o ON l.letter > o.letter"
    job = begun(tables, f"{sql} WHERE o.letter = :x", format="json", parameters={"x": "x"})
    for _ in range(2):
        run(spark, tables, job)
    end = ended(tables)
    assert end.state == "finished", end.reason
    assert sorted(file.name for file in end.files) == parts(tables)
    lines = [
        line
        for file in end.files
        for line in tables.results.get(f"queries/q/{file.name}").splitlines()
    ]
    rows = sorted((row["letter"], row["at"]) for row in map(json.loads, lines))
    assert rows == [("y", 4), ("z", 5)]
    assert (end.rows, sorted(end.versions)) == (2, ["letters", "other.table"])
    assert sorted(map(sorted, end.columns.values())) == [["at", "letter"], ["letter"]]
    assert end.read_bytes > 0


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        ({"rows": 2}, "more than 2 rows"),
        ({"read_bytes": 1}, "bytes read of shards"),
        ({"result_bytes": 1}, "bytes of its result"),
    ],
)
def test_a_statement_stays_within_its_limits(
    spark: SparkContext, tables: World, limit: dict[str, int], says: str
) -> None:
    run(spark, tables, begun(tables, "SELECT * FROM letters", limits=limit))
    assert says in ended(tables).reason


@pytest.mark.parametrize(
    ("column", "says"),
    [
        ("parse_json('1')", "'x' of the result is variant, which"),
        ("array(struct(parse_json('1') AS v))", "'x' of the result is array<struct<v:variant>>"),
        ("array()", "'x' of the result is array<void>"),
        ("INTERVAL '1' YEAR", "'x' of the result is interval year"),
    ],
)
def test_a_column_that_no_file_can_have_is_refused_by_its_name(
    spark: SparkContext, tables: World, column: str, says: str
) -> None:
    run(spark, tables, begun(tables, f"SELECT {column} AS x FROM letters"))
    assert (ended(tables).state, ended(tables).error) == ("failed", "InvalidRequestError")
    assert says in ended(tables).reason and "to_json" in ended(tables).reason


def test_what_no_repeat_can_cure_ends_a_statement_with_its_reason(
    spark: SparkContext, tables: World
) -> None:
    (damaged, *_) = tables.shard_objects(tables.tables.named("letters"))
    path = next((tables.folder / "data").rglob(f"{damaged}.parquet"))
    path.write_bytes(bytes(path.stat().st_size))
    run(spark, tables, begun(tables, "SELECT * FROM letters"))
    assert (ended(tables).state, ended(tables).error) == ("failed", "DamagedShardError")
    assert damaged in ended(tables).reason and "hint" not in ended(tables).reason


def test_spark_is_stopped_for_a_query_that_was_cancelled(
    spark: SparkContext, tables: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statement, "LOOK_SECONDS", 0.01)
    job = begun(tables, "SELECT count(*) FROM letters, range(1000000000000)")

    def cancelled_then(*given: object) -> object:
        tables.deliver(OutboundMessage("queries", CancelQuery(query_id="q", who=WHO)))
        return parsed(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(statement, "parsed", cancelled_then)
    run(spark, tables, job)
    assert ended(tables).state == "cancelled"


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Instance]:
    monkeypatch.delenv("DORMOUSE_SPARK", raising=False)
    with Instance.open(tmp_path / "mice", background=False) as instance:
        yield instance


def test_a_folder_computes_a_statement_by_spark_submit(instance: Instance) -> None:
    """One run, which starts Java and Python processes: the real thing takes its time."""
    for name, text in (("letters", "abc"), ("other", "bcd")):
        instance.create_table(name, LETTERS).ingest(pa.Table.from_pylist(letters(text)))
    exported = instance.export_sql(
        "SELECT l.letter, count(*) OVER () AS n FROM letters l JOIN other USING (letter) "
        "WHERE l.letter <> :x",
        {"x": "b"},
        form="json",
        spark=SparkOptions(),
        timeout_seconds=LIMIT_SECONDS,
    )
    (file,) = exported.manifest.files
    written = Path(exported.uri.removeprefix("file://")) / file.name
    assert json.loads(written.read_text()) == {"letter": "c", "n": 1}
    assert exported.manifest.rows == 1 and sorted(exported.manifest.versions) == [
        "letters",
        "other",
    ]
    states = {(job.kind, job.state) for job in instance.table("letters").jobs()}
    assert ("query", "finished") in states
