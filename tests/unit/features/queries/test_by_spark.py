"""A statement for Spark is one job, which reads what was pinned, and ends its query once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dormouse.access import AccessRule
from dormouse.errors import InvalidRequestError, LimitExceededError, UnavailableError
from dormouse.features.deletion import delete_whole_table
from dormouse.features.queries import EndedError, Query, Spent, TaskEnd, load_query
from dormouse.features.query_plans import spark_text
from dormouse.features.query_runs import compute
from dormouse.features.requests import ResultFile
from dormouse.messages.stages import CancelQuery, OutboundMessage, SparkRunChanged, StatementJob
from dormouse.stored.paths import SPARK_JOBS
from dormouse.tables.properties import SparkOptions
from dormouse.tables.table import Table
from tests.support.world import World, letters
from tests.unit.features.asking import asks, ended, pins, record

JOIN = "SELECT l.note FROM letters l JOIN `other.table` USING (letter)"


def two_tables(world: World, **properties: object) -> tuple[Table, Table]:
    tables = (world.create("letters", **properties), world.create("other.table", **properties))
    for table in tables:
        world.drop(f"{table.name}/1.parquet", letters("abc"))
    world.settle()
    return tables


def begun(world: World, sql: str = JOIN, **asked: object) -> StatementJob:
    """Ask a statement, start its run, and return its job."""
    asks(world, sql=sql, spark=SparkOptions(spark_executors=7), **asked)
    (sent,) = world.deliver(world.queue.popleft())
    assert isinstance(sent.message, StatementJob), sent
    assert world.deliver(sent) == world.deliver(sent) == []
    return sent.message


def drive(
    world: World, job: StatementJob, result: Callable[[Query], TaskEnd] | Exception | TaskEnd
) -> None:
    """Do what the driver of a run does, which sends nothing."""

    def computed(query: Query) -> TaskEnd:
        if isinstance(result, Exception):
            raise result
        return result if isinstance(result, TaskEnd) else result(query)

    compute(replace(world.services, metrics=None), job, computed)


def end_run(world: World, outcome: str = "succeeded") -> None:
    run_id = max(world.spark.runs)
    world.spark.ended[run_id] = (outcome, "")
    world.queue.append(OutboundMessage("spark-runs", SparkRunChanged(run_id)))
    world.settle(twice=True)


def rows_of(query: Query, rows: int = 3) -> TaskEnd:
    columns = {read.id: read.selection.columns for read in query.views.values()}
    versions = {read.name: (read.selection.version,) for read in query.views.values()}
    file = ResultFile(f"part-00000-{rows}-000.parquet", rows, 10)
    return TaskEnd((file,), "", Spent(rows, 10), columns=columns, versions=versions)


def test_a_statement_is_one_run_whose_end_is_that_of_its_query(world: World) -> None:
    tables = two_tables(world)
    job = begun(world, who="eve")
    (run,) = world.spark.runs.values()
    assert (run.kind, run.job_id, run.size.executors) == ("query", job.job_id, 7)
    assert [pins(world, table) for table in tables] == [1, 1]
    assert record(world).state == "running"
    drive(world, job, rows_of)
    drive(world, job, lambda query: rows_of(query, 9))
    end_run(world)
    end = ended(world)
    assert (end.state, end.rows, end.who) == ("finished", 3, "eve")
    assert dict(end.versions) == {t.name: (world.state(t).version,) for t in tables}
    assert (record(world).state, record(world).rows) == ("finished", 3)
    found = world.tracker.get(tables[0].id, job.job_id)
    assert found is not None and (found.kind, found.state, found.rows) == ("query", "finished", 3)
    assert [pins(world, table) for table in tables] == [0, 0]
    assert list(world.storage.list(SPARK_JOBS.prefix(tables[0].id))) == []


def test_what_it_may_read_is_fixed_by_rules_when_it_is_asked(world: World) -> None:
    table, _ = two_tables(world)
    rules = (
        AccessRule("aws-id:ADAM", "letters", ("read",), ("note",)),
        AccessRule("aws-id:ADAM", "other.table", ("write",)),
    )
    world.tables.change_access_rules(lambda _: rules)
    version = world.state(table).version
    begun(world, who="aws-id:ADAM")
    world.drop("letters/2.parquet", letters("z"))
    world.settle()
    query = load_query(world.results, "q")
    assert query is not None
    assert list(query.views) == ["letters"]
    assert query.views["letters"].selection.columns == ("letter", "at")
    assert query.views["letters"].selection.version == version


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (LimitExceededError("more than 5 rows"), "more than 5 rows"),
        (UnavailableError("no executor"), "Spark failed 2 times"),
    ],
)
def test_a_statement_that_fails_for_good_fails_its_query(
    world: World, error: Exception, says: str
) -> None:
    two_tables(world, spark_attempts=2)
    job = begun(world)
    for _ in range(2):
        if isinstance(error, UnavailableError):
            with pytest.raises(UnavailableError):
                drive(world, job, error)
            assert record(world).state == "running"
            end_run(world, "failed")
    if not isinstance(error, UnavailableError):
        drive(world, job, error)
        end_run(world)
    end = ended(world)
    assert (end.state, record(world).state) == ("failed", "failed")
    assert says in end.reason
    drive(world, job, AssertionError("what has ended is not computed again"))


def test_a_query_that_ends_meanwhile_is_left_alone(world: World) -> None:
    two_tables(world)
    job = begun(world)
    world.queue.append(OutboundMessage("queries", CancelQuery(query_id="q")))
    world.settle()
    drive(world, job, EndedError())
    end_run(world)
    assert (ended(world).state, record(world).state) == ("cancelled", "cancelled")


def test_time_is_over_for_a_statement_that_still_waits_for_spark(world: World) -> None:
    two_tables(world)
    job = begun(world, limits={"seconds": 60})
    world.clock.advance(seconds=60)
    drive(world, job, AssertionError("too late to begin"))
    end_run(world)
    assert "longer than 60 seconds" in ended(world).reason


@pytest.mark.parametrize("when", ["asked", "waits", "runs", "has run"])
def test_a_statement_whose_table_is_deleted_fails_its_query(world: World, when: str) -> None:
    table, _ = two_tables(world)
    asks(world, sql="SELECT note FROM letters", spark=SparkOptions())
    if when != "asked":
        world.spark.refusals = [UnavailableError("no room")] if when == "waits" else []
        (sent,) = world.deliver(world.queue.popleft())
        world.queue += world.deliver(sent)
    delete_whole_table(world.services, table)
    if when in ("runs", "has run"):
        end_run(world, "failed" if when == "runs" else "succeeded")
    world.settle(twice=True)
    assert (ended(world).state, record(world).state) == ("failed", "failed")
    assert "deleted" in ended(world).reason or "no table" in ended(world).reason


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("SELECT 1", "names no table that you may read"),
        ("SELECT 'letters' -- letters", "names no table that you may read"),
        ("SELECT 1 FROM Letters", "names no table that you may read"),
        ("SELECT 1 FROM letters, lETTERS", "differ only by case"),
        ("SELECT 1 FROM letters VERSION AS OF 99", "99"),
        ("SELECT 1 FROM none VERSION AS OF 1", "none"),
        ("SELECT 1 /* /* */ FROM letters */ FROM letters", "comment within a comment"),
    ],
)
def test_what_cannot_be_pinned_is_refused_before_spark_starts(
    world: World, sql: str, says: str
) -> None:
    two_tables(world)
    if "lETTERS" in sql:
        world.create("lETTERS")
    asks(world, sql=sql, spark=SparkOptions())
    world.settle()
    assert says in ended(world).reason
    assert world.spark.runs == {}


def test_an_instance_without_spark_says_so(world: World, tmp_path: object) -> None:
    two_tables(world)
    world.services = replace(world.services, spark=None, has_spark=False)
    asks(world, sql=JOIN, spark=SparkOptions())
    world.settle()
    assert "no Spark" in ended(world).reason


def test_an_instance_that_lost_its_spark_ends_what_waits_for_it(world: World) -> None:
    two_tables(world)
    asks(world, sql=JOIN, spark=SparkOptions())
    world.queue += world.deliver(world.queue.popleft())
    world.services = replace(world.services, spark=None, has_spark=False)
    world.settle(twice=True)
    assert (ended(world).state, ended(world).reason) == (
        "failed",
        "the instance has no Spark any more",
    )


@pytest.mark.parametrize(
    ("text", "views", "rewritten"),
    [
        ("FROM t VERSION AS OF 3", {"t@3": ("t", "3")}, "FROM `t@3` AS `t`"),
        ("FROM t FOR version as of 3 x", {"t@3": ("t", "3")}, "FROM `t@3` x"),
        ("FROM t SYSTEM_VERSION AS OF 'jan' AS x", {"t@jan": ("t", "jan")}, "FROM `t@jan` AS x"),
        (
            "FROM `a.b` VERSION AS OF 3 JOIN t USING (k)",
            {"a.b@3": ("a.b", "3")},
            "FROM `a.b@3` AS `a.b` JOIN t USING (k)",
        ),
        (
            "FROM t VERSION AS OF 1, t VERSION AS OF 2 u",
            {"t@1": ("t", "1"), "t@2": ("t", "2")},
            "FROM `t@1` AS `t`, `t@2` u",
        ),
        ("SELECT 't VERSION AS OF 3' FROM t", {}, "SELECT 't VERSION AS OF 3' FROM t"),
        ('SELECT "t VERSION AS OF 3\\" "', {}, 'SELECT "t VERSION AS OF 3\\" "'),
        ("SELECT r'\\', t -- t VERSION AS OF 3", {}, "SELECT r'\\', t -- t VERSION AS OF 3"),
        (
            "/* ' */ FROM t VERSION /* of */ AS OF 3",
            {"t@3": ("t", "3")},
            "/* ' */ FROM `t@3` AS `t`",
        ),
        ("SELECT $$t VERSION AS OF 3$$", {}, "SELECT $$t VERSION AS OF 3$$"),
        (
            "SELECT '😀' FROM t VERSION AS OF 3",
            {"t@3": ("t", "3")},
            "SELECT '😀' FROM `t@3` AS `t`",
        ),
    ],
)
def test_a_reference_with_a_version_becomes_a_view_of_it(
    text: str, views: dict[str, tuple[str, str]], rewritten: str
) -> None:
    found = spark_text(text)
    assert (found.versions, found.text) == (views, rewritten)


def test_a_statement_that_is_no_text_for_spark_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="characters"):
        spark_text("x" * 300_000)
