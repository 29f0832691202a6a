"""What conditions ask of texts that the term index of a shard can answer."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dormouse.schema.types import Primitive
from dormouse.sql.conditions import Call, Column, Expression, Literal

_WILD = re.compile(r"[%_]|\\.?", re.DOTALL)
"""What may stand for other characters in a pattern than itself."""
_BEYOND = re.compile(r"[^\x00-\x7f]+")
_WITHIN = {
    "has": (True, True),
    "=": (True, True),
    "contains": (False, False),
    "starts_with": (True, False),
    "ends_with": (False, True),
}
"""Whether what is looked for begins and ends where words do."""


@dataclass(frozen=True, slots=True)
class TextTest:
    """Whether a column holds a text, in whatever case; if it `is_begun` or `is_ended`, with no
    letter or digit before or after it.
    """

    column: str
    text: str
    is_begun: bool = True
    is_ended: bool = True


@dataclass(frozen=True, slots=True)
class TextTests:
    """Tests of which rows that match pass each, if it `needs_all`, or else one."""

    tests: "tuple[TextTest | TextTests, ...]"
    needs_all: bool


Tests: TypeAlias = TextTest | TextTests


def text_tests(expression: Expression) -> Tests | None:
    """Return tests that every row passes for which an expression is true; None if there are none.

    For example, ``has(m, 'refused') AND m LIKE '%conn% by%'`` asks for the word refused, for a part
    conn of any word, and for a word that begins with by.
    """
    match expression:
        case Call("AND", terms):
            return _each([test for term in terms if (test := text_tests(term))])
        case Call("OR", terms):
            some = [text_tests(term) for term in terms]
            tests = tuple(each for each in some if each is not None)
            return TextTests(tests, needs_all=False) if len(tests) == len(terms) else None
        case Call("IS TRUE", (inner,)):
            return text_tests(inner)
        case Call("=", (Literal() as text, Column() as column)):
            return text_tests(Call("=", (column, text), Primitive.BOOLEAN))
        case Call("IN", (Column(name, Primitive.STRING), *values)):
            texts = [str(each.value) for each in values if isinstance(each, Literal)]
            return TextTests(tuple(TextTest(name, text) for text in texts), needs_all=False)
        case Call(op, (Column(name, Primitive.STRING), Literal(str(text)))):
            if op in ("LIKE", "ILIKE"):
                return _each(list(_pattern(name, text, op)))
            return TextTest(name, text, *_WITHIN[op]) if op in _WITHIN else None
    return None


def _each(tests: Sequence[Tests]) -> Tests | None:
    if len(tests) < 2:
        return tests[0] if tests else None
    return TextTests(tuple(tests), needs_all=True)


def _pattern(column: str, pattern: str, op: str) -> Iterator[TextTest]:
    """Yield the texts between the wildcards of a pattern. Where case does not count, letters beyond
    ASCII are wildcards: engines differ in which of them are one.
    """
    parts = _WILD.split(_BEYOND.sub("%", pattern) if op == "ILIKE" else pattern)
    for at, part in enumerate(parts):
        if part:
            yield TextTest(column, part, is_begun=at == 0, is_ended=at == len(parts) - 1)
