"""What is refused as SQL before it is parsed: by its type, its length and its characters."""

from __future__ import annotations

from dormouse.errors import InvalidRequestError

MAX_STATEMENT_CHARACTERS = 256 * 1024
"""The most characters of a statement: parsing it takes about a second of CPU time."""


def check_statement(text: str) -> None:
    """Refuse a value that is not text, or that is too long to be parsed as a statement.

    Raises:
        InvalidRequestError: it is one of these.
    """
    hint = "ingest long lists of values into a table, and join it"
    check_characters(text, "statement", MAX_STATEMENT_CHARACTERS, hint)


def check_characters(text: str, what: str, most: int, hint: str = "") -> None:
    """Refuse a value that is not text, has more than `most` characters, or is not Unicode; `what`
    names it in errors.

    Raises:
        InvalidRequestError: it is one of these.
    """
    if not isinstance(text, str):
        raise InvalidRequestError(f"a {what} is SQL text, not {type(text).__name__}")
    if len(text) > most:
        raise InvalidRequestError(
            f"the {what} has {len(text):,} characters; at most {most:,} are allowed", hint=hint
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(f"the {what} contains an unpaired surrogate") from error
