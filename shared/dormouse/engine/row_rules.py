"""The rules of a table applied to sorted rows, wherever rows are written or read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from dormouse.arrow.row_counter import Tally
from dormouse.engine.aggregation import aggregate_groups
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
    """Yield the rows that count, those of a group as one; sorted, as `batches` are.

    `batches` have all columns of `schema`, or at least those which `rules.needed` names. All of
    them have the same, and so have those that are given. With `removed`, the rules count what they
    leave out: what a filter refuses, and of each group all rows but one.
    """
    where = filter_predicate(schema, rules, now_ms)
    rows = iter(batches) if where is None else where.apply(batches, removed)
    if rules.aggregation is None:
        return rows
    return aggregate_groups(rows, schema, rules.aggregation, removed)


def filter_predicate(schema: Schema, rules: RowRules, now_ms: int) -> Predicate | None:
    """Return the filters of `rules` as a predicate, to be pushed down into a scan; None for none.

    Filtering rows before they are merged gives what filtering them afterwards does.
    """
    condition = rules.filter_at(now_ms)
    return None if condition is None else Predicate(condition, schema)
