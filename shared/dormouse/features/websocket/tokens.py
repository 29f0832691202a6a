"""Tokens: where the next page of a query begins, as a text that the client hands back.

A token names the query, one of its sub-queries, a file and a row. It gives its holder no right:
only the asker of the query gets its pages, on any connection. Its checksum only tells a damaged one
from one that does not fit.
"""

from __future__ import annotations

import msgspec

from dormouse.features.http.problems import ProblemError
from dormouse.features.http.resources.pages import sealed, unsealed
from dormouse.model.sources import WholeNumber
from dormouse.stored.decoding import decode_json

_AGAIN = "send the token that came with the last page of this query, or ask the query again"


class Place(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a page begins: at a row of a file, counted from 0, of a sub-query of a query."""

    query: str
    task: WholeNumber = 0
    file: WholeNumber = 0
    row: WholeNumber = 0
    v: int = 1


def token_of(place: Place) -> str:
    """Return a place as text that needs no quoting anywhere."""
    return sealed(msgspec.json.encode(place))


def place_of(token: str, query_id: str) -> Place:
    """Return what a token says; without one, the beginning of the query.

    Raises:
        ProblemError: it is damaged, or of another query, and so of another table or version.
    """
    if not token:
        return Place(query=query_id)
    try:
        found = decode_json(unsealed(token), Place)
    except ValueError as error:
        raise ProblemError(400, "`after` is no token, or is damaged", hint=_AGAIN) from error
    if found.v != 1 or found.query != query_id:
        raise ProblemError(
            422,
            "`after` is the token of another query, and so of other rows or another version",
            hint=_AGAIN,
        )
    return found
