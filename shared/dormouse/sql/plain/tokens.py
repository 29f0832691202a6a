"""The tokens of plain SQL: those that every parser of SQL takes for the same.

A text with anything else, such as a comment, a backslash or a number with an exponent, is not
plain: the parser reads it then, which takes longer to import than a look-up takes.
"""

from __future__ import annotations

import re
from typing import NamedTuple

WORD, NAME, TEXT, NUMBER, PARAMETER, MARK = "word", "name", "text", "number", "parameter", "mark"
"""A word, a name in double quotes, a text in single ones, digits with or without a point, ``$1``,
``$name`` or ``:name``, and all else.
"""
_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:
    (?P<word>[A-Za-z_][A-Za-z0-9_]*)(?![\w$'":])
    |(?P<number>[0-9]+(?:\.[0-9]+)?)(?![\w.$'":])
    |(?P<parameter>\$(?:[1-9][0-9]*|[A-Za-z_][A-Za-z0-9_]*)|:[A-Za-z_][A-Za-z0-9_]*)(?![\w$'":])
    |"(?P<name>(?:[^"\\\x00-\x1f\ud800-\udfff]|"")+)"(?!["'\w$])
    |'(?P<text>(?:[^'\\\x00-\x1f\ud800-\udfff]|'')*)'(?!["'\w$])
    |(?P<mark><=|>=|<>|!=|[=<>(),.*;-])
    )""",
    re.VERBOSE,
)

_RESERVED = """
all alter analyse analyze and anti any array as asc asof asymmetric authorization begin between
binary both by cache call case cast check cluster collate collation column comment commit
concurrently connect connect_by_root constraint copy create cross current_catalog current_date
current_role current_schema current_time current_timestamp current_user declare default deferrable
delete desc describe distinct distribute div do drop else end escape except exclude exec execute
exists explain false fetch filter for foreign format freeze from full glob global grant group
having if ignore ilike in initially inner insert intersect interval into is isnull join kill
lateral leading left like limit load localtime localtimestamp lock map match match_condition
match_recognize member merge minus natural not notnull null nullable nulls object offset on only
open operator optimize or order outer output over overlaps partition partitioned_by pivot placing
pragma prepare prewhere primary qualify range references refresh regexp reindex rename reset
respect returning revoke right rlike rollback sample select semi session_user set settings show
similar some sort start straight_join struct symmetric system_user table tablesample then to top
trailing trim true truncate uncache union unique unnest unpivot update use user using vacuum
values variadic verbose view when where while window with within xor
"""
RESERVED = frozenset(_RESERVED.split())
"""Words that are no names for some parser, at least in some places: with any of them outside quotes
in the place of a name, a text is not plain.
"""


class Token(NamedTuple):
    """A word or a mark of a text, what is in its quotes if it has some, and where it begins."""

    kind: str
    text: str
    start: int


def tokenize(text: str) -> list[Token] | None:
    """Return the tokens of a text; None if it has others than those of plain SQL."""
    found: list[Token] = []
    end = len(text.rstrip(" \t\r\n"))
    at = 0
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        kind = str(match.lastgroup)
        shown = match[kind]
        if kind in (NAME, TEXT):
            quote = '"' if kind == NAME else "'"
            shown = shown.replace(2 * quote, quote)
        found.append(Token(kind, shown, match.start(kind) - (kind in (NAME, TEXT))))
        at = match.end()
    # a lone carriage return ends a line for the parser, which says where errors are
    return None if "\r" in text.replace("\r\n", "") else found


class NotPlainError(Exception):
    """A text is not plain."""


def need(fact: object) -> None:
    """Refuse a text as not plain unless something is so.

    Raises:
        NotPlainError: it is not.
    """
    if not fact:
        raise NotPlainError


class Tokens:
    """The tokens of a text, from the first to the last."""

    def __init__(self, text: str) -> None:
        """Begin with the first.

        Raises:
            NotPlainError: the text has others than plain SQL has.
        """
        found = tokenize(text)
        need(found is not None)
        assert found is not None
        self._tokens, self._at = found, 0

    @property
    def is_at_end(self) -> bool:
        """Whether all were taken."""
        return self._at == len(self._tokens)

    def next(self) -> Token:
        """Take the next token.

        Raises:
            NotPlainError: there is none.
        """
        need(not self.is_at_end)
        self._at += 1
        return self._tokens[self._at - 1]

    def is_next(self, *said: str) -> bool:
        """Return whether these words, in capitals, and marks come next."""
        coming = self._tokens[self._at : self._at + len(said)]
        return len(coming) == len(said) and all(
            (token.text.upper() if token.kind == WORD else token.text) == wanted
            and token.kind in (WORD, MARK)
            for token, wanted in zip(coming, said, strict=True)
        )

    def take(self, *said: str) -> bool:
        """Take these words and marks, if they come next; return whether they did."""
        found = self.is_next(*said)
        self._at += len(said) if found else 0
        return found

    def expect(self, *said: str) -> None:
        """Take these words and marks.

        Raises:
            NotPlainError: something else comes.
        """
        need(self.take(*said))

    def name(self) -> Token:
        """Take a name of a column or table.

        Raises:
            NotPlainError: it is none, or a word that means something else to some parser.
        """
        token = self.next()
        need(token.kind == NAME or (token.kind == WORD and token.text.lower() not in RESERVED))
        return token
