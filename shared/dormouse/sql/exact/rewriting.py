"""Write a statement so that DataFusion understands it as it is meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import Schema
from dormouse.sql.exact.dialect import StatementDialect, span_of
from dormouse.sql.exact.edits import Edit, edited, wrapped
from dormouse.sql.exact.floats import float_edits
from dormouse.sql.exact.kinds import Kinds
from dormouse.sql.exact.lists import list_edits
from dormouse.sql.exact.numbers import number_edits


def exact_sql(text: str, tables: Mapping[str, Schema], parameters: Mapping[str, object]) -> str:
    """Return a statement with what DataFusion would take for something else written otherwise.

    `tables` are by the names that the text has for them, values of `parameters` by theirs.

    Raises:
        InvalidRequestError: it is nested too deeply.
    """
    try:
        tree = sqlglot.parse_one(text, dialect=StatementDialect)
        return edited(text, list(_edits(tree, Kinds(tables, parameters))))
    except RecursionError as error:
        raise InvalidRequestError("the statement is nested too deeply") from error
    except SqlglotError as error:
        raise InvalidRequestError("the statement is not SQL") from error


def _edits(tree: exp.Expr, kinds: Kinds) -> Iterator[Edit]:
    for node in tree.walk():
        if isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ):
            # DataFusion takes all that follows for the right side, with AND and OR
            span = span_of(node)
            if span is not None:
                yield wrapped(span, "(", ")")
        yield from number_edits(node, kinds)
        yield from float_edits(node, kinds)
        yield from list_edits(node)
