"""Which types expressions of a statement have, as far as floats and decimals are concerned."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from sqlglot import exp

from dormouse.schema.schema import DecimalType, FieldType, Primitive, Schema
from dormouse.schema.types import ListType, MapType, StructType
from dormouse.sql.exact.sources import Sources

MOST_DIGITS = 38
FLOATS = (Primitive.FLOAT, Primitive.DOUBLE)
_WHOLE = (Primitive.INT, Primitive.LONG)
_CASTS: dict[exp.DType, FieldType] = {
    exp.DType.INT: Primitive.INT,
    exp.DType.BIGINT: Primitive.LONG,
    exp.DType.FLOAT: Primitive.FLOAT,
    exp.DType.DOUBLE: Primitive.DOUBLE,
}
_SAME = (
    *(exp.Paren, exp.Neg, exp.Abs, exp.Min, exp.Max, exp.First, exp.FirstValue, exp.Last),
    *(exp.LastValue, exp.NthValue, exp.Lag, exp.Lead, exp.Median, exp.AnyValue, exp.Filter),
    *(exp.Window, exp.WithinGroup, exp.Order, exp.IgnoreNulls, exp.RespectNulls),
    *(exp.Alias, exp.Ordered),
    *(exp.Floor, exp.Ceil, exp.Round, exp.Trunc),
)
"""Functions and forms that have the type of their first operand."""
_ROUNDED = (exp.Floor, exp.Ceil, exp.Round, exp.Trunc)
DOUBLES = (
    *(exp.Sqrt, exp.Cbrt, exp.Exp, exp.Ln, exp.Log, exp.Stddev, exp.StddevPop, exp.StddevSamp),
    *(exp.Variance, exp.VariancePop, exp.Corr, exp.CovarPop, exp.CovarSamp, exp.Rand, exp.Pi),
    *(exp.Sin, exp.Cos, exp.Tan, exp.Degrees, exp.Radians),
)
CHOICES = (exp.Coalesce, exp.Nullif, exp.Greatest, exp.Least)
ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Mod)


class Kinds:
    """The types of expressions of one statement; `parameters` are values by name."""

    def __init__(self, tables: Mapping[str, Schema], parameters: Mapping[str, object]) -> None:
        """Take tables by the names that the statement has for them."""
        self.sources = Sources(tables, self.of)
        self._parameters = parameters
        self._known: dict[int, FieldType | None] = {}
        self._forms: tuple[tuple[Any, Callable[[Any], FieldType | None]], ...] = (
            (exp.Column, self._of_column),
            (exp.Literal, _literal_kind),
            (_SAME, self._of_first),
            (DOUBLES, lambda _: Primitive.DOUBLE),
            ((*ARITHMETIC, exp.Div), self._calculated),
            (exp.Parameter, lambda node: _value_kind(self.parameter(node))),
            ((exp.Cast, exp.TryCast), lambda node: _cast_kind(node.args["to"])),
            (CHOICES, lambda node: self.together(operands_of(node))),
            (exp.Case, lambda node: self.together(results_of(node))),
            ((exp.Sum, exp.Avg), self._added),
            (exp.Dot, lambda node: _member(self.of(node.this), [node.expression.name])),
            (exp.Bracket, self._element),
            (exp.Subquery, self._of_query),
            (exp.Anonymous, _arrow_kind),
        )

    def of(self, node: exp.Expr) -> FieldType | None:
        """Return the type of an expression; None if it is not known here."""
        if id(node) not in self._known:
            self._known[id(node)] = None  # what is recursive has no type that is known
            self._known[id(node)] = self._of(node)
        return self._known[id(node)]

    def _of(self, node: exp.Expr) -> FieldType | None:
        for forms, find in self._forms:
            if isinstance(node, forms):
                return find(node)
        return None

    def together(self, nodes: Sequence[exp.Expr]) -> FieldType | None:
        """Return the type of values of any of these expressions: floats, where one is a float."""
        values = [node for node in nodes if not isinstance(node, exp.Null)]
        find = self._exact_kind if self.is_exact(values) else self.of
        kinds = [find(node) for node in values]
        if any(kind in FLOATS for kind in kinds):
            same = all(kind == kinds[0] for kind in kinds)
            return kinds[0] if same else Primitive.DOUBLE
        if any(kind is None for kind in kinds):
            return None
        decimals = [kind for kind in kinds if isinstance(kind, DecimalType)]
        if decimals and len(set(kinds)) > 1:
            return DecimalType(MOST_DIGITS, max(kind.scale for kind in decimals))
        if all(kind in _WHOLE for kind in kinds) and len(set(kinds)) > 1:
            return Primitive.LONG
        return kinds[0] if len(set(kinds)) == 1 else None

    def parameter(self, node: exp.Expr) -> object:
        """Return the value of a parameter; None if it has none."""
        return self._parameters.get(node.this.name) if isinstance(node, exp.Parameter) else None

    def number(self, node: exp.Expr) -> Decimal | None:
        """Return the number that an expression writes: a literal, with its sign and in brackets, or
        a parameter that is a float.
        """
        match node:
            case exp.Paren():
                return self.number(node.this)
            case exp.Neg():
                inner = self.number(node.this)
                return None if inner is None else inner.copy_negate()
            case exp.Literal() if not node.is_string:
                return Decimal(str(node.this).replace("_", ""))
            case exp.Parameter():
                value = self.parameter(node)
                if isinstance(value, float) and math.isfinite(value):
                    return Decimal(repr(value))
        return None

    def _of_column(self, node: exp.Column) -> FieldType | None:
        if isinstance(node.this, exp.Star):
            return None
        return _member(*self.sources.resolve(node))

    def _of_query(self, node: exp.Subquery) -> FieldType | None:
        columns = self.sources.columns(node)
        return columns[0][1] if len(columns) == 1 else None

    def _of_first(self, node: exp.Expr) -> FieldType | None:
        inner = node.this
        if isinstance(inner, exp.Distinct) and inner.expressions:
            inner = inner.expressions[0]
        kind = self.of(inner) if isinstance(inner, exp.Expr) else None
        if isinstance(node, _ROUNDED):
            if kind in _WHOLE:
                return Primitive.DOUBLE
            if isinstance(kind, DecimalType):
                return DecimalType(MOST_DIGITS, kind.scale)
        return kind

    def _calculated(self, node: exp.Expr) -> FieldType | None:
        left, right = self.of(node.this), self.of(node.expression)
        if left in FLOATS or right in FLOATS:
            if isinstance(node, ARITHMETIC) and self.is_exact([node.this, node.expression]):
                left, right = self._exact_kind(node.this), self._exact_kind(node.expression)
            else:
                return left if left == right else Primitive.DOUBLE
        decimals = [kind for kind in (left, right) if isinstance(kind, DecimalType)]
        if not decimals or left is None or right is None:
            return Primitive.LONG if left in _WHOLE and right in _WHOLE else None
        scales = [kind.scale for kind in decimals]
        scale = sum(scales) if isinstance(node, exp.Mul) else max(scales)
        if isinstance(node, exp.Div):
            scale = max(scales) + 4
        return DecimalType(MOST_DIGITS, min(scale, MOST_DIGITS))

    def _exact_kind(self, node: exp.Expr) -> FieldType | None:
        number = self.number(node)
        return self.of(node) if number is None else decimal_of(number)

    def is_exact(self, nodes: Sequence[exp.Expr]) -> bool:
        """Return whether numbers among these operands are decimals: one other operand is, and none
        is a float.
        """
        kinds = [self.of(node) for node in nodes if self.number(node) is None]
        return any(isinstance(kind, DecimalType) for kind in kinds) and not any(
            kind in FLOATS or kind is None for kind in kinds
        )

    def _added(self, node: exp.Expr) -> FieldType | None:
        kind = self._of_first(node)
        if isinstance(kind, DecimalType):
            more, scale = (10, 0) if isinstance(node, exp.Sum) else (4, 4)
            precision = min(MOST_DIGITS, kind.precision + more)
            return DecimalType(precision, min(precision, kind.scale + scale))
        if kind in FLOATS:
            return Primitive.DOUBLE
        if isinstance(node, exp.Avg):
            return Primitive.DOUBLE if kind in _WHOLE else None
        return Primitive.LONG if kind in _WHOLE else None

    def _element(self, node: exp.Bracket) -> FieldType | None:
        kind = self.of(node.this)
        part = node.expressions[0] if len(node.expressions) == 1 else None
        if isinstance(kind, StructType) and isinstance(part, exp.Literal):
            return _member(kind, [part.name])
        if isinstance(kind, MapType):
            return kind.value
        return kind.element if isinstance(kind, ListType) else None


def operands_of(node: exp.Expr) -> list[exp.Expr]:
    """Return the operands of a choice, such as COALESCE."""
    parts = [node.this, node.args.get("expression"), *node.expressions]
    return [part for part in parts if isinstance(part, exp.Expr)]


def is_fraction(node: exp.Expr) -> bool:
    """Return whether DataFusion takes a number for a float: it has a fraction, an exponent, or too
    many digits.
    """
    literals = [str(part.this) for part in node.find_all(exp.Literal) if not part.is_string]
    is_parameter = node.find(exp.Parameter) is not None
    return is_parameter or any(not text.isdigit() or len(text) > 18 for text in literals)


def results_of(case: exp.Case) -> list[exp.Expr]:
    """Return the expressions that CASE may have the value of."""
    default = case.args.get("default")
    branches = [each.args["true"] for each in case.args["ifs"]]
    return [*branches, *([default] if default is not None else [])]


def decimal_of(number: Decimal) -> DecimalType | None:
    """Return the type of a number with all of its digits; None if it has too many."""
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale, 1)
    return DecimalType(precision, scale) if precision <= MOST_DIGITS else None


def _member(kind: FieldType | None, names: list[str]) -> FieldType | None:
    for name in names:
        members = kind.members if isinstance(kind, StructType) else ()
        kind = next((member.type for member in members if member.name == name), None)
    return kind


def _literal_kind(node: exp.Literal) -> FieldType | None:
    text = str(node.this)
    if node.is_string:
        return None
    return Primitive.LONG if text.isdigit() and len(text) < 19 else Primitive.DOUBLE


def _value_kind(value: object) -> FieldType | None:
    match value:
        case bool():
            return Primitive.BOOLEAN
        case int():
            return Primitive.LONG
        case float():
            return Primitive.DOUBLE
        case Decimal() if value.is_finite():
            return decimal_of(value)
    return None


def _arrow_kind(node: exp.Anonymous) -> FieldType | None:
    """Return the type that a call of `arrow_cast` names."""
    if node.name.lower() != "arrow_cast" or len(node.expressions) != 2:
        return None
    kind = node.expressions[1].name
    found = re.fullmatch(r"Decimal128\((\d+), ?(\d+)\)", kind)
    if found is None:
        return {"Float64": Primitive.DOUBLE, "Float32": Primitive.FLOAT}.get(kind)
    return _decimal(int(found[1]), int(found[2]))


def _decimal(precision: int, scale: int) -> DecimalType | None:
    fits = 1 <= precision <= MOST_DIGITS and 0 <= scale <= precision
    return DecimalType(precision, scale) if fits else None


def _cast_kind(to: exp.DataType) -> FieldType | None:
    if to.this is not exp.DType.DECIMAL:
        return _CASTS.get(to.this) if not to.expressions else None
    sizes = [str(size.this.name) for size in to.expressions if isinstance(size.this, exp.Literal)]
    if not sizes:
        return DecimalType(MOST_DIGITS, 10)
    return _decimal(int(sizes[0]), int(sizes[1]) if len(sizes) > 1 else 0)
