"""Filters of a plan of DataFusion as conditions of Dormouse.

A filter is translated to the SQL of conditions, and parsed as such. What has no such form, or would
mean something else there, is not translated: DataFusion evaluates it then.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
from datafusion import Expr, expr

from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import Primitive, Schema
from dormouse.schema.uuids import show_uuid
from dormouse.sql.conditions import parse_condition
from dormouse.sql.expressions import Literal, leaf_sql, quoted, text_literal

_OPERATORS = {
    "=": "=",
    "!=": "<>",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
    "AND": "AND",
    "OR": "OR",
    "IS DISTINCT FROM": "IS DISTINCT FROM",
    "IS NOT DISTINCT FROM": "IS NOT DISTINCT FROM",
}
_TIMES: dict[pa.DataType, Primitive] = {
    pa.timestamp("us", "UTC"): Primitive.TIMESTAMP,
    pa.timestamp("us"): Primitive.TIMESTAMP_NTZ,
    pa.timestamp("ns", "UTC"): Primitive.TIMESTAMP_NS,
    pa.timestamp("ns"): Primitive.TIMESTAMP_NTZ_NS,
    pa.date32(): Primitive.DATE,
    pa.time64("us"): Primitive.TIME,
}


class _HasNoFormError(Exception):
    """A filter has no form as a condition."""


def translated(filter_: Expr, schema: Schema) -> str | None:
    """Return a filter as the SQL of a condition on the columns of `schema`; None if it has no such
    form.
    """
    try:
        text = _sql(filter_)
        parse_condition(text, schema)
    except (_HasNoFormError, InvalidRequestError, RecursionError):
        return None
    return text


def conjuncts(filter_: Expr) -> list[Expr]:
    """Return the terms of a conjunction, or the only term."""
    return _chain(filter_, "AND")


def variant_of(expression: Expr) -> Any:
    """Return an expression as an object of its kind; None for functions and other kinds that
    DataFusion does not show to Python.
    """
    try:
        return expression.to_variant()
    except ValueError:
        return None


def column_of(expression: Expr) -> str | None:
    """Return the name of the column that an expression is; None if it is none."""
    node = variant_of(expression)
    return str(node.name()) if isinstance(node, expr.Column) else None


def _wrapped(inner: Any) -> Expr:
    return inner if isinstance(inner, Expr) else Expr(inner)


def _sql(expression: Any) -> str:
    whole = _wrapped(expression)
    node = variant_of(whole)
    for kind, write in _WRITERS.items():
        if isinstance(node, kind):
            return write(node)
    match node:
        case expr.BinaryExpr():
            return _binary(whole, node)
        case expr.Like():
            return _like(whole, node)
        case expr.Literal():
            return _literal(whole.python_value())
        case expr.Cast() if whole.canonical_name().endswith(" AS Date32)"):
            return f"CAST({_sql(node.expr())} AS DATE)"
        case None if _is_truncation(whole):
            return f"date_trunc({', '.join(map(_sql, whole.rex_call_operands()))})"
    raise _HasNoFormError


def _is_truncation(expression: Expr) -> bool:
    try:
        return expression.rex_call_operator() == "date_trunc"
    except TypeError:  # it is no call
        return False


def _binary(whole: Expr, node: Any) -> str:
    operator = _OPERATORS.get(node.op())
    if operator is None:
        raise _HasNoFormError
    terms = _chain(whole, node.op()) if operator in ("AND", "OR") else [node.left(), node.right()]
    return f"({f' {operator} '.join(map(_sql, terms))})"


def _chain(whole: Expr, operator: str) -> list[Expr]:
    """Return the terms of a chain of one operator, in their order, however it is nested."""
    terms, rest = [], [whole]
    while rest:
        term = rest.pop()
        node = variant_of(term)
        if isinstance(node, expr.BinaryExpr) and node.op() == operator:
            rest += [_wrapped(node.right()), _wrapped(node.left())]
        else:
            terms.append(term)
    return terms


def _in_list(node: Any) -> str:
    values = ", ".join(map(_sql, node.list()))
    found = f"({_sql(node.expr())} IN ({values}))"
    return f"(NOT {found})" if node.negated() else found


def _like(whole: Expr, node: Any) -> str:
    if node.escape_char() is not None:
        raise _HasNoFormError
    # the node of ILIKE has the same class; only the operator's name differs
    operator = "ILIKE" if "ilike" in whole.rex_call_operator().lower() else "LIKE"
    found = f"({_sql(node.expr())} {operator} {_sql(node.pattern())})"
    return f"(NOT {found})" if node.negated() else found


def _literal(value: Any) -> str:
    plain = value.as_py() if not _is_time(value.type) else value.value
    if plain is None:
        raise _HasNoFormError
    if _is_time(value.type):
        return leaf_sql(Literal(plain, _TIMES[value.type]))
    if pa.types.is_fixed_size_binary(value.type):
        return f"UUID '{show_uuid(plain)}'"
    match plain:
        case bool():
            return str(plain).upper()
        case str():
            return text_literal(plain)
        case bytes():
            return f"X'{plain.hex()}'"
        case float() if math.isfinite(plain):
            return f"{Decimal(repr(plain)):f}"
        case int() | Decimal():
            return f"{plain:f}" if isinstance(plain, Decimal) else str(plain)
    raise _HasNoFormError


def _is_time(kind: pa.DataType) -> bool:
    return kind in _TIMES


_WRITERS: dict[type, Callable[[Any], str]] = {
    expr.Column: lambda node: quoted(node.name()),
    expr.InList: _in_list,
    expr.Not: lambda node: f"(NOT {_sql(node.expr())})",
    expr.IsNull: lambda node: f"({_sql(node.expr())} IS NULL)",
    expr.IsNotNull: lambda node: f"(NOT ({_sql(node.expr())} IS NULL))",
    expr.IsTrue: lambda node: f"({_sql(node.expr())} IS TRUE)",
    expr.IsFalse: lambda node: f"({_sql(node.expr())} IS FALSE)",
}
