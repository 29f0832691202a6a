"""Parse an SQL condition to a checked tree of expressions, or say why it is refused.

Only what is listed here is accepted. `conditions` imports this module, and with it the SQL parser,
only when there is a condition to parse: most processes never need it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import ClassVar

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import SqlglotError

from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import Schema
from dormouse.schema.types import ListType, MapType, Primitive, StructType, show_type
from dormouse.sql import calls
from dormouse.sql.calls import FUNCTIONS, check_count, parse_literal
from dormouse.sql.conditions import (
    MAX_BRACKETS,
    MAX_CONDITION_CHARACTERS,
    MAX_CONDITION_DEPTH,
    MAX_PATTERN,
    Call,
    Column,
    Expression,
    Literal,
    check_characters,
    leaf_sql,
    render,
)
from dormouse.sql.conditions import depth as depth_of
from dormouse.sql.plain import alike, calculated, check_types, coerce_literal, compared, show_node

# Limit the text of a condition, and parse it to a syntax tree; used by `parser`.


class Dialect(Postgres):
    """PostgreSQL's, whose strings, names and X'…' are those of DataFusion; with its FLOAT, and
    lists that are counted as they are written.
    """

    INDEX_OFFSET = 0

    class Tokenizer(Postgres.Tokenizer):
        """Its words."""

        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            **Postgres.Tokenizer.KEYWORDS,
            "FLOAT": TokenType.FLOAT,
        }


class _PlacedError(InvalidRequestError):
    """An error that says where in the text it is."""


def too_deep() -> InvalidRequestError:
    """Return the error for a condition that is nested too deeply."""
    return InvalidRequestError(f"the condition is nested deeper than {MAX_CONDITION_DEPTH}")


def placed(error: InvalidRequestError, node: exp.Expr, text: str) -> InvalidRequestError:
    """Return an error with the line and the column, from 1, at which a node begins, unless it has
    them, or the parser does not know.
    """
    if isinstance(error, _PlacedError):
        return error
    starts = [part.meta["start"] for part in node.walk() if part._meta and "start" in part._meta]
    if not starts:
        return _PlacedError(str(error), hint=error.hint)
    before = text[: min(starts)]
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    return _PlacedError(f"line {line}, column {column}: {error}", hint=error.hint)


def parse_sql(text: str) -> exp.Expr:
    """Return the syntax tree of a text.

    Raises:
        InvalidRequestError: it is not SQL.
        RecursionError: it is too deep for the stack.
    """
    try:
        return sqlglot.parse_one(text, read=Dialect)
    except RecursionError:
        raise
    except SqlglotError as error:
        raise _not_sql(error) from error
    except Exception as error:  # for some texts the parser raises errors of its own
        raise InvalidRequestError("the condition is not SQL: it cannot be parsed") from error


def _not_sql(error: SqlglotError) -> InvalidRequestError:
    places = getattr(error, "errors", None)
    if not places:
        return InvalidRequestError(f"the condition is not SQL: {str(error).splitlines()[0]}")
    place = places[0]
    problem = str(place.get("description"))
    if problem.startswith("Required keyword"):  # followed by the name of a class of the parser
        problem = "something is missing"
    return InvalidRequestError(
        f"the condition is not SQL at column {place.get('col')}, "
        f"near {(place.get('highlight') or '')!r}: {problem}"
    )


def check_text(text: str) -> None:
    """Refuse a value that is not text, or that is too long or too deep to parse.

    Raises:
        InvalidRequestError: it is one of these.
    """
    check_characters(text, "condition", MAX_CONDITION_CHARACTERS)
    if _open_brackets(text) > MAX_BRACKETS:
        raise too_deep()


def _open_brackets(text: str) -> int:
    """Return the greatest number of brackets outside quotes that are open at once.

    The parser recurses into each of them, so how many it can parse depends on the stack it is
    called on.
    """
    most = now = 0
    quote = ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "()":
            now += 1 if character == "(" else -1
            most = max(most, now)
    return most


# Columns of a condition, and the parts of nested ones: members of structs, elements of lists,
# values of maps. Used by `parser`.


def named_column(node: exp.Expr, schema: Schema) -> Expression:
    """Return the column that a name means, or the member of a struct that names with dots mean.

    Raises:
        InvalidRequestError: there is no such column or member.
    """
    parts = list(node.parts) if isinstance(node, exp.Column) else [node]
    if not all(isinstance(part, exp.Identifier) for part in parts):
        raise InvalidRequestError(f"{show_node(node)}: a column is named on its own")
    first, *others = (part.name for part in parts)
    columns = [field.name for field in schema.fields]
    if first not in columns and others and others[0] in columns:
        raise InvalidRequestError(f"{show_node(node)}: a column is named on its own")
    near = [] if first in columns else get_close_matches(first, columns, 1)
    if near and not schema.explain_former_name(first):
        raise InvalidRequestError(
            f"there is no column {first!r}; columns: {', '.join(columns)}",
            hint=f"did you mean {near[0]}?",
        )
    field = schema.field_named(first)
    found: Expression = Column(field.name, field.type)
    for name in others:
        found = member_of(node, found, name)
    return found


def member_of(node: exp.Expr, whole: Expression, name: str) -> Expression:
    """Return the member of a struct.

    Raises:
        InvalidRequestError: it is no struct, or has no such member.
    """
    if not isinstance(whole.type, StructType):
        raise InvalidRequestError(
            f"{show_node(node)}: {show_type(whole.type)} has no members",
            hint="a value of a map is tags['colour'], an element of a list stops[1]",
        )
    members = {member.name: member.type for member in whole.type.members}
    if name not in members:
        near = get_close_matches(name, members, 1)
        hint = f"did you mean {near[0]}?" if near else "members: " + ", ".join(members)
        raise InvalidRequestError(f"{show_node(node)}: there is no member {name!r}", hint=hint)
    return Call("FIELD", (whole, Literal(name, Primitive.STRING)), members[name])


def part_of(node: exp.Expr, whole: Expression, inside: Literal) -> Expression:
    """Return what is in brackets after a value: a member of a struct, an element of a list, counted
    from 1 or, below zero, from the end, or the value of a key of a map.

    Raises:
        InvalidRequestError: the value has no such parts.
    """
    kind, value = whole.type, inside.value
    if isinstance(kind, StructType) and isinstance(value, str):
        return member_of(node, whole, value)
    if isinstance(kind, ListType) and inside.type is Primitive.LONG:
        return Call("ELEMENT", (whole, inside), kind.element)
    if isinstance(kind, MapType) and kind.key is Primitive.STRING and isinstance(value, str):
        return Call("VALUE", (whole, inside), kind.value)
    if isinstance(kind, MapType) and kind.key is not Primitive.STRING:
        raise InvalidRequestError(
            f"{show_node(node)}: only values of maps whose keys are text can be taken"
        )
    raise InvalidRequestError(
        f"{show_node(node)}: {show_type(kind)} has no such part",
        hint="write place['city'], tags['colour'] or stops[1]",
    )


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
