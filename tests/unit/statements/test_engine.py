"""The engine by itself: what a text could reach that passed every check."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import duckdb
import pytest

from dormouse.errors import InvalidRequestError
from dormouse.statements import engine
from dormouse.statements.statement import FUNCTIONS, HAS, REMEMBERED_CHARACTERS, parse_statement

MEMORY_BYTES = 64 * 1024 * 1024
REFUSED = """
__* IS* assert_true bitstring_byte_comparable col_description collate_* combine combine_aggr
constant_or_null create_sort_key dormouse_* current_connection_id current_query current_query_id
current_schemas current_setting current_transaction_id currval decimal_average decimal_division
error finalize format_pg_type format_type get_block_size getvariable has_*_privilege icu_*
in_search_path index_key inet_* json_copy_* json_deserialize_sql json_serialize_* map_to_pg_oid
map_type_id_to_pg_oid nextval obj_description parse_duckdb_log_message pg_*visible pg_conf_*
pg_get_* pg_has_role pg_is_* pg_my_* pg_postmaster_* pg_sleep remap_struct setseed setval
shobj_description sleep_ms stats timetz_byte_comparable to_aggregate_state txid_current
variant_bytes_to_variant variant_comparator variant_normalize variant_to_parquet_variant vector_type
version write_log
"""
"""Functions of DuckDB that no statement needs, or that do more than to compute from their
arguments: a macro may read settings, or end a statement with a value as its error.
"""


@pytest.fixture(scope="module")
def cursor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    database = engine.database(tmp_path_factory.mktemp("scratch"), MEMORY_BYTES)
    with database.connection.cursor() as opened:
        yield opened


def test_only_few_databases_stay_open_without_a_statement(tmp_path: Path) -> None:
    held = engine.database(tmp_path, MEMORY_BYTES)
    with held.connection.cursor() as cursor:
        for number in range(9):
            engine.database(tmp_path, MEMORY_BYTES + number + 1)
        assert len(list(tmp_path.iterdir())) <= 5
        assert cursor.execute("SELECT 1").fetchall() == [(1,)]
    assert engine.database(tmp_path, MEMORY_BYTES) is held


def test_a_fork_leaves_databases_to_its_parent(tmp_path: Path) -> None:
    held = engine.database(tmp_path, MEMORY_BYTES)
    folder, child = held.files, os.fork()
    if child == 0:
        del held
        for _ in range(9):
            engine.database(tmp_path, MEMORY_BYTES)
        os._exit(0)
    ended = select.select([os.pidfd_open(child)], [], [], 20)[0]
    os.kill(child, signal.SIGKILL)
    assert (os.waitpid(child, 0)[1], bool(ended), folder.exists()) == (0, True, True)
    with held.connection.cursor() as cursor:
        assert cursor.execute("SELECT 1").fetchall() == [(1,)]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM read_blob('{file}')",
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM '{file}'",
        "SELECT * FROM glob('{folder}/*')",
        "COPY (SELECT 1) TO '{folder}/out.csv'",
        "EXPORT DATABASE '{folder}'",
        "ATTACH '{folder}/other.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "SET memory_limit = '1TB'",
        "RESET memory_limit",
        "PRAGMA threads = 64",
        "SELECT * FROM secret",  # a variable of whatever Python calls
    ],
)
def test_nothing_outside_is_reached(
    cursor: duckdb.DuckDBPyConnection, tmp_path: Path, text: str
) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    with pytest.raises(duckdb.Error):
        cursor.execute(text.format(file=secret, folder=tmp_path)).fetchall()
    assert [path.name for path in tmp_path.iterdir()] == ["secret.csv"]


@pytest.mark.parametrize(
    "text", ["COPY (SELECT 1 AS a) TO 'x.csv'", "DELETE FROM t", "UPDATE t SET a = 1"]
)
def test_a_part_of_a_query_that_writes_is_refused(
    cursor: duckdb.DuckDBPyConnection, text: str
) -> None:
    for whole in (f"WITH w AS ({text}) SELECT 1", f"SELECT * FROM (WITH w AS ({text}) SELECT 1)"):
        with pytest.raises(InvalidRequestError, match="cannot be run, only queries can"):
            parse_statement(whole, cursor)


@pytest.mark.parametrize("text", [None, 1, b"SELECT 1", ["SELECT 1"], {"sql": "SELECT 1"}])
def test_what_is_no_text_is_no_statement(cursor: duckdb.DuckDBPyConnection, text: str) -> None:
    with pytest.raises(InvalidRequestError, match="a statement is SQL text"):
        parse_statement(text, cursor)


def test_statements_are_remembered_but_few_characters_of_them(
    cursor: duckdb.DuckDBPyConnection,
) -> None:
    texts = [f"SELECT {number}" for number in range(REMEMBERED_CHARACTERS // 1024)]
    first = parse_statement(texts[0], cursor)
    assert parse_statement(texts[0], cursor) is first
    for text in texts:
        parse_statement(text, cursor)
    assert parse_statement(texts[0], cursor) is not first
    long = f"SELECT '{'x' * REMEMBERED_CHARACTERS}'"
    assert parse_statement(long, cursor) is not parse_statement(long, cursor)


def test_rows_of_values_are_checked_like_the_rest(cursor: duckdb.DuckDBPyConnection) -> None:
    for part, problem in {
        "current_setting('threads')": "current_setting is not allowed",
        "(SELECT count(*) FROM duckdb_settings())": "duckdb_settings is not allowed",
        "(WITH w AS (COPY (SELECT 1) TO 'x') SELECT 1)": "COPY cannot be run",
    }.items():
        for text in (f"VALUES (1), ({part})", f"SELECT * FROM (VALUES (1, {part})) v"):
            with pytest.raises(InvalidRequestError, match=problem):
                parse_statement(text, cursor)
    (found,) = parse_statement("VALUES (1), ((SELECT max(a) FROM r))", cursor).references
    assert found.table == "r"


def test_only_what_is_one_of_with_for_the_engine_is_taken_for_one(
    cursor: duckdb.DuckDBPyConnection,
) -> None:
    """Names differ by the case of the letters from A to Z alone: the Kelvin sign is no k."""
    texts = {
        'WITH "\u212aa" AS (SELECT 1) SELECT * FROM ka': ["ka"],
        'WITH "Ka" AS (SELECT 1) SELECT * FROM ka': [],
        "WITH RECURSIVE r AS ((WITH z AS (FROM r) FROM z) UNION ALL FROM r) FROM r": ["r"],
        "WITH RECURSIVE r AS (SELECT 1 UNION ALL (WITH z AS (FROM r) FROM z)) FROM r": [],
    }
    for text, tables in texts.items():
        found = parse_statement(text, cursor).references
        assert [each.table for each in found] == tables, text
    views = cursor.execute(
        "SELECT view_name FROM duckdb_views() WHERE schema_name IN ('main', 'pg_catalog')"
    ).fetchall()
    for (view,) in views:
        with pytest.raises(InvalidRequestError, match="DuckDB has a view of its own"):
            parse_statement(f"WITH {view} AS (SELECT 1) SELECT * FROM {view}", cursor)


def test_references_get_names_that_nothing_in_the_text_has(
    cursor: duckdb.DuckDBPyConnection,
) -> None:
    found = parse_statement("""WITH "#0" AS (SELECT 7) SELECT '"#2"' FROM r, s""", cursor)
    assert [each.name for each in found.references] == ["#1", "#3"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("SELECT * FROM r: s", "not named after FROM"),
        ("SELECT * FROM\u00a0r", "not named after FROM"),
        ("TABLE r", "not named after FROM"),
        ("SELECT * FROM main.r", "a table is named on its own"),
        ("SELECT * FROM (TABLE r)", "not named after FROM"),
        ("PIVOT r ON k USING sum(v)", "PIVOT without the values"),
        ("SELECT * FROM (DESCRIBE r)", "DESCRIBE, SUMMARIZE and SHOW"),
        (f"SELECT {'a.' * 64}a FROM r", "nested too deeply"),
        (f"SELECT {'a' * 1001} FROM r", "a name or number has more than 1,000 characters"),
        (f'SELECT * FROM "{"a" * 1001}"', "a name or number has more than 1,000 characters"),
        (f"SELECT {'1' * 1001}", "a name or number has more than 1,000 characters"),
    ],
)
def test_what_cannot_be_checked_is_refused(
    cursor: duckdb.DuckDBPyConnection, text: str, problem: str
) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        parse_statement(text, cursor)


def test_a_process_that_ends_with_an_open_result_says_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; from dormouse.client import Instance\n"
        "found = Instance.open(sys.argv[1]).sql('SELECT * FROM range(1000000)')\n"
        "next(iter(found.batches))\n"
        "try:\n    Instance.open(sys.argv[1]).sql('SELECT 1 % 0').to_arrow()\n"
        "except Exception as error:\n    kept = error\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "mice")]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout + ended.stderr == ""


def test_each_function_of_the_engine_is_in_the_list_or_known_to_be_refused(
    cursor: duckdb.DuckDBPyConnection,
) -> None:
    found = (
        cursor.cursor()
        .sql(
            "SELECT DISTINCT function_name FROM duckdb_functions() WHERE database_name = 'system' "
            "AND function_type IN ('scalar', 'aggregate', 'macro', 'window')"
        )
        .fetchall()
    )
    names, patterns = {name for (name,) in found}, REFUSED.split()
    refused = {name for name in names for each in patterns if fnmatchcase(name, each)}
    small = {name.lower() for name in names - refused}
    assert small - {HAS} == FUNCTIONS, (
        "look at each, then add it to functions.txt, or to REFUSED here"
    )


@pytest.mark.parametrize(
    "call",
    [
        "sleep_ms(1)",
        "Write_Log('x')",
        "main.current_setting('threads')",
        "system.main.version()",
        "(1).error()",
        "assert_true(1 > 2, 'x')",
        "get_block_size('memory')",
        "list_aggr([1], 'combine_aggr')",
        "[1].array_aggregate('Combine_Aggr')",
        "list_aggregate([1], concat('combine', '_aggr'))",
        "aggregate([1], $name)",
        "list_transform([1], lambda x: current_query_id())",
        "sum(1) OVER (ORDER BY getvariable('x'))",
    ],
)
def test_functions_are_those_of_a_list_however_they_are_named(
    cursor: duckdb.DuckDBPyConnection, call: str
) -> None:
    with pytest.raises(InvalidRequestError, match="is not allowed in a statement|is computed"):
        parse_statement(f"SELECT {call}", cursor)


def test_a_function_that_is_written_wrong_is_named_with_its_neighbour(
    cursor: duckdb.DuckDBPyConnection,
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        parse_statement("SELECT avrg(x), list_aggr([1], 'sum') FROM t", cursor)
    assert refused.value.hint == "did you mean avg?"
