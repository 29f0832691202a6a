"""Statements: what is no query is refused with its place, and references to tables are found."""

from __future__ import annotations

import pytest

from dormouse.errors import InvalidRequestError
from dormouse.sql.statements import MAX_REFERENCES, MAX_SELECTS, Reference, parse_statement
from dormouse.sql.text_limits import MAX_STATEMENT_CHARACTERS


def tables_of(text: str) -> list[str]:
    return [reference.table for reference in parse_statement(text).references]


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("SELECT 1 FROM t", 'SELECT 1 FROM "#0" AS "t"'),
        ("SELECT x.a FROM t x", 'SELECT x.a FROM "#0" x'),
        ("SELECT x.a FROM t AS x;", 'SELECT x.a FROM "#0" AS x'),
        ('SELECT a FROM "a.b", c', 'SELECT a FROM "#0" AS "a.b", "#1" AS "c"'),
        ("SELECT a FROM t FOR VERSION AS OF 33 u", 'SELECT a FROM "#0" u'),
        ("SELECT a FROM t FOR VERSION AS OF 33", 'SELECT a FROM "#0" AS "t"'),
        ("EXPLAIN SELECT a FROM t", '        SELECT a FROM "#0" AS "t"'),
        ("SELECT a FROM t WHERE b = :b", 'SELECT a FROM "#0" AS "t" WHERE b = $b'),
        ("SELECT ':b', a[1:n], a::int FROM t", 'SELECT \':b\', a[1:n], a::int FROM "#0" AS "t"'),
        ("SELECT 'é', 1 FROM t -- t", 'SELECT \'é\', 1 FROM "#0" AS "t"'),
        ("(SELECT 1) UNION ALL SELECT a FROM t", '(SELECT 1) UNION ALL SELECT a FROM "#0" AS "t"'),
        ("SELECT $1,$2+$a FROM t", 'SELECT $1,$2+$a FROM "#0" AS "t"'),
        ("VALUES (1, 2)", "VALUES (1, 2)"),
        ("SELECT * FROM generate_series(1, 3)", "SELECT * FROM generate_series(1, 3)"),
    ],
)
def test_only_references_versions_and_parameters_are_replaced(text: str, sql: str) -> None:
    assert parse_statement(text).sql == sql


def test_a_reference_knows_its_version_and_its_place() -> None:
    text = (
        "SELECT 1 FROM a,\n  b FOR TIMESTAMP AS OF '2026-01-31T12:00Z' x, c FOR VERSION AS OF 't'"
    )
    assert parse_statement(text).references == (
        Reference("#0", "a", "", 1, 15),
        Reference("#1", "b", "2026-01-31T12:00Z", 2, 3),
        Reference("#2", "c", "t", 2, 48),
    )


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("WITH a AS (SELECT 1 FROM t) SELECT * FROM a", ["t"]),
        ("WITH t AS (SELECT 1 FROM t) SELECT * FROM t", ["t"]),
        ("WITH a AS (SELECT 1 FROM b), b AS (SELECT 1 FROM a) SELECT * FROM b, c", ["b", "c"]),
        ("WITH RECURSIVE a AS (SELECT 1 UNION ALL SELECT 1 FROM a) SELECT * FROM a", []),
        ("SELECT * FROM (WITH a AS (SELECT 1) SELECT * FROM a) x, a", ["a"]),
        ("WITH a AS (SELECT 1) SELECT 1 WHERE EXISTS (SELECT 1 FROM a, t)", ["t"]),
        ("SELECT * FROM t JOIN LATERAL (SELECT * FROM u WHERE u.a = t.a) x ON true", ["t", "u"]),
        ("SELECT EXTRACT(YEAR FROM a), TRIM(BOTH ' ' FROM b) FROM t", ["t"]),
        ("SELECT a IS DISTINCT FROM b FROM t", ["t"]),
        ("SELECT * FROM '/etc/passwd'", ["/etc/passwd"]),
    ],
)
def test_tables_are_told_from_ctes_and_from_other_words(text: str, tables: list[str]) -> None:
    assert tables_of(text) == tables


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        (" ; ", "is empty"),
        ("COPY t TO 'x'", "line 1, column 1: COPY cannot be run"),
        ("\n  DROP TABLE t", "line 2, column 3: DROP cannot be run"),
        ("CREATE TABLE a AS SELECT 1", "CREATE cannot be run"),
        ("CREATE EXTERNAL TABLE a STORED AS CSV LOCATION '/etc/passwd'", "CREATE cannot be run"),
        ("SET a = 1", "SET cannot be run"),
        ("SHOW TABLES", "SHOW cannot be run"),
        ("EXPLAIN ANALYZE SELECT 1", "line 1, column 9: ANALYZE cannot be run"),
        ("SELECT 1; DROP TABLE t", "line 1, column 11: a second statement"),
        ("WITH a AS (INSERT INTO t VALUES (1) RETURNING *) SELECT * FROM a", "INSERT"),
        ("WITH a AS (DELETE FROM t RETURNING *) SELECT * FROM a", "DELETE"),
        ("SELECT * INTO a FROM t", "INTO is not allowed"),
        ("SELECT * FROM t FOR UPDATE", "LOCK is not allowed"),
        ("SELECT * FROM read_parquet('/x')", "read_parquet is not allowed in the place of a table"),
        ("SELECT * FROM read_csv_auto('http://x')", "not allowed in the place of a table"),
        ("SELECT * FROM other.t", "line 1, column 21: a table is named by itself alone"),
        ("SELECT * FROM t TABLESAMPLE (5)", "a table is named by itself alone"),
        ("SELECT * FROM t FOR VERSION AS OF a", "version of the table is not understood"),
        ("SELECT * FROM t FOR VERSION AS OF ''", "version of the table is not understood"),
        ("SELECT * FROM t FOR VERSION BETWEEN 1 AND 2", "version of the table is not"),
        ("SELECT a FROM t WHERE (a = 1", "is not SQL at line 1, column 28"),
        ("SELECT a FROM t WHERE a =", "something is missing"),
        ("SELECT 'a", "is not SQL"),
        ("SELECT 1, $a$ FROM t $a$", "line 1, column 11: text in dollars"),
        ('WITH "#0" AS (SELECT 1 AS a) SELECT a FROM t', "a WITH cannot be called #0"),
        ("SELECT " + "(" * 5000 + "1" + ")" * 5000, "nested too deeply"),
        ("SELECT " + "NOT " * 20_000 + "true", "nested too deeply"),
        ("SELECT 1 FROM " + ", ".join(["t"] * (MAX_REFERENCES + 1)), "at most 64 are allowed"),
        (" UNION ALL ".join(["SELECT 1"] * (MAX_SELECTS + 1)), "has 257 SELECTs; at most 256"),
        ("SELECT " + "1" * MAX_STATEMENT_CHARACTERS, "at most 262,144 are allowed"),
        ("SELECT '\ud800'", "unpaired surrogate"),
    ],
)
def test_what_is_no_query_is_refused_with_the_place(text: str, problem: str) -> None:
    with pytest.raises(InvalidRequestError, match=problem.replace("(", r"\(")):
        parse_statement(text)


def test_parameters_are_found_in_their_order() -> None:
    text = "SELECT $2, :b, $1, '$3', :b FROM t WHERE c > $d"
    assert parse_statement(text).parameters == ("2", "b", "1", "d")
