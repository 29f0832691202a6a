"""Limit the text of a condition, and parse it to a syntax tree; used by `parser`."""

from __future__ import annotations

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from dormouse.errors import InvalidRequestError
from dormouse.sql.expressions import MAX_BRACKETS, MAX_CONDITION_CHARACTERS, MAX_CONDITION_DEPTH

_DIALECT = "postgres"  # the one whose strings, names and X'…' are those of DataFusion


def too_deep() -> InvalidRequestError:
    """Return the error for a condition that is nested too deeply."""
    return InvalidRequestError(f"the condition is nested deeper than {MAX_CONDITION_DEPTH}")


def parse_sql(text: str) -> exp.Expr:
    """Return the syntax tree of a text.

    Raises:
        InvalidRequestError: it is not SQL.
        RecursionError: it is too deep for the stack.
    """
    try:
        return sqlglot.parse_one(text, read=_DIALECT)
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
    if not isinstance(text, str):
        raise InvalidRequestError(f"a condition is SQL text, not {text!r:.80}")
    if len(text) > MAX_CONDITION_CHARACTERS:
        raise InvalidRequestError(
            f"the condition has {len(text):,} characters; "
            f"at most {MAX_CONDITION_CHARACTERS:,} are allowed"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError("the condition contains an unpaired surrogate") from error
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
