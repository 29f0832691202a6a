"""Plain conditions: comparisons of columns with values, joined by AND, OR, NOT and brackets.

What this module reads, `sql.parser` reads to the same tree; what it does not read, or what is wrong
with a text, is the parser's matter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import Primitive, Schema
from dormouse.sql.expressions import MAX_CONDITION_DEPTH, Call, Column, Expression, Literal
from dormouse.sql.expressions import depth as depth_of
from dormouse.sql.parsing.constants import number, text_as_time
from dormouse.sql.parsing.operands import compared
from dormouse.sql.plain.tokens import MARK, NUMBER, TEXT, NotPlainError, Tokens, need

MAX_CHARACTERS = 2048
"""The most characters of a plain condition: its normal form is within the limits of conditions."""
MAX_VALUES = 100
"""The most values of an IN list."""
MAX_TERMS = 100
MAX_BRACKETS = 8
COMPARISONS = ("=", "<>", "!=", "<", "<=", ">", ">=")
MAX_DEPTH = MAX_CONDITION_DEPTH - 2
"""How deep a plain condition nests at most: the parser counts some levels that its tree lacks."""
_TYPED = {
    "TIMESTAMP": Primitive.TIMESTAMP,
    "DATE": Primitive.DATE,
    "TIME": Primitive.TIME,
    "UUID": Primitive.UUID,
}


class _Here(NamedTuple):
    """A part of a condition, which shows itself in errors that nobody sees."""

    text: str = ""

    def sql(self, dialect: str, /) -> str:
        """Return the text."""
        return self.text


_HERE = _Here()


def read_condition(text: str, schema: Schema) -> Expression | None:
    """Return the checked tree of a condition on the columns of a schema; None if it is not plain,
    or anything is wrong with it.
    """
    if len(text) > MAX_CHARACTERS:
        return None
    try:
        found = _Reader(text, schema).condition()
        need(depth_of(found) <= MAX_DEPTH)
        return found
    except (NotPlainError, InvalidRequestError):
        return None


class _Reader:
    """A text that is read from its first token to its last."""

    def __init__(self, text: str, schema: Schema) -> None:
        self._tokens = Tokens(text)
        self._fields = {field.name: field for field in schema.fields}

    def condition(self) -> Expression:
        """Return its tree.

        Raises:
            NotPlainError: it is not plain.
            InvalidRequestError: something is wrong with a value.
        """
        found = self._either(0)
        need(self._tokens.is_at_end)
        return found

    def _either(self, depth: int) -> Expression:
        return self._chain("OR", lambda: self._both(depth))

    def _both(self, depth: int) -> Expression:
        return self._chain("AND", lambda: self._term(depth))

    def _chain(self, operator: str, read: Callable[[], Expression]) -> Expression:
        """Return the terms of a chain as arguments of one call; the only term as it is."""
        terms = [read()]
        while self._tokens.take(operator):
            terms.append(read())
        need(len(terms) <= MAX_TERMS)
        return _call(operator, *terms) if len(terms) > 1 else terms[0]

    def _term(self, depth: int) -> Expression:
        tokens = self._tokens
        if tokens.is_next("(") or tokens.is_next("NOT", "("):
            need(depth < MAX_BRACKETS)
            is_negated = tokens.take("NOT")
            tokens.expect("(")
            inside = self._either(depth + 1)
            tokens.expect(")")
            return _call("NOT", inside) if is_negated else inside
        column = self._column()
        if tokens.take("IS", "NOT", "NULL"):
            return _call("NOT", _call("IS NULL", column))
        if tokens.take("IS", "NULL"):
            return _call("IS NULL", column)
        if tokens.take("IN", "("):
            values = [self._value()]
            while tokens.take(","):
                values.append(self._value())
            tokens.expect(")")
            need(len(values) <= MAX_VALUES)
            return _call("IN", *compared(_HERE, [column, *values]))
        if tokens.take("BETWEEN"):
            low = self._value()
            tokens.expect("AND")
            value, *ends = compared(_HERE, [column, low, self._value()])
            return _call(
                "AND", *(_call(o, value, e) for o, e in zip((">=", "<="), ends, strict=True))
            )
        operator = tokens.next()
        need(operator.kind == MARK and operator.text in COMPARISONS)
        said = "<>" if operator.text == "!=" else operator.text
        return _call(said, *compared(_HERE, [column, self._value()]))

    def _column(self) -> Column:
        name = self._tokens.name().text
        need(name in self._fields)
        return Column(name, self._fields[name].type)

    def _value(self) -> Literal:
        tokens = self._tokens
        kind = next((kind for word, kind in _TYPED.items() if tokens.take(word)), None)
        sign = "-" if kind is None and tokens.take("-") else ""
        token = tokens.next()
        if token.kind == NUMBER and kind is None:
            return number(_HERE, sign + token.text)
        need(token.kind == TEXT and not sign)
        if kind is not None:
            return text_as_time(token.text, kind)
        return Literal(token.text, Primitive.STRING)


def _call(op: str, *arguments: Expression) -> Call:
    return Call(op, arguments, Primitive.BOOLEAN)
