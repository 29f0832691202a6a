"""Limit the text of a condition, and parse it to a syntax tree; used by `parser`."""

from __future__ import annotations

from typing import ClassVar

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import SqlglotError

from dormouse.errors import InvalidRequestError
from dormouse.sql.expressions import MAX_BRACKETS, MAX_CONDITION_CHARACTERS, MAX_CONDITION_DEPTH
from dormouse.sql.text_limits import check_characters


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
