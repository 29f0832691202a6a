"""Words on the command line: a table gets a term index, and rows are asked for and deleted by."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Dormouse


def test_rows_are_found_by_words(flights: Dormouse) -> None:
    refused = flights("table", "set", "flights", "term_index=flight")
    assert refused.exit_code != 0
    assert "which can have no term index" in refused.stderr
    assert flights("table", "set", "flights", "term_index=carrier:log").exit_code == 0
    Path("more.csv").write_text("carrier,flight,at,delay\nZZ-1 9,1,2013-01-01T00:00:00Z,1\n")
    assert flights("ingest", "flights", "more.csv", "--wait").exit_code == 0
    where = "has(carrier, 'zz')"
    assert flights("query", "flights", "--where", where, "--count").stdout == "1\n"
    assert flights("delete", "flights", "--where", where, "--force").exit_code == 0
    assert flights("query", "flights", "--where", where, "--count").stdout == "0\n"
