"""What docs/iceberg.md has for Spark, Trino and ClickHouse runs as it is there; both read tables
with rules as a query does, and change nothing. Run by ``make test-engines``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from dormouse.client.instance import Instance
from tests.engines.documented import ENDPOINT, OTHERS, blocks, check_users, run_python, users
from tests.engines.environment import why_left_out

PACKAGES = '"spark.jars.packages", "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0"'
TABLE, VIEW = "mice.dormouse.users", "mice.dormouse.totals"
WRITES = {
    "insert": f"INSERT INTO {TABLE} VALUES (1, 'x')",
    "delete": f"DELETE FROM {TABLE} WHERE id = 7",
    "drop": f"DROP TABLE {TABLE}",
    "create": "CREATE TABLE mice.dormouse.more (a INT)",
}
PROCEDURES = {
    "orphans": "CALL mice.system.remove_orphan_files(table => 'dormouse.users')",
    "purge": f"DROP TABLE {TABLE} PURGE",
}
TRY = """
for name, statement in {writes!r}.items():
    try:
        run(statement)
        print(name, "SUCCEEDED")
    except Exception as error:
        print(name, "refused:", str(error).replace("\\n", " ")[:300])
"""
REFUSED = re.compile("does not support endpoint|can only be read|GC is disabled|gc.enabled")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Instance, str]]:
    with users(tmp_path_factory.mktemp("documented")) as found:
        yield found


def need(engine: str) -> None:
    if reason := why_left_out(engine):
        pytest.skip(f"left out {engine}: {reason}")


def check_refused(printed: str, names: list[str]) -> None:
    lines = {line.partition(" ")[0]: line for line in printed.splitlines()}
    for name in names:
        assert REFUSED.search(lines[name]), lines[name]


def check_totals(instance: Instance, printed: str) -> None:
    expected = instance.table("totals").query().read_all().to_pylist()
    rows = sorted((row["id"], row["clicks"]) for row in expected)
    assert f"totals {rows}" in printed
    assert rows[3] == (3, 9)


def check_unchanged(instance: Instance) -> None:
    assert instance.table("users").query().read_all().num_rows == 203
    assert instance.table("users").iceberg.check() == []


@pytest.mark.parametrize("engine", ["spark-1.11", "spark-1.10"])
def test_spark_reads_as_the_page_says_and_changes_nothing(
    engine: str, served: tuple[Instance, str]
) -> None:
    need(engine)
    instance, uri = served
    (code,) = blocks("Spark")
    assert PACKAGES in code
    code = code.replace(PACKAGES, '"spark.jars", os.environ["DORMOUSE_ICEBERG_JAR"]')
    code = code.replace(
        "SparkSession.builder\n",
        'SparkSession.builder.master("local[2]").config("spark.driver.host", "127.0.0.1")'
        '.config("spark.ui.enabled", "false")\n',
    )
    more = f"""
print("totals", sorted(tuple(row) for row in spark.sql("SELECT id, clicks FROM {VIEW}").collect()))
run = lambda statement: spark.sql(statement).collect()
{TRY.format(writes={**WRITES, **PROCEDURES})}
"""
    printed = run_python(engine, code + more, uri)
    check_users(printed)
    check_totals(instance, printed)
    check_refused(printed, [*WRITES, *PROCEDURES])
    check_unchanged(instance)


def test_trino_reads_as_the_page_says_and_changes_nothing(served: tuple[Instance, str]) -> None:
    need("trino")
    instance, uri = served
    properties, query = blocks("Trino")
    assert ENDPOINT in properties
    catalog = dict(line.split("=", 1) for line in properties.replace(ENDPOINT, uri).splitlines())
    code = f"""
from trino_reader import rows, trino_cursor
with trino_cursor({catalog!r}) as cursor:
    run = lambda statement: rows(cursor, statement)
    print(run({query!r}))
    print("totals", sorted((row["id"], row["clicks"]) for row in run("SELECT * FROM {VIEW}")))
"""
    code += "\n".join(f"    {line}" for line in TRY.format(writes=WRITES).splitlines())
    printed = run_python("trino", code, uri)
    check_users(printed)
    check_totals(instance, printed)
    check_refused(printed, [*WRITES])
    check_unchanged(instance)


def test_clickhouse_reads_as_the_page_says(served: tuple[Instance, str]) -> None:
    need("clickhouse")
    instance, uri = served
    (query,) = blocks("ClickHouse")
    shown = instance.table("users").iceberg.show()
    file = shown.metadata.removeprefix(f"{shown.folder}/")
    for found, here in ((r"(?<=icebergLocal\(')[^']+", shown.folder), ("metadata/0[^']+", file)):
        query, count = re.subn(found, here, query)
        assert count == 1
    code = f"import os, chdb; os.chdir('/'); print(chdb.query({query!r}))"
    check_users(run_python("clickhouse", code, uri))
    line = shown.engines["ClickHouse"]
    code = f"import os, chdb; os.chdir('/'); print(chdb.query({line!r}))"
    assert run_python("clickhouse", code, uri).count(OTHERS) == 200
