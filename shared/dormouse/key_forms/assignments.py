"""Keys on the command line: ``name=value,name=value``, and ranges ``from..to``; split to texts.

Names and values may contain any character. So a comma separates only where a name of a column and
``=`` follow, and two dots only where such an assignment, or nothing, follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import Schema

_PLAIN_NAME = r"[A-Za-z_][A-Za-z0-9_]*"


def split_assignments(text: str, schema: Schema) -> Iterator[tuple[str, str]]:
    r"""Yield the name and the text of each part of a key.

    A backslash before a comma makes the comma part of the value, and two backslashes there are one
    that ends the value: ``a=x\,b=y`` is one value ``x,b=y``, while ``a=x\\,b=y`` is ``x\`` and
    ``y``.

    Raises:
        InvalidRequestError: a part is not of the form name=value.
    """
    for assignment in _assignments(text, schema):
        name, equals, value = _partition(assignment, schema)
        if not equals:
            raise InvalidRequestError(
                f"{assignment!r} is not part of a key", hint="write it as name=value"
            )
        yield name, value


def split_range(text: str, schema: Schema) -> list[str]:
    """Return the two ends of a range; an empty text is an open end.

    Raises:
        InvalidRequestError: it does not have two ends.
    """
    ends = re.split(rf"\.\.(?={_part_start(schema)}|$)", text)
    if len(ends) != 2:
        raise InvalidRequestError(
            f"{text!r} is not a range",
            hint="write it as name=value..name=value; leave out an end to leave it open",
        )
    return ends


def join_assignments(parts: Sequence[tuple[str, str]], schema: Schema) -> str:
    """Return names and texts of a key's parts as one text, which `split_assignments` splits."""
    texts = [f"{name}={value}" for name, value in parts]
    separators, end = set(), -1
    for text in texts:
        end += len(text) + 1
        separators.add(end)

    def escape(comma: re.Match[str]) -> str:
        separates = comma.end() - 1 in separators
        return comma[1] * 2 + ("," if separates else "\\,")

    return re.sub(rf"(\\*),(?={_part_start(schema)})", escape, ",".join(texts))


def _part_start(schema: Schema) -> str:
    """Return a pattern for the start of a part: a column's name, or any plain name, and ``=``.

    It accepts names that are not keys, so that they are refused and not read as part of a value.
    """
    names = sorted((field.name for field in schema.fields), key=len, reverse=True)
    return f"(?:{'|'.join(map(re.escape, names))}|{_PLAIN_NAME})="


def _assignments(text: str, schema: Schema) -> Iterator[str]:
    """Yield the parts of a key, without the backslashes before a comma, a name and ``=``."""
    part, at = "", 0
    for comma in re.finditer(rf"(\\*),(?={_part_start(schema)})", text):
        backslashes = len(comma[1])
        part += text[at : comma.start()] + "\\" * (backslashes // 2)
        at = comma.end()
        if backslashes % 2:
            part += ","
        else:
            yield part
            part = ""
    yield part + text[at:]


def _partition(assignment: str, schema: Schema) -> tuple[str, str, str]:
    """Return name, ``=`` and value of one part of a key; the name may contain ``=``."""
    names = [field.name for field in schema.fields if assignment.startswith(f"{field.name}=")]
    if not names:
        return assignment.partition("=")
    name = max(names, key=len)
    return name, "=", assignment[len(name) + 1 :]
