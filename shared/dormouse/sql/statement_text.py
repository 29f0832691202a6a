"""What is refused as a statement in SQL before it is parsed."""

from __future__ import annotations

from dormouse.errors import InvalidRequestError

MAX_STATEMENT_CHARACTERS = 256 * 1024
"""The most characters of a statement: parsing it takes about a second of CPU time."""


def check_statement(text: str) -> None:
    """Refuse a value that is not text, or that is too long to be parsed.

    Raises:
        InvalidRequestError: it is one of these.
    """
    if not isinstance(text, str):
        raise InvalidRequestError(f"a statement is SQL text, not {type(text).__name__}")
    if len(text) > MAX_STATEMENT_CHARACTERS:
        raise InvalidRequestError(
            f"the statement has {len(text):,} characters; "
            f"at most {MAX_STATEMENT_CHARACTERS:,} are allowed",
            hint="ingest long lists of values into a table, and join it",
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError("the statement contains an unpaired surrogate") from error
