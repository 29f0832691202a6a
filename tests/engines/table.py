"""Show which engines read what, as ``make test-engines`` found it; with ``--page FILE`` also
between the marks of a page.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
from importlib.metadata import version
from pathlib import Path

from bench.figures import page_with, table
from tests.engines.environment import LARGE, why_left_out
from tests.engines.every_engine import ENGINES
from tests.engines.expectations import GROUPS, NO_WAY, REFUSALS, REMARKS
from tests.engines.install import BUILT, JARS, TRINO_SERVER
from tests.support.pins import pins_in

BY = "test-engines"


def main() -> int:
    """Print the table, and write it into a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, help="write it between the marks of this page, too")
    given = parser.parse_args()
    text = f"{_tested()}\n\n{_table()}\n\n{_refusals()}"
    print(text)
    for engine in _left_out():
        print(f"left out {engine}: {why_left_out(engine)}", file=sys.stderr)
    if given.page is not None:
        if _left_out():
            print(f"{given.page} stays as it is: not every engine was run", file=sys.stderr)
            return 1
        given.page.write_text(page_with(given.page.read_text(), BY, text))
    return 0


def _left_out() -> list[str]:
    return [engine for engine in LARGE if why_left_out(engine)]


def _tested() -> str:
    small, large = (pins_in(f"requirements-{kind}.txt") for kind in ("engines", "large-engines"))
    spark = ", ".join(artifact.version for artifact in JARS.values())
    return (
        f"Run on {dt.datetime.now(dt.UTC):%d %B %Y}: PyIceberg {small['pyiceberg']}, DuckDB "
        f"{small['duckdb']}, Polars {small['polars']}, Spark {version('pyspark')} with Iceberg "
        f"{spark}, Trino {TRINO_SERVER.version}, ClickHouse {large['chdb-core']}. "
        "“=”: every row equals that of `dormouse query`."
    )


def _table() -> str:
    found = {
        engine: json.loads(file.read_text())
        for engine in ENGINES
        if (file := BUILT / f"{engine}.found.json").exists() and engine not in _left_out()
    }
    return table(
        ("kind of table", *ENGINES),
        [
            [group, *(_cell(engine, group, found.get(engine)) for engine in ENGINES)]
            for group in GROUPS
        ],
    )


def _cell(engine: str, group: str, passed: list[str] | None) -> str:
    """Return what an engine does with a kind of table, if it was found to do so."""
    if passed is None:
        return "left out"
    if group not in passed:
        return "FAILED"
    refusal = REFUSALS.get((engine, group))
    if refusal is None:
        remark = REMARKS.get((engine, group))
        return f"= ({remark})" if remark else "="
    return "no" if refusal == NO_WAY else f"refuses ({_texts().index(refusal) + 1})"


def _texts() -> list[str]:
    """Return what engines say when they refuse a table."""
    return list(dict.fromkeys(text for text in REFUSALS.values() if text != NO_WAY))


def _refusals() -> str:
    said = "; ".join(f"({n}) `{text}`" for n, text in enumerate(_texts(), start=1))
    return f"“no”: the engine cannot be asked for it. What engines say when they refuse: {said}."


if __name__ == "__main__":
    sys.exit(main())
