"""Apply the filters and aggregations of a table to sorted rows,
wherever rows are written or read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from dormouse.arrow.row_counter import Tally
from dormouse.engine.predicates import Predicate
from dormouse.schema.schema import Schema
from dormouse.tables.row_rules import RowRules


def apply_row_rules(
    batches: Iterable[pa.RecordBatch],
    schema: Schema,
    rules: RowRules,
    now_ms: int,
    removed: Tally | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that pass the filters, with each group aggregated to
    one row; sorted like `batches`.

    `batches` have all columns of `schema`, or at least those that `rules.needed` names; the result
    has the same columns. `removed` counts the rows that a filter removes, and all rows but one of
    each group.
    """
    where = filter_predicate(schema, rules, now_ms)
    rows = iter(batches) if where is None else where.apply(batches, removed)
    if rules.aggregation is None:
        return rows
    from dormouse.engine.aggregation import aggregate_groups  # most tables aggregate nothing

    return aggregate_groups(rows, schema, rules.aggregation, removed)


def filter_predicate(schema: Schema, rules: RowRules, now_ms: int) -> Predicate | None:
    """Return the filters of `rules` as a predicate that can be pushed down into
    a scan; None if there are none.

    Filtering rows before a merge has the same result as filtering them after it.
    """
    condition = rules.filter_at(now_ms)
    return None if condition is None else Predicate(condition, schema)
