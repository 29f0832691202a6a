"""How aggregates are computed from those of pieces, so that the result is that of the whole.

count   the sum of the counts               min, max, bool_and, bool_or, bit_…   themselves
sum     the sum of the sums                 avg   the sum of the sums by the sum of the counts
… DISTINCT   pieces group by the argument, the final statement takes DISTINCT of it
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlglot import exp

from dormouse.sql.expressions import quoted
from dormouse.sql.statements import to_sql

_FUNCTIONS: dict[type[exp.Expr], str] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
    exp.LogicalAnd: "bool_and",
    exp.LogicalOr: "bool_or",
    exp.BitwiseAndAgg: "bit_and",
    exp.BitwiseOrAgg: "bit_or",
    exp.BitwiseXorAgg: "bit_xor",
}
_ADDED = ("count", "sum", "avg")
"""Those for which it matters how often a value is there."""
MOST_SCALE = 34
"""The greatest scale of decimals whose average has four more digits after the point."""


class NotCutError(Exception):
    """A statement is computed whole; the text says why, after "because"."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A function of the values that `argument` has in the rows for which `condition` is true: all,
    if it is None. Without an argument, it counts rows. `node` is the whole as it is written.
    """

    function: str
    argument: exp.Expr | None
    is_distinct: bool
    condition: exp.Expr | None
    node: exp.Expr

    def changed(self, change: Callable[[exp.Expr], exp.Expr]) -> Aggregate:
        """Return the aggregate with each node of its expressions changed."""
        return replace(
            self,
            argument=self.argument.transform(change) if self.argument is not None else None,
            condition=self.condition.transform(change) if self.condition is not None else None,
            node=self.node.transform(change),
        )


@dataclass(frozen=True, slots=True)
class Number:
    """The type of an argument, as far as it matters: `decimal` is its precision and scale."""

    decimal: tuple[int, int] | None = None
    is_float: bool = False
    is_whole: bool = False


def read_aggregate(node: exp.Expr) -> Aggregate:
    """Return a call of an aggregate, with its FILTER.

    Raises:
        NotCutError: it cannot be computed from parts, as far as is known here.
    """
    call, condition = node, None
    if isinstance(node, exp.Filter):
        call, condition = node.this, node.expression.this
    function = _FUNCTIONS.get(type(call))
    if function is None:
        raise NotCutError(f"{_shown(call)} is not computed from parts")
    said = {name for name, part in call.args.items() if part} - {"big_int"}
    argument = call.this
    if said != {"this"} or isinstance(argument, exp.Order):
        raise NotCutError(f"{_shown(call)} has more than one argument")
    is_distinct = isinstance(argument, exp.Distinct)
    if isinstance(argument, exp.Distinct):
        if len(argument.expressions) != 1 or argument.args.get("on"):
            raise NotCutError(f"{_shown(call)} has more than one argument")
        (argument,) = argument.expressions
    if argument.find(exp.AggFunc):
        raise NotCutError("an aggregate has another one as its argument")
    counts_rows = function == "count" and isinstance(argument, exp.Star | exp.Literal)
    if counts_rows and is_distinct:
        raise NotCutError(f"{_shown(call)} counts no column")
    is_distinct = is_distinct and function in _ADDED
    if is_distinct and condition is not None:
        raise NotCutError("an aggregate has both DISTINCT and FILTER")
    return Aggregate(function, None if counts_rows else argument, is_distinct, condition, node)


def partial_texts(aggregate: Aggregate, number: Number) -> list[str]:
    """Return the aggregates that pieces compute for one that is not DISTINCT.

    Raises:
        NotCutError: an average of other types than numbers.
    """
    within = ""
    if aggregate.condition is not None:
        within = f" FILTER (WHERE {to_sql(aggregate.condition)})"
    argument = "*" if aggregate.argument is None else to_sql(aggregate.argument)
    if aggregate.function != "avg":
        return [f"{aggregate.function}({argument}){within}"]
    if number.decimal is None:
        if not (number.is_float or number.is_whole):
            raise NotCutError("it has an average of other types than numbers")
        # not CAST, which has no part in the names by which DataFusion tells columns apart
        argument = f"arrow_cast({argument}, 'Float64')"
    elif number.decimal[1] > MOST_SCALE:
        raise NotCutError("it has an average with more digits than there are")
    return [f"sum({argument}){within}", f"count({argument}){within}"]


def final_text(aggregate: Aggregate, names: list[str], number: Number, kinds: list[str]) -> str:
    """Return the aggregate of the partial results in the columns `names`.

    `kinds` are the types of these columns, as `arrow_cast` writes them.
    """
    first = quoted(names[0])
    if aggregate.is_distinct:
        return f"{aggregate.function}(DISTINCT {first})"
    match aggregate.function:
        case "count":
            return f"coalesce(sum({first}), 0)"
        case "sum":
            return _sum(first, kinds[0])
        case "avg":
            return _average(_sum(first, kinds[0]), f"sum({quoted(names[1])})", number)
    return f"{aggregate.function}({first})"


def _sum(column: str, kind: str) -> str:
    """Return the sum of sums in their type: that of decimals would have more digits."""
    total = f"sum({column})"
    return f"arrow_cast({total}, '{kind}')" if kind.startswith("Decimal") else total


def _average(total: str, count: str, number: Number) -> str:
    """Return the average, which has four digits more, in the type that it has of the whole.

    Both divisions of decimals cut digits off: `avg` as well as ``/``.
    """
    if number.decimal is None:
        return f"{total} / CAST({count} AS DOUBLE)"
    precision, scale = number.decimal
    rows = f"arrow_cast(nullif({count}, 0), 'Decimal128(20, 0)')"
    kind = f"Decimal128({min(38, precision + 4)}, {scale + 4})"
    return f"arrow_cast({total} / {rows}, '{kind}')"


def _shown(node: exp.Expr) -> str:
    return str(node.key).upper() if not isinstance(node, exp.Anonymous) else node.name
