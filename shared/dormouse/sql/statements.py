"""Statements in SQL: checked to be one query, its references to tables found and made unique.

The text stays as it was written but for a few places, which are replaced by position. Each
reference to a table gets a name of its own, so that each scan of a plan says which reference it is
of, and which version it reads. For example:

    SELECT f.flight FROM flights FOR VERSION AS OF 33 f JOIN carriers ON f.carrier = carriers.id
    SELECT f.flight FROM "#0" f JOIN "#1" AS "carriers" ON f.carrier = carriers.id
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from dormouse.errors import InvalidRequestError
from dormouse.sql.exact.dialect import StatementDialect
from dormouse.sql.exact.edits import Edit, edited, replaced
from dormouse.sql.exact.sources import find_cte
from dormouse.sql.expressions import quoted
from dormouse.sql.text_limits import check_statement

MAX_REFERENCES = 64
"""The most references to tables: each is a scan of its own."""

MAX_SELECTS = 256
"""The most SELECTs of a statement: DataFusion plans thousands of them for many seconds."""


_EXPLAIN = re.compile(r"\s*explain\s", re.IGNORECASE)
_BEGINNINGS = (TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN, TokenType.VALUES)
_QUERIES = (exp.Select, exp.SetOperation, exp.Subquery, exp.Values)
_VERSION = re.compile(r"FOR (VERSION|TIMESTAMP) AS OF")
_CHANGES = (
    exp.Insert,
    exp.Update,
    exp.Delete,
    exp.Merge,
    exp.Create,
    exp.Drop,
    exp.Copy,
    exp.Command,
    exp.Into,
    exp.Lock,
)
_OWN = "#"
"""What the names that references get begin with."""
_ROW_FUNCTIONS = ("generate_series", "range", "unnest")
"""The only functions that may be in the place of a table: they make rows of their arguments."""
_REFERENCE_PARTS = frozenset({"this", "alias", "version", "joins"})
_ENDS_A_VALUE = (
    TokenType.NUMBER,
    TokenType.VAR,
    TokenType.IDENTIFIER,
    TokenType.STRING,
    TokenType.R_BRACKET,
    TokenType.R_PAREN,
)


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference to a table: `name` is its own in the statement, `as_of` a version, a tag or a
    time, empty for the newest version. It begins at `line` and `column`, from 1.
    """

    name: str
    table: str
    as_of: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Statement:
    """A query. `sql` is what DataFusion gets; `parameters` are named in it; `explains` says that
    not its rows are wanted, but what would be read for them. `tree` is what was parsed.
    """

    sql: str
    references: tuple[Reference, ...]
    parameters: tuple[str, ...]
    explains: bool
    tree: exp.Expr = field(compare=False, repr=False)


def parse_statement(text: str) -> Statement:
    """Return a statement that is one query: SELECT, WITH, VALUES, or a set operation on these.

    Raises:
        InvalidRequestError: it is anything else; the message says where.
    """
    check_statement(text)
    explains = _EXPLAIN.match(text)
    if explains:
        text = " " * explains.end() + text[explains.end() :]  # positions stay what they are
    try:
        tokens = _first_statement(sqlglot.tokenize(text, read=StatementDialect), text)
        tree = _parsed(tokens, text)
        references = list(_references(tree, tokens))
    except RecursionError as error:
        raise InvalidRequestError("the statement is nested too deeply") from error
    except SqlglotError as error:
        raise _not_sql(error) from error
    edits = [edit for _, edit in references]
    parameters = list(_parameters(tokens))
    edits += [edit for _, edit in parameters if edit is not None]
    return Statement(
        edited(text[: tokens[-1].end + 1], edits),
        tuple(reference for reference, _ in references),
        tuple(dict.fromkeys(name for name, _ in parameters)),
        explains is not None,
        tree,
    )


def to_sql(tree: exp.Expr) -> str:
    """Return a part of a tree as text. It may not mean what it was parsed from: compare plans."""
    return tree.sql(dialect=StatementDialect)


def _first_statement(tokens: Sequence[Token], text: str) -> list[Token]:
    """Return the tokens of the only statement of a text, without the semicolon that ends it."""
    found = list(tokens)
    while found and found[-1].token_type is TokenType.SEMICOLON:
        found.pop()
    if not found:
        raise InvalidRequestError("the statement is empty", hint="write SELECT … FROM a table")
    if found[0].token_type not in _BEGINNINGS:
        raise InvalidRequestError(
            f"{_at(found[0])}: {_word(found[0], text)} cannot be run, only queries can",
            hint="begin with SELECT or WITH",
        )
    for before, token in zip(found, found[1:], strict=False):
        if before.token_type is TokenType.SEMICOLON:
            raise InvalidRequestError(
                f"{_at(token)}: a second statement begins there",
                hint="run one statement at a time",
            )
    return found


