"""The rows of a statement in SQL over messages: one function computes all of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from dormouse.errors import LimitExceededError
from dormouse.extras import needs_extra
from dormouse.features.queries.limits import statement_limits
from dormouse.features.queries.opening import statement_tables
from dormouse.features.queries.query import Query
from dormouse.ports.services import Services
from dormouse.query.result import PeekableBatches, QueryResult

if TYPE_CHECKING:
    from dormouse.statements.limits import Watch

_WITH_SPARK = (
    "ask for less, or let Spark compute it: dormouse sql --spark, or `spark` of the message; the "
    "statement is in Spark's dialect then"
)


def statement_rows(
    services: Services, query: Query, read: dict[str, set[str]], watch: Watch
) -> QueryResult:
    """Return the rows of a statement; add the columns that it reads to `read`, by the ids of
    tables. `watch` may end it while it is computed.

    Raises:
        LimitExceededError: it needs too much; at the latest, that is known when rows are taken.
    """
    with needs_extra("sql", "a statement in SQL"):
        from dormouse.statements.running import run_statement
    limits, asked = statement_limits(services, query), query.asked
    with _naming_spark():
        tables = statement_tables(services, query, read)
        found = run_statement(tables, asked.sql, asked.parameters, services.scratch, limits, watch)
    return replace(found, batches=PeekableBatches(_naming_spark_in(found.batches)))


def _naming_spark_in(batches: PeekableBatches) -> Iterator[pa.RecordBatch]:
    try:
        with _naming_spark():
            yield from batches
    finally:
        batches.close()


@contextmanager
def _naming_spark() -> Iterator[None]:
    """Say what else to do about a statement that exceeds the limits of one function."""
    try:
        yield
    except LimitExceededError as error:
        raise LimitExceededError(str(error), hint=_WITH_SPARK) from error
