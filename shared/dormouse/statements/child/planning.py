"""What each scan of a plan needs of its table, read off DataFusion's optimised logical plan.

A dataset takes filters in one of two ways. Where every filter of all scans of a reference has a
form as a condition, the reference is *exact*: DataFusion leaves these filters to the dataset, and
the selected rows are those that pass. Otherwise the reference is *fenced*: it is a view with a
limit that no table reaches, below which DataFusion pushes no filter, so that it evaluates them all;
the condition then is a superset, which only saves reading.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from datafusion import Expr, expr
from datafusion.plan import LogicalPlan

from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import DecimalType, FieldType, Primitive, Schema
from dormouse.sql.conditions import parse_condition
from dormouse.statements.child.conditions import column_of, conjuncts, translated, variant_of
from dormouse.statements.protocol import First, Scan

FENCE = "!"
"""What ends the name of the dataset below a fence."""
FENCE_ROWS = 2**62
_TESTS = re.compile(r"Filter|filters=|Join")
_ENDS = re.compile(r"aggr=.*\b(min|max)\(")


@dataclass(frozen=True, slots=True)
class _Term:
    """A column that rows are sorted by."""

    column: str
    ascending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class _Top:
    """The first `rows` rows in an order."""

    terms: tuple[_Term, ...]
    rows: int

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(term.column for term in self.terms)


@dataclass(frozen=True, slots=True)
class _Context:
    """What is directly above a node: filters, the rows that are wanted, whether just the ends of a
    column are.
    """

    filters: tuple[Expr, ...] = ()
    top: _Top | None = None
    ends_of: str = ""


@dataclass(frozen=True, slots=True)
class _Occurrence:
    """One scan of a reference in the plan, and what is above it."""

    context: _Context
    filters: tuple[Expr, ...]
    fetch: int | None
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """The scans by the names of references, and the references that must be fenced first."""

    scans: Mapping[str, Scan]
    to_fence: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class FileUse:
    """What a plan may use of files, beside their rows.

    `statistics` of files, row groups and pages leave out NaN, which is greater than all other
    numbers, and DataFusion takes a column whose least value is its greatest for a constant: nothing
    that reads columns of floats may use them, unless these are known to hold none. `bounds` are
    found while the plan runs, such as the least of the rows that a LIMIT keeps so far. With
    `filters`, rows are tested while they are decoded, by bounds, too: testing each row of a join by
    those of the other side costs more than it saves.
    """

    statistics: bool = False
    bounds: bool = False
    filters: bool = False


ROWS_ALONE = FileUse()
"""Nothing beside the rows is used."""
NOTHING_KNOWN: Mapping[str, Collection[str]] = {}


def plan_scans(
    plan: LogicalPlan, schemas: Mapping[str, Schema], fenced: frozenset[str]
) -> ScanPlan:
    """Return what the scans of a plan need; `schemas` are by the names of references."""
    found: dict[str, list[_Occurrence]] = {name: [] for name in schemas}
    for name, occurrence in _occurrences(plan, _Context()):
        if name in found:  # others are functions that make rows, and the rows of a recursion
            found[name].append(occurrence)
    text = plan.display_indent()
    scans, to_fence = {}, set()
    for name, occurrences in found.items():
        # scans of subqueries within expressions are in the text, but not among the inputs
        hidden = text.count(f"TableScan: {name}{FENCE if name in fenced else ''} ") > len(
            occurrences
        )
        schema = schemas[name]
        if name in fenced:
            scans[name] = Scan() if hidden else _superset(occurrences, schema)
        elif hidden or (exact := _exact(occurrences, schema)) is None:
            to_fence.add(name)
        else:
            scans[name] = exact
    return ScanPlan(scans, frozenset(to_fence))


def file_use(
    plan: LogicalPlan,
    schemas: Mapping[str, Schema],
    no_nan: Mapping[str, Collection[str]] = NOTHING_KNOWN,
) -> FileUse:
    """Return what a plan may use of the files of its tables. Schemas, and the columns of floats
    that hold no NaN, are by the names of references.
    """
    floats, unknown = set(), set()
    for reference, schema in schemas.items():
        names = {f.name for f in schema.fields if not _is_bounded(f.type)}
        floats |= names
        unknown |= names.difference(no_nan.get(reference, ()))
    lines = plan.display_indent().splitlines()
    is_tested, has_ends = (any(map(like.search, lines)) for like in (_TESTS, _ENDS))
    # statistics of zeros have the sign that is farther out, so they bound values, and are none
    takes_ends = has_ends and _is_read(floats, lines)
    is_unknown = _is_read(unknown, lines)
    return FileUse(
        statistics=not is_unknown and not takes_ends,
        bounds=not (is_tested and is_unknown) and not takes_ends,
        filters=len(schemas) == 1,
    )


def _is_read(names: Collection[str], lines: Sequence[str]) -> bool:
    """Return whether a plan may read any of these columns, under whatever name later on: its scans
    name what they read.
    """
    scans = [line for line in lines if "TableScan: " in line]
    is_all = any(" projection=[" not in line for line in scans)
    return bool(names) and (is_all or any(name in line for line in scans for name in names))


def _is_bounded(kind: FieldType) -> bool:
    """Return whether the least and the greatest value of a type are those of all of its values."""
    if isinstance(kind, Primitive):
        return kind not in (Primitive.FLOAT, Primitive.DOUBLE)
    return isinstance(kind, DecimalType)


def _occurrences(node: LogicalPlan, context: _Context) -> Iterator[tuple[str, _Occurrence]]:
    """Yield the scans of a plan by the names of their references."""
    variant = node.to_variant()
    below = _Context()
    match variant:
        case expr.TableScan():
            columns = tuple(name for _, name in variant.projection())
            yield (
                variant.table_name().removesuffix(FENCE),
                _Occurrence(context, tuple(variant.filters()), variant.fetch(), columns),
            )
        case expr.Filter():
            terms = tuple(conjuncts(variant.predicate()))
            below = _Context(filters=(*context.filters, *terms))
        case expr.SubqueryAlias():
            below = context
        case expr.Limit():
            below = _Context(filters=context.filters) if _is_fence(node) else below
        case expr.Sort():
            below = _Context(top=_top(variant))
        case expr.Projection():
            below = _Context(top=_renamed(context.top, variant.projections()))
        case expr.Aggregate():
            below = _Context(ends_of=_ends_of(variant))
    for inner in node.inputs():
        yield from _occurrences(inner, below)


def _is_fence(limit: LogicalPlan) -> bool:
    """Return whether a limit is that of a fence, with which no limit of the statement is merged."""
    if limit.display() != f"Limit: skip=0, fetch={FENCE_ROWS}":
        return False
    (inner,) = limit.inputs()
    variant = inner.to_variant()
    return isinstance(variant, expr.TableScan) and variant.table_name().endswith(FENCE)


def _top(sort: expr.Sort) -> _Top | None:
    rows = sort.get_fetch_val()
    terms = []
    for term in sort.sort_exprs():
        name = column_of(term.expr())
        if name is None:
            return None
        terms.append(_Term(name, term.ascending(), term.nulls_first()))
    return None if rows is None else _Top(tuple(terms), rows)


def _renamed(top: _Top | None, projections: Sequence[Expr]) -> _Top | None:
    """Return what the rows below a projection are sorted by; None if by an expression."""
    if top is None:
        return None
    sources = dict(_sources(projections))
    if not all(term.column in sources for term in top.terms):
        return None
    return replace(top, terms=tuple(replace(t, column=sources[t.column]) for t in top.terms))


def _sources(projections: Sequence[Expr]) -> Iterator[tuple[str, str]]:
    """Yield the names of columns that a projection passes on, new and old."""
    for projected in projections:
        variant = variant_of(projected)
        if isinstance(variant, expr.Alias):
            old = column_of(variant.expr())
            new = variant.alias()
        else:
            old = new = column_of(projected)
        if old is not None and new is not None:
            yield new, old


def _ends_of(aggregate: expr.Aggregate) -> str:
    """Return the column of which an aggregate needs the least and greatest value alone."""
    columns = set()
    for term in aggregate.aggregate_exprs():
        function, arguments = aggregate.agg_func_name(term), aggregate.aggregation_arguments(term)
        if function not in ("min", "max") or len(arguments) != 1:
            return ""
        # only its text says whether it has a FILTER, for which other rows count
        if term.canonical_name() != f"{function}({arguments[0].canonical_name()})":
            return ""
        columns.add(column_of(arguments[0]) or "")
    return "" if aggregate.group_by_exprs() or len(columns) != 1 else columns.pop()


def _exact(occurrences: Sequence[_Occurrence], schema: Schema) -> Scan | None:
    """Return the scan whose rows are exactly those that pass the filters of all occurrences; None
    if they differ, or one has no form as a condition.
    """
    if not occurrences:
        return Scan()
    texts = [[translated(filter_, schema) for filter_ in each.filters] for each in occurrences]
    if None in texts[0] or any(text != texts[0] for text in texts[1:]):
        return None
    exact = [text for text in texts[0] if text is not None]
    if len(occurrences) > 1:
        where = " AND ".join(exact)
        return _scan(occurrences, where) if _is_condition(where, schema) else None
    (only,) = occurrences
    if not _is_condition(" AND ".join(exact), schema):
        return None
    hints = [text for each in only.context.filters if (text := translated(each, schema))]
    where = " AND ".join([*exact, *hints])
    if not _is_condition(where, schema):
        where = " AND ".join(exact)
    ends = not where and only.fetch is None and _is_first_key(only.context.ends_of, schema)
    limit, from_end = _limit(only, schema)
    first = _first(only) if limit is None else None
    return Scan(
        columns=only.columns, where=where, limit=limit, from_end=from_end, ends=ends, first=first
    )


def _limit(only: _Occurrence, schema: Schema) -> tuple[int | None, bool]:
    """Return how many of the first rows in key order are enough, None for all; and whether it is
    the last ones instead.
    """
    top = only.context.top
    keys = schema.keys[: len(top.columns)] if top else ()
    directions = {term.ascending for term in top.terms} if top else set()
    if top and len(directions) == 1 and top.columns == tuple(f.name for f in keys):
        from_end = not directions.pop()
        if only.fetch is None:
            return top.rows, from_end
        return (only.fetch if from_end else min(top.rows, only.fetch)), False
    return only.fetch, False


def _first(only: _Occurrence) -> First | None:
    """Return which rows are first by a column, if these are enough."""
    top = only.context.top
    if top is None or only.fetch is not None:
        return None
    term = top.terms[0]
    return First(term.column, top.rows, not term.ascending, term.nulls_first, len(top.terms) > 1)


def _is_first_key(column: str, schema: Schema) -> bool:
    first = schema.row_keys[0] if schema.row_keys else None
    return first is not None and column == first.name and not first.nullable


def _superset(occurrences: Sequence[_Occurrence], schema: Schema) -> Scan:
    """Return a scan that has at least the rows that any occurrence of a fenced reference needs."""
    each_of = []
    for occurrence in occurrences:
        known = [t for each in occurrence.context.filters if (t := translated(each, schema))]
        each_of.append(f"({' AND '.join(known)})" if known else "")
    where = "" if "" in each_of else " OR ".join(dict.fromkeys(each_of))
    return _scan(occurrences, where if _is_condition(where, schema) else "")


def _scan(occurrences: Sequence[_Occurrence], where: str) -> Scan:
    columns = dict.fromkeys(name for each in occurrences for name in each.columns)
    return Scan(columns=tuple(columns), where=where)


def _is_condition(where: str, schema: Schema) -> bool:
    """Return whether a text, if there is any, is a condition within the limits of conditions."""
    if not where:
        return True
    try:
        parse_condition(where, schema)
    except InvalidRequestError:
        return False
    return True
