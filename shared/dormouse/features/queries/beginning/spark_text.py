"""What a statement in Spark's dialect may read, by its words alone.

Spark parses and checks it, on its cluster. Before, the versions that it reads are pinned, so its
names are looked for here: every word outside of literals and comments may be that of a table, and
one too many does no harm. Spark takes no version of a view, so a reference with one gets the name
of a view of that version:

    SELECT a.n, flights.n FROM flights VERSION AS OF 33 JOIN flights AS a ON …
    SELECT a.n, flights.n FROM `flights@33` AS `flights` JOIN flights AS a ON …
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from dormouse.errors import InvalidRequestError
from dormouse.sql.text_limits import check_statement

View: TypeAlias = tuple[str, str]
"""A table, and the version of it as it was written; the newest if that is empty."""

_PARTS = re.compile(
    r"(?P<comment>--(?:\\\n|[^\r\n])*|/\*[\s\S]*?(?:\*/|\Z))"
    r"|(?P<text>[rR]'[^']*'|[rR]\"[^\"]*\"|'(?:[^'\\]|\\[\s\S])*'|\"(?:[^\"\\]|\\[\s\S])*\""
    r"|\$(?P<tag>\w*)\$[\s\S]*?\$(?P=tag)\$)"
    r"|(?P<name>`(?:[^`]|``)*`|\w+)"
)
_VERSION = re.compile(
    r"(?P<table>`(?:[^`]|``)*`|\w+)\s+(?:FOR\s+)?(?:SYSTEM_)?VERSION\s+AS\s+OF\s+"
    r"(?P<version>\d+|'[^']*'|\"[^\"]*\")(?P<alias>\s*(?:`|\w+)|)",
    re.IGNORECASE,
)
_NO_ALIAS = re.compile(
    r"|ANTI|CLUSTER|CROSS|DISTRIBUTE|EXCEPT|FULL|GROUP|HAVING|INNER|INTERSECT|JOIN|LATERAL|LEFT"
    r"|LIMIT|MINUS|NATURAL|OFFSET|ON|ORDER|PIVOT|RIGHT|SELECT|SEMI|SETMINUS|SORT|UNION|UNPIVOT"
    r"|USING|WHERE|WINDOW",
    re.IGNORECASE,
)
"""What follows a table that has no alias; before TABLESAMPLE there can be none."""


@dataclass(frozen=True, slots=True)
class SparkText:
    """A statement: its `text` for Spark, the `words` that may be names, and the views of versions
    by their names.
    """

    text: str
    words: frozenset[str]
    versions: dict[str, View]


def spark_text(statement: str) -> SparkText:
    """Return what a statement may read.

    Raises:
        InvalidRequestError: it is too long, or has a comment within a comment.
    """
    check_statement(statement)
    words: set[str] = set()

    def masked(part: re.Match[str]) -> str:
        found = part[0]
        if part["name"]:
            words.add(_plain(found))
            return found
        if part["comment"]:
            if "/*" in found[2:]:
                raise InvalidRequestError("the statement has a comment within a comment")
            return " " * len(found)
        return f"'{' ' * (len(found) - 2)}'"

    versions: dict[str, View] = {}
    text, end = [], 0
    for each in _VERSION.finditer(_PARTS.sub(masked, statement)):
        table = _plain(each["table"])
        version = statement[slice(*each.span("version"))].strip("'\"")
        view = f"{table}@{version}"
        versions[view] = (table, version)
        text += [statement[end : each.start()], quoted(view)]
        if _NO_ALIAS.fullmatch(each["alias"].strip()):
            text.append(f" AS {quoted(table)}")
        end = each.end("version")
    return SparkText("".join([*text, statement[end:]]), frozenset(words), versions)


def quoted(name: str) -> str:
    """Return a name as Spark takes it, whatever its characters."""
    return "`" + name.replace("`", "``") + "`"


def _plain(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
