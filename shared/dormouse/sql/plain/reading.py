"""The parts of a text that may be a plain statement, as they are written.

    SELECT k, s AS text FROM t FOR VERSION AS OF 3 WHERE k BETWEEN 1 AND 5 AND s <> 'b' LIMIT 3

Its items are the columns k and s, its terms `k >= 1`, `k <= 5` and `s <> 'b'`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dormouse.sql.plain.tokens import (
    MARK,
    NUMBER,
    PARAMETER,
    RESERVED,
    TEXT,
    NotPlainError,
    Tokens,
    need,
)

MAX_CHARACTERS = 4096
"""The most characters of a plain statement."""
MAX_VALUES = 100
"""The most values of an IN list."""
MAX_TERMS = 100
MAX_BRACKETS = 8
COUNT = "count"
FUNCTIONS = (COUNT, "sum", "min", "max")
COMPARISONS = ("=", "<>", "!=", "<", "<=", ">", ">=")


class NamedColumn(NamedTuple):
    """A column by its name, and that of the table before it, if there is one."""

    table: str
    name: str


class Item(NamedTuple):
    """What is selected: a column or a function of it; without column, all columns or rows. `name`
    is empty if none is said.
    """

    column: NamedColumn | None
    function: str
    name: str


class Value(NamedTuple):
    """A text, a number or the name of a parameter, as its kind of token says."""

    kind: str
    text: str


class Term(NamedTuple):
    """A test of a column: a comparison, ``IN``, ``IS NULL`` or ``IS NOT NULL``."""

    column: NamedColumn
    operator: str
    values: tuple[Value, ...] = ()


class Order(NamedTuple):
    """A column that rows are sorted by, and where nulls come: as DataFusion has it if nothing is
    said of them.
    """

    column: NamedColumn
    descending: bool
    nulls_first: bool


class PlainText(NamedTuple):
    """The parts of a text: all terms hold of its rows. `as_of` is a version, a tag or a time, empty
    for the newest. The name of the table begins at `line` and `column`, from 1.
    """

    items: tuple[Item, ...]
    table: str
    as_of: str
    alias: str
    terms: tuple[Term, ...]
    order: tuple[Order, ...]
    limit: int | None
    parameters: frozenset[str]
    line: int
    column: int


def read_text(text: str) -> PlainText | None:
    """Return the parts of a text; None if it is no plain statement, whatever its table is."""
    if len(text) > MAX_CHARACTERS:
        return None
    try:
        return _Reader(text).statement()
    except NotPlainError:
        return None


class _Reader:
    """A text that is read from its first token to its last."""

    def __init__(self, text: str) -> None:
        self._text, self._tokens = text, Tokens(text)
        self._parameters: set[str] = set()

    def statement(self) -> PlainText:
        """Return its parts.

        Raises:
            NotPlainError: it is not plain.
        """
        tokens = self._tokens
        tokens.expect("SELECT")
        items = [self._item()]
        while tokens.take(","):
            items.append(self._item())
        tokens.expect("FROM")
        table = tokens.name()
        as_of = self._version()
        alias = tokens.name().text if tokens.take("AS") or tokens.is_name_next() else ""
        terms = tuple(self._terms(0)) if tokens.take("WHERE") else ()
        need(len(terms) <= MAX_TERMS)
        order = tuple(self._order()) if tokens.take("ORDER", "BY") else ()
        limit = self._limit() if tokens.take("LIMIT") else None
        while tokens.take(";"):
            pass
        need(tokens.is_at_end)
        before = self._text[: table.start]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        parameters = frozenset(self._parameters)
        found = (tuple(items), table.text, as_of, alias, terms, order, limit, parameters)
        return PlainText(*found, line, column)

    def _item(self) -> Item:
        tokens = self._tokens
        if tokens.take("*"):
            return Item(None, "", "")
        function = next((f for f in FUNCTIONS if tokens.take(f.upper(), "(")), "")
        column = None
        if function == COUNT:
            tokens.expect("*")
        else:
            column = self._column()
        if function:
            tokens.expect(")")
        has_name = tokens.take("AS") or tokens.is_name_next()
        name = tokens.name().text if has_name else ""
        need("." not in name)  # it may be that of a column with its table, which is there twice
        return Item(column, function, name)

    def _column(self) -> NamedColumn:
        name = self._tokens.name().text
        if self._tokens.take("."):
            return NamedColumn(name, self._tokens.name().text)
        return NamedColumn("", name)

    def _version(self) -> str:
        tokens = self._tokens
        if not tokens.take("FOR"):
            return ""
        need(tokens.take("VERSION") or tokens.take("TIMESTAMP"))
        tokens.expect("AS", "OF")
        value = tokens.next()
        need(value.kind in (NUMBER, TEXT) and value.text)
        return value.text

    def _terms(self, depth: int) -> Iterator[Term]:
        """Yield the terms of a conjunction: brackets change nothing."""
        need(depth <= MAX_BRACKETS)
        while True:
            if self._tokens.take("("):
                yield from self._terms(depth + 1)
                self._tokens.expect(")")
            else:
                yield from self._term()
            if not self._tokens.take("AND"):
                return

    def _term(self) -> Iterator[Term]:
        tokens, column = self._tokens, self._column()
        if tokens.take("IS", "NOT", "NULL"):
            yield Term(column, "IS NOT NULL")
        elif tokens.take("IS", "NULL"):
            yield Term(column, "IS NULL")
        elif tokens.take("IN", "("):
            values = [self._value()]
            while tokens.take(","):
                values.append(self._value())
            tokens.expect(")")
            need(len(values) <= MAX_VALUES)
            yield Term(column, "IN", tuple(values))
        elif tokens.take("BETWEEN"):
            yield Term(column, ">=", (self._value(),))
            tokens.expect("AND")
            yield Term(column, "<=", (self._value(),))
        else:
            operator = tokens.next()
            need(operator.kind == MARK and operator.text in COMPARISONS)
            said = "<>" if operator.text == "!=" else operator.text
            yield Term(column, said, (self._value(),))

    def _value(self) -> Value:
        sign = "-" if self._tokens.take("-") else ""
        token = self._tokens.next()
        need(token.kind == NUMBER or (token.kind in (TEXT, PARAMETER) and not sign))
        if token.kind == PARAMETER:
            need(token.text[1:].lower() not in RESERVED)
            self._parameters.add(token.text[1:])
            return Value(PARAMETER, token.text[1:])
        return Value(token.kind, sign + token.text)

    def _order(self) -> Iterator[Order]:
        tokens = self._tokens
        while True:
            column = self._column()
            descending = not tokens.take("ASC") and tokens.take("DESC")
            nulls_first = descending
            if tokens.take("NULLS", "FIRST"):
                nulls_first = True
            elif tokens.take("NULLS", "LAST"):
                nulls_first = False
            yield Order(column, descending, nulls_first)
            if not tokens.take(","):
                return

    def _limit(self) -> int:
        token = self._tokens.next()
        need(token.kind == NUMBER and token.text.isdigit())
        need(int(token.text) < 2**63)
        return int(token.text)
