"""The ledger reports every wrong row of a table, and nothing else."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.chaos.row_ledger import RowLedger, final_differences
from tests.chaos.tables import DroppedFile, Plan, Row, plans

FIRST: tuple[Row, ...] = ((1, 10, "a", 0), (2, 11, None, 0))
SECOND: tuple[Row, ...] = ((1, 20, "b", 1),)


@pytest.fixture
def ledger() -> RowLedger:
    found = RowLedger("t")
    found.dropped(DroppedFile("t", 0, "0.parquet", FIRST))
    found.dropped(DroppedFile("t", 1, "1.parquet", SECOND))
    found.dropped(DroppedFile("t", 2, "2.parquet", ((9, 9, "c", 2),), is_broken=True))
    found.ingested([0])
    return found


def shown(ledger: RowLedger, *rows: Row) -> str:
    return " ".join(ledger.differences(ledger.expected(), rows))


def test_files_under_way_may_be_there_or_not(ledger: RowLedger) -> None:
    assert not shown(ledger, *FIRST)
    assert not shown(ledger, *FIRST, *SECOND)


def test_lost_duplicate_and_invented_rows_are_reported(ledger: RowLedger) -> None:
    assert "1 rows lost, of files 0" in shown(ledger, FIRST[0])
    assert "1 rows doubled, of files 1" in shown(ledger, *FIRST, *SECOND, *SECOND)
    assert "1 rows never dropped, of files 2" in shown(ledger, *FIRST, (9, 9, "c", 2))
    assert "never dropped" in shown(ledger, *FIRST, (1, 20, "changed", 1))


def test_purged_rows_may_be_there_until_the_purge_is_over(ledger: RowLedger) -> None:
    before = ledger.expected()
    ledger.purge_begins([0])
    assert not ledger.differences(before, [])
    assert not shown(ledger, *FIRST)
    ledger.purge_ended([0])
    assert not ledger.differences(before, FIRST)
    assert "2 rows purged and there" in shown(ledger, *FIRST)
    assert not final_differences(ledger, SECOND)


def test_at_the_end_just_the_rows_of_good_files_are_there(ledger: RowLedger) -> None:
    assert not final_differences(ledger, [*SECOND, *FIRST])
    assert "lost at the end" in " ".join(final_differences(ledger, FIRST))
    assert "too many at the end" in " ".join(final_differences(ledger, [*FIRST, *FIRST, *SECOND]))


def test_a_version_has_the_same_rows_whenever_it_is_read(ledger: RowLedger) -> None:
    assert ledger.same_version(7, FIRST) is None
    assert ledger.same_version(7, reversed(FIRST)) is None
    assert "version 7" in str(ledger.same_version(7, SECOND))


@pytest.mark.parametrize("plan", plans(), ids=lambda plan: plan.name)
def test_files_are_made_up_alike_for_a_seed(plan: Plan) -> None:
    assert plan.file(1, 3, 20) == plan.file(1, 3, 20) != plan.file(2, 3, 20)
    assert len(set(plan.file(1, 3, 20).rows)) == 20


def test_a_duplicate_row_of_a_summing_table_is_reported() -> None:
    (plan,) = [plan for plan in plans() if plan.is_summed]
    fine = pa.table({"key": [1], "files": [0b101], "times": [2]})
    assert plan.rows_of(fine) == [(1, 0), (1, 2)]
    doubled = pa.table({"key": [1], "files": [0b110], "times": [3]})
    assert plan.rows_of(doubled)[0][-1] == -1
