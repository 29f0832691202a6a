"""The dialect of statements, and where in a text its expressions are."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import TokenType

_SPAN = "span"


class StatementDialect(Postgres):
    """PostgreSQL's, with DataFusion's FLOAT, with parameters, and without strings in dollars, of
    which ``$1,$`` could be the beginning.
    """

    class Tokenizer(Postgres.Tokenizer):
        """Its words."""

        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            **Postgres.Tokenizer.KEYWORDS,
            "FLOAT": TokenType.FLOAT,
        }
        HEREDOC_STRINGS: ClassVar[list[str | tuple[str, str]]] = []
        SINGLE_TOKENS: ClassVar[dict[str, TokenType]] = {
            **Postgres.Tokenizer.SINGLE_TOKENS,
            "$": TokenType.PARAMETER,
        }

    class Parser(PostgresParser):
        """A parser that notes where operands begin and end."""

        def _parse_unary(self) -> exp.Expr | None:
            start = self._index
            return self._noted(start, super()._parse_unary())

        def _parse_atom(self) -> exp.Expr | None:
            start = self._index
            return self._noted(start, super()._parse_atom())

        def _parse_equality(self, *arguments: Any, **named: Any) -> exp.Expr | None:
            start = self._index
            return self._noted(start, super()._parse_equality(*arguments, **named))

        def _noted(self, start: int, node: exp.Expr | None) -> exp.Expr | None:
            if node is not None and self._index > start and _SPAN not in node.meta:
                first, last = self._tokens[start], self._tokens[self._index - 1]
                node.meta[_SPAN] = (first.start, last.end + 1)
            return node


def span_of(node: exp.Expr) -> tuple[int, int] | None:
    """Return where an expression begins and ends in the text that it was parsed from, if known."""
    known = node.meta.get(_SPAN)
    if known is not None:
        return int(known[0]), int(known[1])
    match node:
        case exp.Alias() | exp.Ordered():
            return span_of(node.this)
        case exp.Between():
            last = node.args["high"]
        case exp.Binary():
            last = node.expression
        case exp.Paren():  # one that is not in the text, but shows how it was read
            return span_of(node.this)
        case _:
            return None
    first, end = _start_of(node.this), span_of(last)
    return None if first is None or end is None else (first, end[1])


def _start_of(node: object) -> int | None:
    """Return where an expression begins, which is where its leftmost operand does."""
    while isinstance(node, exp.Expr):
        known = node.meta.get(_SPAN)
        if known is not None:
            return int(known[0])
        node = node.args.get("this")
    return None