def _parsed(tokens: list[Token], text: str) -> exp.Expr:
    trees = StatementDialect().parser().parse(tokens, text)
    tree = trees[0]
    if not isinstance(tree, _QUERIES):
        raise InvalidRequestError(
            f"{_at(tokens[0])}: this is not a query", hint="begin with SELECT or WITH"
        )
    selects = 0
    for node in tree.walk():
        selects += isinstance(node, exp.Select)
        if isinstance(node, exp.CTE) and node.alias.startswith(_OWN):
            raise InvalidRequestError(
                f"a WITH cannot be called {node.alias}",
                hint=f"give it a name that does not begin with {_OWN}",
            )
        if isinstance(node, _CHANGES):
            raise InvalidRequestError(
                f"{node.key.upper()} is not allowed in a statement",
                hint="queries read tables, and change nothing",
            )
    if selects > MAX_SELECTS:
        raise InvalidRequestError(
            f"the statement has {selects:,} SELECTs; at most {MAX_SELECTS} are allowed",
            hint="rows of values are one VALUES, and are joined if they are many",
        )
    return tree


def _references(tree: exp.Expr, tokens: Sequence[Token]) -> Iterator[tuple[Reference, Edit]]:
    """Yield the references to tables, in the order of the text, each with its edit."""
    places = {token.start: number for number, token in enumerate(tokens)}
    tables = [node for node in tree.find_all(exp.Table) if not _is_function(node)]
    named = [node for node in tables if find_cte(node) is None]
    named.sort(key=lambda node: int(node.this.meta["start"]))
    if len(named) > MAX_REFERENCES:
        raise InvalidRequestError(
            f"the statement refers to tables {len(named):,} times; "
            f"at most {MAX_REFERENCES} are allowed"
        )
    for number, node in enumerate(named):
        token = tokens[places[int(node.this.meta["start"])]]
        said = {name for name, part in node.args.items() if part}
        if not said <= _REFERENCE_PARTS:
            raise InvalidRequestError(
                f"{_at(token)}: a table is named by itself alone, with a version and an alias",
                hint='a name with dots is quoted: "events.2026"',
            )
        as_of, last = "", token
        if node.args.get("version"):
            as_of, last = _version(tokens, places[token.start])
        name, table = f"{_OWN}{number}", node.name
        alias = "" if node.args.get("alias") else f" AS {quoted(table)}"
        line, column = _place(token)
        edit = replaced((token.start, last.end + 1), f"{quoted(name)}{alias}")
        yield Reference(name, table, as_of, line, column), edit


def _version(tokens: Sequence[Token], at: int) -> tuple[str, Token]:
    """Return the version that follows a table's name, and the last token of it."""
    *words, value = tokens[at + 1 : at + 6]
    said = " ".join(token.text.upper() for token in words)
    values = (TokenType.NUMBER, TokenType.STRING)
    if not _VERSION.fullmatch(said) or value.token_type not in values or not value.text:
        raise InvalidRequestError(
            f"{_at(tokens[at])}: the version of the table is not understood",
            hint="write FOR VERSION AS OF and a number or a tag in quotes, or "
            "FOR TIMESTAMP AS OF and a time in quotes",
        )
    return value.text, value


def _is_function(table: exp.Table) -> bool:
    """Return whether a function is in the place of a table; refuse those that might read files."""
    if isinstance(table.this, exp.Identifier):
        return False
    if isinstance(table.this, exp.GenerateSeries | exp.Unnest):
        return True
    known = isinstance(table.this, exp.Func) and not isinstance(table.this, exp.Anonymous)
    name = table.this.sql_name() if known else table.this.name or table.this.key
    if name.lower() not in _ROW_FUNCTIONS:
        raise InvalidRequestError(
            f"{name.lower()} is not allowed in the place of a table",
            hint=f"name a table, or one of the functions {', '.join(_ROW_FUNCTIONS)}",
        )
    return True


def _parameters(tokens: Sequence[Token]) -> Iterator[tuple[str, Edit | None]]:
    """Yield the names of the parameters ``$1``, ``$name`` and ``:name``; the last form is
    replaced by the one before.
    """
    for number, (token, after) in enumerate(zip(tokens, tokens[1:], strict=False)):
        if token.token_type is TokenType.PARAMETER and "$" in after.text:
            raise InvalidRequestError(
                f"{_at(token)}: text in dollars is not understood",
                hint="write text in single quotes, and parameters as $1 or $name",
            )
        if after.start != token.end + 1 or not re.fullmatch(r"\w+", after.text):
            continue
        if token.token_type is TokenType.PARAMETER:
            yield after.text, None
            continue
        is_colon = token.token_type is TokenType.COLON and after.text.isidentifier()
        if is_colon and number and tokens[number - 1].token_type not in _ENDS_A_VALUE:
            yield after.text, replaced((token.start, token.end + 1), "$")


def _place(token: Token) -> tuple[int, int]:
    """Return the line and the column, both from 1, where a token begins; it has those of its
    end.
    """
    return token.line, max(1, token.col - (token.end - token.start))


def _at(token: Token) -> str:
    line, column = _place(token)
    return f"line {line}, column {column}"


def _word(token: Token, text: str) -> str:
    return text[token.start : token.end + 1].split(maxsplit=1)[0].upper()[:40]


def _not_sql(error: SqlglotError) -> InvalidRequestError:
    places = getattr(error, "errors", None)
    if not places:
        return InvalidRequestError(f"the statement is not SQL: {str(error).splitlines()[0]}")
    place = places[0]
    problem = str(place.get("description"))
    if problem.startswith("Required keyword"):  # followed by the name of a class of the parser
        problem = "something is missing"
    return InvalidRequestError(
        f"the statement is not SQL at line {place.get('line')}, column {place.get('col')}, "
        f"near {(place.get('highlight') or '')!r}: {problem}"
    )
