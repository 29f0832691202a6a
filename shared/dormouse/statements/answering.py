"""Answer a statement: in this process if it is plain and reads little, else in one of its own.

What begins and serves another process is imported when one is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dormouse.sql.text_limits import check_statement
from dormouse.statements.direct import answer_plain
from dormouse.statements.limits import Limits, Watch
from dormouse.statements.protocol import encode_parameters
from dormouse.statements.scans import Tables

if TYPE_CHECKING:
    from dormouse.query.result import QueryResult
    from dormouse.statements.partials import Partials


def run_statement(
    tables: Tables | Partials,
    text: str,
    parameters: Mapping[str, object],
    scratch: Path,
    limits: Limits,
    watch: Watch | None = None,
) -> QueryResult:
    """Return the rows of a statement, which are computed while they are taken; `watch` may end it
    while its process computes.

    Raises:
        DormouseError: it cannot be planned.
    """
    check_statement(text)
    stream = encode_parameters(parameters)
    if isinstance(tables, Tables):
        found = answer_plain(tables, text, parameters, limits)
        if found is not None:
            return found
    from dormouse.statements.running import run_in_process

    return run_in_process(tables, text, stream, scratch, limits, watch=watch)
