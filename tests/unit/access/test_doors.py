"""How services come to tables: nothing of what a caller may not see can be told from nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from dormouse.access import NOBODY, AccessRule, Verb
from dormouse.client.instance import Instance
from dormouse.errors import ForbiddenError, InvalidRequestError, LimitExceededError, NotFoundError
from dormouse.features import access
from dormouse.features.versions import read_as_of
from dormouse.messages.stages import SelectionMessage
from dormouse.ports import Services
from dormouse.query.rows import query_rows
from dormouse.query.selection import decode_selection
from dormouse.statements.limits import Limits
from dormouse.statements.running import VerifiedFiles, run_statement
from dormouse.statements.statement import TableReference
from dormouse.statements.tables import Opened, SqlTables, TableScan

STAFF = "id:long, since:long, name:string, pay:long, tags:map<string, string>?"
ROWS = [
    {"id": n, "since": 10 - n, "name": f"n{n}", "pay": 100 * n, "tags": [("a", "b")]}
    for n in range(4)
]


LATEST = {"keep": "latest", "latest_by": "pay"}


@pytest.fixture(scope="module", params=[{}, LATEST], ids=["all", "latest"])
def mice(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Instance]:
    """An instance whose tables keep all rows, or the latest by a column that rules may hide."""
    with Instance.open(tmp_path_factory.mktemp("doors") / "mice", background=False) as instance:
        for name in ("staff", "stuff"):
            table = instance.create_table(
                name, STAFF, request.param, row_keys=["id"], sort_keys=["since"]
            )
            late = [{**row, "name": "late", "pay": -1} for row in ROWS]
            for rows in (ROWS, late) if request.param else (ROWS,):
                with table.writer() as writer:
                    for row in rows:
                        writer.write(row)
        instance.wait()
        yield instance


def services(mice: Instance, *rules: AccessRule) -> Services:
    mice.services.tables.change_access_rules(lambda _: rules)
    return mice.services


def hiding(*columns: str, principal: str = "local") -> AccessRule:
    return AccessRule(principal, "staff", ("read",), columns)


def read(served: Services, asked: SelectionMessage) -> list[dict[str, object]]:
    """Return rows as a service does that answers for any caller."""
    seen = access.allowed_table(served, "local", "staff", "read")
    table, state = read_as_of(served, seen.table, None)
    selection = decode_selection(
        asked, table.schema, permission=seen.permission, version=state.version, time_ms=0
    )
    rows: list[dict[str, object]] = (
        query_rows(served, table, state, selection).read_all().to_pylist()
    )
    return rows


def opened(served: Services) -> SqlTables:
    """Return the tables of a statement as such a service opens them."""

    def open_table(name: str, as_of: str) -> Opened:
        seen = access.allowed_table(served, "local", name, "read")
        return seen, read_as_of(served, seen.table, None)[1]

    return SqlTables(served, open_table, 0)


def sql(served: Services, text: str) -> list[dict[str, object]]:
    """Return the rows of a statement as such a service does."""
    result = run_statement(opened(served), text, {}, served.scratch, Limits())
    rows: list[dict[str, object]] = result.read_all().to_pylist()
    return rows


def test_a_table_that_may_not_be_seen_is_as_one_that_is_not_there(mice: Instance) -> None:
    served = services(mice, hiding(), AccessRule("other", "*", ("read",)))
    errors = []
    for name in ("stuff", "stufg"):
        with pytest.raises(NotFoundError) as caught:
            access.allowed_table(served, "local", name, "read")
        errors.append((str(caught.value).replace(name, ""), caught.value.hint))
    assert errors[0] == errors[1]
    assert "staff" in errors[0][1]  # the nearest that may be seen
    assert [each.table.name for each in access.visible_tables(served, "local")] == ["staff"]
    with pytest.raises(NotFoundError) as caught:
        access.allowed_table(served, "third", "staf", "read")
    assert "staff" not in caught.value.explanation
    assert access.visible_tables(served, NOBODY) == access.visible_tables(served, "third") == []


def test_what_may_be_seen_but_not_done_is_forbidden(mice: Instance) -> None:
    served = services(mice, AccessRule("local", "staff", ("write",)))
    assert access.allowed_table(served, "local", "staff", "write").table.name == "staff"
    verbs: tuple[Verb, ...] = ("read", "administer")
    for verb in verbs:
        with pytest.raises(ForbiddenError):
            access.allowed_table(served, "local", "staff", verb)
    with pytest.raises(ForbiddenError):
        access.check_new_name(served, "local", "staff2")
    with pytest.raises(ForbiddenError):
        access.check_instance(served, "local", "write")
    served = services(mice, AccessRule("local", "*", ("administer",)))
    access.check_new_name(served, "local", "staff2")
    access.check_instance(served, "local", "administer")


def test_rights_end_with_their_rule_and_the_last_rule_opens_nothing(mice: Instance) -> None:
    served = services(mice, hiding())
    access.allowed_table(served, "local", "staff", "read")
    services(mice)  # rules are set, and none is left
    with pytest.raises(NotFoundError):
        access.allowed_table(served, "local", "staff", "read")
    served.tables.change_access_rules(lambda _: None)
    access.allowed_table(served, NOBODY, "stuff", "administer")


def test_who_reads_with_rights_of_their_own_never_asks_the_rules(
    mice: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    services(mice)
    monkeypatch.setattr(type(mice.services.tables), "access_rules", None)  # a call fails
    table = mice.table("staff")
    assert table.query(exact=1, where="pay > 0").read_all().num_rows == 1
    assert table.count(where="pay > 0") == 3
    assert mice.sql("SELECT max(pay) AS most FROM staff").read_all().to_pylist() == [{"most": 300}]
    assert [each.name for each in mice.tables()] == ["staff", "stuff"]


def test_hidden_columns_are_in_no_row(mice: Instance) -> None:
    served = services(mice, hiding("pay"))
    assert read(served, SelectionMessage(limit=1))[0].keys() == {"id", "since", "name", "tags"}
    assert sql(served, "SELECT * FROM staff LIMIT 1")[0].keys() == {"id", "since", "name", "tags"}
    seen = access.allowed_table(served, "local", "staff", "read")
    assert "pay" not in seen.schema.dumps()
    assert "pay" not in str(sql(served, "EXPLAIN SELECT * FROM staff WHERE name > 'n'"))


@pytest.mark.parametrize(
    "asked",
    [
        SelectionMessage(columns=("pay",)),
        SelectionMessage(where="pay > 100"),
        SelectionMessage(where="name = 'n1' OR NOT pay > 100"),
    ],
)
def test_hidden_columns_are_as_columns_that_are_not_there(
    mice: Instance, asked: SelectionMessage
) -> None:
    served = services(mice, hiding("pay"))
    with pytest.raises(InvalidRequestError) as caught:
        read(served, asked)
    assert "no column 'pay'" in str(caught.value)
    assert "pay" not in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "SELECT pay FROM staff",
        "SELECT name FROM staff WHERE pay > 100",
        "SELECT name FROM staff ORDER BY pay",
        "SELECT max(pay) FROM staff",
        "SELECT count(*) FROM staff GROUP BY pay",
        "SELECT s.pay FROM staff s",
        'SELECT name FROM staff WHERE EXISTS (SELECT 1 FROM staff t WHERE t."pay" > 1)',
    ],
)
def test_a_statement_cannot_use_hidden_columns(mice: Instance, text: str) -> None:
    served = services(mice, hiding("pay"))
    with pytest.raises(InvalidRequestError) as caught:
        sql(served, text)
    hints = caught.value.explanation.replace("No field named", "").partition("Valid fields")[2]
    assert "pay" not in hints


@pytest.mark.parametrize("verbs", [("read",), ("read", "administer")])
def test_nobody_counts_rows_that_a_filter_hides(tmp_path: Path, verbs: tuple[Verb, ...]) -> None:
    with Instance.open(tmp_path / "mice", background=False) as mice:
        table = mice.create_table("staff", "id:long, pay:long", row_keys=["id"])
        table.ingest(pa.table({"id": range(9), "pay": range(9)}))
        mice.set_properties("staff", {"filters": "where(pay < 5)"}, hide_rows=True)
        served = services(mice, AccessRule("local", "staff", verbs))
        few, none = (
            sql(served, f"EXPLAIN SELECT pay FROM staff WHERE pay = {pay}")[0] for pay in (7, 70)
        )
        numbers = ("partitions", "shards", "row_groups", "requests", "bytes")
        is_told = any(few[each] != none[each] for each in numbers)
        assert is_told == ("administer" in verbs)
        with pytest.raises(LimitExceededError) as caught:
            tables, limits = opened(served), Limits(read_bytes=0)
            run_statement(tables, "SELECT * FROM staff WHERE id > 6", {}, served.scratch, limits)
        assert ("about" in str(caught.value)) == ("administer" in verbs)


@pytest.mark.parametrize("hidden", [(), ("pay",)])
def test_a_statement_reads_no_files_with_hidden_columns(
    tmp_path: Path, hidden: tuple[str, ...]
) -> None:
    with Instance.open(tmp_path / "mice", background=False) as mice:
        for name in ("staff", "other"):
            table = mice.create_table(name, "id:long, pay:long", row_keys=["id"])
            table.ingest(pa.table({"id": range(9), "pay": range(9)}))
        served = services(mice, AccessRule("local", "*", ("read",), hidden))
        tables = opened(served)
        for name in ("staff", "other"):  # of a single small table, rows are streamed
            tables.find(TableReference(name, name, "", 1, 1))
        with closing(VerifiedFiles(served.scratch)) as files:
            assert bool(files.query(tables, "staff", TableScan(("id",)), 0)) is not bool(hidden)


def test_a_statement_cannot_name_a_table_that_is_not_seen(mice: Instance) -> None:
    served = services(mice, hiding())
    with pytest.raises(NotFoundError, match="line 1"):
        sql(served, "SELECT * FROM stuff")


def test_rows_are_not_bounded_by_a_hidden_key_nor_by_one_after_it(mice: Instance) -> None:
    served = services(mice, hiding("since"))
    assert len(read(served, SelectionMessage(keys=((1,),)))) == 1
    with pytest.raises(InvalidRequestError):
        read(served, SelectionMessage(keys=((1, 9),)))
    served = services(mice, hiding("id"))
    assert len(read(served, SelectionMessage())) == 4
    assert [row["since"] for row in read(served, SelectionMessage(where="since > 8"))] == [10, 9]
    for keys in ((1,), (10,), (1, 10)):
        with pytest.raises(InvalidRequestError):
            read(served, SelectionMessage(keys=(keys,)))
    assert sql(served, "SELECT min(since) AS low, count(*) AS n FROM staff") == [{"low": 7, "n": 4}]
    assert [r["since"] for r in sql(served, "SELECT since FROM staff ORDER BY since LIMIT 2")] == [
        7,
        8,
    ]
    with pytest.raises(InvalidRequestError):
        sql(served, "SELECT min(id) FROM staff")


def test_all_columns_may_be_hidden(mice: Instance) -> None:
    served = services(mice, hiding("id", "since", "name", "pay", "tags"))
    with pytest.raises(InvalidRequestError):
        read(served, SelectionMessage())


def test_a_renamed_column_says_nothing_of_its_hidden_name(tmp_path: Path) -> None:
    with Instance.open(tmp_path / "mice", background=False) as mice:
        table = mice.create_table("staff", STAFF, row_keys=["id"])
        table.alter(rename={"pay": "wage", "name": "called"}).alter(drop=["tags"])
        served = services(mice, hiding("wage", "tags"))
        for name in ("pay", "tags"):
            with pytest.raises(InvalidRequestError) as caught:
                read(served, SelectionMessage(columns=(name,)))
            assert str(caught.value) == f"there is no column {name!r}"
