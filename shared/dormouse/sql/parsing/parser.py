"""Parse an SQL condition to a checked tree of expressions, or say why it is refused.

Only what is listed here is accepted. `conditions` imports this module, and with it the SQL parser,
only when there is a condition to parse: most processes never need it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import Primitive, Schema, show_type
from dormouse.sql.expressions import (
    MAX_CONDITION_DEPTH,
    MAX_PATTERN,
    Call,
    Expression,
    Literal,
    leaf_sql,
    render,
)
from dormouse.sql.expressions import depth as depth_of
from dormouse.sql.functions import FUNCTIONS
from dormouse.sql.parsing import calls
from dormouse.sql.parsing.calls import check_count
from dormouse.sql.parsing.constants import coerce_literal, show_node
from dormouse.sql.parsing.literals import parse_literal
from dormouse.sql.parsing.operands import alike, calculated, check_types, compared
from dormouse.sql.parsing.paths import member_of, named_column, part_of
from dormouse.sql.text import check_text, parse_sql, placed, too_deep

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
}
_ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
}
_JUNCTIONS: dict[type[exp.Expr], str] = {exp.And: "AND", exp.Or: "OR"}
_PATTERNS: dict[type[exp.Expr], str] = {exp.Like: "LIKE", exp.ILike: "ILIKE"}
_ALLOWED = (
    "allowed are AND, OR, NOT, = <> < <= > >=, IS [NOT] DISTINCT FROM, IS [NOT] NULL, TRUE or "
    "FALSE, IN, BETWEEN, LIKE, ILIKE, + - * / % ||, CASE, CAST, TRY_CAST, INTERVAL, coalesce, "
    "nullif, isnan, concat, extract, date_trunc, now, current_date, " + ", ".join(sorted(FUNCTIONS))
)


def parse(text: str, schema: Schema, now_ms: int | None) -> Expression:
    """Return the checked tree of a condition; `now_ms` is the present time, if it may have one.

    Raises:
        InvalidRequestError: it is not a condition; the message says where and why.
    """
    check_text(text)
    try:
        tree = parse_sql(text)
        checked = _Checker(schema, text, now_ms).check(tree, 0)
    except RecursionError as error:
        raise too_deep() from error
    if checked.type is not Primitive.BOOLEAN:
        raise InvalidRequestError(
            f"{show_node(tree)} is {show_type(checked.type)}, not a condition",
            hint="compare it with something",
        )
    # requests store the normal form, so it must be accepted as well
    if depth_of(checked) > MAX_CONDITION_DEPTH:
        raise too_deep()
    check_text(render(checked, leaf_sql))
    return checked


class _Checker:
    """Check a parsed tree from its leaves upwards."""

    def __init__(self, schema: Schema, text: str, now_ms: int | None) -> None:
        self.schema, self.now_ms = schema, now_ms
        self._text = text

    def check(self, node: exp.Expr, depth: int) -> Expression:
        """Return the checked form of `node`, which is nested in `depth` others."""
        if depth > MAX_CONDITION_DEPTH:
            raise too_deep()
        try:
            return self._checked(node, depth)
        except InvalidRequestError as error:
            raise placed(error, node, self._text) from error

    def _checked(self, node: exp.Expr, depth: int) -> Expression:
        handler = _HANDLERS.get(type(node))
        if handler is None:
            raise InvalidRequestError(
                f"{show_node(node)} is not allowed in a condition", hint=_ALLOWED
            )
        said = {name for name, part in node.args.items() if part}
        if not said <= _PARTS.get(type(node), _TWO_PARTS):  # the handler would ignore the rest
            raise InvalidRequestError(
                f"{show_node(node)} has parts that are not allowed", hint=_ALLOWED
            )
        return handler(self, node, depth)

    def _paren(self, node: exp.Expr, depth: int) -> Expression:
        return self.check(node.this, depth)

    def _not(self, node: exp.Expr, depth: int) -> Expression:
        return _call("NOT", [self.condition(node.this, depth + 1)])

    def _comparison(self, node: exp.Expr, depth: int) -> Expression:
        both = self._compared(node, [node.this, node.expression], depth)
        return _call(_COMPARISONS[type(node)], both)

    def _column(self, node: exp.Expr, depth: int) -> Expression:
        return named_column(node, self.schema)

    def _member(self, node: exp.Expr, depth: int) -> Expression:
        if not isinstance(node.expression, exp.Identifier):
            raise InvalidRequestError(f"{show_node(node)} is not allowed in a condition")
        return member_of(node, self.check(node.this, depth + 1), node.expression.name)

    def _part(self, node: exp.Expr, depth: int) -> Expression:
        if len(node.expressions) != 1:
            raise InvalidRequestError(f"{show_node(node)}: one part is taken at a time")
        inside = self.check(node.expressions[0], depth + 1)
        if not isinstance(inside, Literal):
            raise InvalidRequestError(
                f"{show_node(node)}: in brackets is a text in quotes or a number"
            )
        return part_of(node, self.check(node.this, depth + 1), inside)

    def _literal(self, node: exp.Expr, depth: int) -> Expression:
        return parse_literal(node)

    def _negative(self, node: exp.Expr, depth: int) -> Expression:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return parse_literal(node)
        inner = self.check(node.this, depth + 1)
        zero = coerce_literal(node, Literal(0, Primitive.LONG), inner.type)
        return calls.folded("-", [zero, inner]) or calculated(node, "-", [zero, inner])

    def _junction(self, node: exp.Expr, depth: int) -> Expression:
        """Flatten a chain of the same operator to one call, so that a long chain is not deep.

        The parser nests `a OR b OR c` as (a OR b) OR c. A thousand terms would be a thousand levels
        deep; flattened, they are the arguments of one OR.
        """
        terms: list[exp.Expr] = []
        rest = [node]
        while rest:
            term = rest.pop()
            if type(term) is type(node):
                rest += [term.expression, term.this]
            else:
                terms.append(term)
        check_count(node, terms)
        return _call(_JUNCTIONS[type(node)], [self.condition(t, depth + 1) for t in terms])

    def condition(self, node: exp.Expr, depth: int) -> Expression:
        """Return the checked form of a node that must be true or false."""
        checked = self.check(node, depth)
        if checked.type is not Primitive.BOOLEAN:
            raise InvalidRequestError(
                f"{show_node(node)} is {show_type(checked.type)}; a condition is needed there"
            )
        return checked

    def _test(self, node: exp.Expr, depth: int) -> Expression:
        match node.expression:
            case exp.Null():
                test = _call("IS NULL", [self.check(node.this, depth + 1)])
            case exp.Boolean(this=value):
                inner = self.condition(node.this, depth + 1)
                test = _call("IS TRUE" if value else "IS FALSE", [inner])
            case _:
                raise InvalidRequestError(
                    f"{show_node(node)}: IS is followed by NULL, TRUE or FALSE"
                )
        return _call("NOT", [test]) if node.args.get("negate") else test

    def _between(self, node: exp.Expr, depth: int) -> Expression:
        operands = [node.this, node.args["low"], node.args["high"]]
        value, low, high = self._compared(node, operands, depth)
        bounds = [_call(">=", [value, low]), _call("<=", [value, high])]
        return _call("AND", bounds)

    def _in(self, node: exp.Expr, depth: int) -> Expression:
        values = node.expressions
        if not values or node.args.get("query"):
            raise InvalidRequestError(f"{show_node(node)}: IN needs a list of values")
        check_count(node, values)
        checked = self._compared(node, [node.this, *values], depth)
        if not all(isinstance(value, Literal) for value in checked[1:]):
            raise InvalidRequestError(f"{show_node(node)}: the list of IN may hold only values")
        return _call("IN", checked)

    def _pattern(self, node: exp.Expr, depth: int) -> Expression:
        text, pattern = (self.check(n, depth + 1) for n in (node.this, node.expression))
        check_types(node, [text, pattern], (Primitive.STRING, Primitive.STRING))
        if not isinstance(pattern, Literal):
            raise InvalidRequestError(f"{show_node(node)}: the pattern must be a text in quotes")
        length = len(str(pattern.value))
        if length > MAX_PATTERN:
            raise InvalidRequestError(
                f"{show_node(node)}: the pattern has {length:,} characters; "
                f"at most {MAX_PATTERN:,} are allowed",
                hint="starts_with, ends_with and contains take texts of any length",
            )
        like = _call(_PATTERNS[type(node)], [text, pattern])
        return _call("NOT", [like]) if node.args.get("negate") else like

    def _arithmetic(self, node: exp.Expr, depth: int) -> Expression:
        if isinstance(node, exp.Add | exp.Sub) and isinstance(node.expression, exp.Interval):
            return calls.interval_sum(self, node, node.this, node.expression, depth)
        if isinstance(node, exp.Add) and isinstance(node.this, exp.Interval):
            return calls.interval_sum(self, node, node.expression, node.this, depth)
        both = alike(node, [self.check(n, depth + 1) for n in (node.this, node.expression)])
        op = _ARITHMETIC[type(node)]
        return calls.folded(op, both) or calculated(node, op, both)

    def _compared(
        self, node: exp.Expr, operands: Sequence[exp.Expr], depth: int
    ) -> list[Expression]:
        """Check operands that are compared with each other."""
        return compared(node, [self.check(operand, depth + 1) for operand in operands])


_HANDLERS: dict[type[exp.Expr], Callable[[_Checker, exp.Expr, int], Expression]] = {
    exp.Paren: _Checker._paren,
    exp.Column: _Checker._column,
    exp.Identifier: _Checker._column,
    exp.Dot: _Checker._member,
    exp.Bracket: _Checker._part,
    exp.Not: _Checker._not,
    exp.Is: _Checker._test,
    exp.Between: _Checker._between,
    exp.In: _Checker._in,
    exp.Neg: _Checker._negative,
    exp.Coalesce: calls.choice,
    exp.Nullif: calls.choice,
    exp.Case: calls.case,
    exp.Extract: calls.extract,
    exp.IsNan: calls.is_nan,
    exp.TimestampTrunc: calls.truncation,
    exp.CurrentTimestamp: calls.now,
    exp.CurrentDate: calls.now,
    exp.Cast: calls.cast,
    exp.TryCast: calls.cast,
    exp.DPipe: calls.concat,
    exp.Concat: calls.concat,
    **dict.fromkeys((exp.Literal, exp.Boolean, exp.HexString), _Checker._literal),
    **dict.fromkeys(_JUNCTIONS, _Checker._junction),
    **dict.fromkeys(_PATTERNS, _Checker._pattern),
    **dict.fromkeys(_COMPARISONS, _Checker._comparison),
    **dict.fromkeys(_ARITHMETIC, _Checker._arithmetic),
    **dict.fromkeys(calls.FUNCTION_NODES, calls.function),
}
_TWO_PARTS = frozenset({"this", "expression"})
_LIST = frozenset({"this", "expressions"})
_PARTS: dict[type[exp.Expr], frozenset[str]] = {
    exp.Column: frozenset({"this", "table", "db", "catalog"}),
    exp.Identifier: frozenset({"this", "quoted"}),
    exp.Literal: frozenset({"this", "is_string"}),
    exp.Cast: frozenset({"this", "to"}),
    exp.TryCast: frozenset({"this", "to", "safe"}),
    exp.Case: frozenset({"this", "ifs", "default"}),
    exp.Is: frozenset({"this", "expression", "negate"}),
    exp.Between: frozenset({"this", "low", "high"}),
    exp.In: frozenset({"this", "expressions", "query"}),
    exp.Div: frozenset({"this", "expression", "typed"}),
    exp.Bracket: _LIST,
    exp.Coalesce: _LIST,
    exp.Anonymous: _LIST,
    exp.Concat: frozenset({"expressions", "safe", "coalesce"}),
    exp.DPipe: frozenset({"this", "expression", "safe"}),
    exp.Trim: frozenset({"this", "position"}),
    exp.Substring: frozenset({"this", "start", "length"}),
    exp.SplitPart: frozenset({"this", "delimiter", "part_index"}),
    exp.StrPosition: frozenset({"this", "substr"}),
    exp.TimestampTrunc: frozenset({"this", "unit"}),
    exp.CurrentTimestamp: frozenset(),
    exp.CurrentDate: frozenset(),
    **dict.fromkeys(_PATTERNS, frozenset({"this", "expression", "negate"})),
}
"""The parts of a node that its handler reads, where they differ from `_TWO_PARTS`."""


def _call(op: str, arguments: Sequence[Expression]) -> Call:
    return Call(op, tuple(arguments), Primitive.BOOLEAN)
