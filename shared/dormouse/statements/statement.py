"""Statements in SQL: checked to be one query, and their references to tables found.

DuckDB parses the text itself, so what is checked is what will run. The text stays as it was written
but for the references to tables, which are replaced by position: each gets a name of its own, so
that each scan says which reference it is of, and which version it reads. For example:

    SELECT f.flight FROM flights FOR VERSION AS OF 33 f JOIN carriers ON f.carrier = carriers.id
    SELECT f.flight FROM "#0" f JOIN "#1" AS "carriers" ON f.carrier = carriers.id
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from importlib.resources import files
from itertools import count, pairwise
from numbers import Integral
from operator import itemgetter
from threading import Lock
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa
from cachetools import LRUCache, cached

from dormouse.errors import InvalidRequestError, did_you_mean
from dormouse.schema.row_tags import tag_in
from dormouse.schema.schema import ASKED
from dormouse.sql.conditions import (
    MAX_PATTERN,
    SPACE,
    Condition,
    check_statement,
    has_words,
    quoted,
)
from dormouse.stored.decoding import decode_json

MAX_REFERENCES = 64
"""The most references to tables: each is a scan of its own."""
MAX_SELECTS = 256
"""The most SELECTs of a statement: planning thousands takes many seconds."""
MAX_DEPTH = 200
"""How deeply a statement may be nested: the engine's planner recurses."""
MAX_NAME = 1_000
"""The most characters of a name or a number: errors quote them."""
MAX_PARTS = 64
"""The most names with dots between them: to look for each member of the one before takes long."""
ROW_FUNCTIONS = frozenset(
    ("generate_series", "generate_subscripts", "json_each", "json_tree")
    + ("range", "regexp_split_to_table", "unnest")
)
"""The only functions that may be in the place of a table: they make rows of their arguments."""
REMEMBERED_CHARACTERS, LEAST_CHARACTERS = 64 * 1024, 1024
"""The characters of the statements that a process remembers, of which each counts for some more:
that is some megabytes as trees. To parse one takes as long as to answer it from a small table."""
QUERY_NODES = frozenset({"CTE_NODE", "RECURSIVE_CTE_NODE", "SELECT_NODE", "SET_OPERATION_NODE"})
"""The parts of a statement that only read; a CTE may hold COPY, INSERT, UPDATE or DELETE too."""
FUNCTIONS = frozenset(files("dormouse.statements").joinpath("functions.txt").read_text().split())
"""The functions that may be in a statement: those of the pinned DuckDB that compute from their
arguments alone. None tells of the machine or of the engine's settings, waits, changes something,
runs or parses SQL, ends a statement with a value as its error, or takes bytes for what the engine
holds in memory. A function of a later DuckDB is refused until somebody has looked at it."""
_BY_NAME = frozenset({"aggregate", "array_aggr", "array_aggregate", "list_aggr", "list_aggregate"})
"""Those whose second argument is the name of an aggregate."""
_PATTERN_FUNCTIONS = frozenset({"~", "!~", "~*", "!~*", "string_split_regex", "str_split_regex"})

Node: TypeAlias = Mapping[str, Any]
"""A node of DuckDB's own tree of a statement, as ``json_serialize_sql`` returns it."""
_EXPLAIN = re.compile(rf"{SPACE}EXPLAIN\b({SPACE}(?:\(\s*FORMAT|ANALYZE)\b)?", re.IGNORECASE)
_TAG = "tag"
"""The function of row tags; DuckDB has none of that name."""
HAS = "has"
"""The function that looks for words, which DuckDB calls back for."""
_OWN_FUNCTIONS = {_TAG, HAS, "json_kind"}
_OWN = "#"
"""What the names that references get begin with."""
_SYSTEM = ("duckdb_", "pg_", "pragma_", "sqlite_")
"""What the names of DuckDB's own views begin with, which a name alone can mean."""
_CHANGES = ("DELETE", "INSERT", "MERGE", "UPDATE")
_SEVERAL = "there are several statements"
_ONE = "run one statement at a time, such as SELECT … FROM a table"
_TOO_DEEP = "expression depth limit"
_OF_QUERIES = re.compile(
    "ALL|AND|AS|BETWEEN|BY|CASE|CAST|CROSS|DISTINCT|ELSE|EXCEPT|FROM|FULL|GROUP|HAVING|IN|INNER"
    "|INTERSECT|IS|JOIN|LEFT|LIKE|LIMIT|NOT|NULL|NULLS|ON|OR|ORDER|OUTER|OVER|PARTITION|RIGHT"
    "|SELECT|THEN|UNION|USING|VALUES|WHEN|WHERE|WITH",
    re.IGNORECASE,
)
"""Reserved words that are more likely a query's than a column."""
_JOINS = ("REGULAR", "NATURAL", "CROSS")
_VALUES = ("identifier", "string_const", "numeric_const")


@dataclass(frozen=True, slots=True)
class TableReference:
    """A reference to a table: `name` is its own in the statement, `as_of` a version, a tag or a
    time, empty for the newest version. It begins at `line` and `column`, from 1.
    """

    name: str
    table: str
    as_of: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class ParsedStatement:
    """A query. `sql` is what DuckDB gets; `parameters` are named in it; `explains` says that not
    its rows are wanted, but what would be read for them. `tree` is what was parsed. `bounds` are
    true of all rows that count of references. `asked` are the columns in `sql` that are no columns
    of a table: row tags, as `tag_column` calls them, and those of `ASKED`.
    """

    sql: str
    references: tuple[TableReference, ...]
    parameters: tuple[str, ...]
    explains: bool
    tree: Node = field(compare=False, repr=False)
    bounds: Mapping[str, Condition] = field(default_factory=dict)
    asked: tuple[str, ...] = ()

    @property
    def tables(self) -> Mapping[str, str]:
        """The names of tables by those that their references have in the statement."""
        return {each.name: each.table for each in self.references}

    @property
    def names(self) -> frozenset[str]:
        """The names of columns that are in it, whatever they are of; with ``*`` for all."""
        names = {*self.asked}
        for node in all_nodes(self.tree):
            names.update(node.get("column_names", ()))
            if node.get("class") == "STAR":
                names.add("*")
        return frozenset(names)


@dataclass(frozen=True, slots=True)
class _Token:
    """A token of a text, or several as one: ``FOR VERSION AS OF`` with its value as `text`, or a
    call of ``tag`` with its key. Positions count bytes, as DuckDB does.
    """

    start: int
    end: int
    kind: str
    text: str


def parse_statement(text: str, parser: duckdb.DuckDBPyConnection) -> ParsedStatement:
    """Return a statement that is one query: SELECT, WITH, VALUES, or a set operation on these.
    Raises InvalidRequestError: it is anything else; the message says where.
    """
    check_statement(text)
    return _remembered(text, parser)[1]


@cached(
    LRUCache(REMEMBERED_CHARACTERS, getsizeof=itemgetter(0)), key=lambda text, _: text, lock=Lock()
)
def _remembered(text: str, parser: duckdb.DuckDBPyConnection) -> tuple[int, ParsedStatement]:
    """Return a statement, and for how many characters it counts."""
    return len(text) + LEAST_CHARACTERS, _checked_statement(text, parser)


def _checked_statement(text: str, parser: duckdb.DuckDBPyConnection) -> ParsedStatement:
    explains = _EXPLAIN.match(text)
    if explains:
        if explains[1]:
            raise InvalidRequestError("EXPLAIN has no options", hint="write EXPLAIN SELECT …")
        text = re.sub(r"\S", " ", explains[0]) + text[explains.end() :]  # positions stay the same
    tokens = list(_tokens(text.encode()))
    versions = {each.start: each for each in _versions(tokens)}
    plain = _edited(
        text.encode(),
        [
            *((v.start, v.end, b" " * (v.end - v.start)) for v in versions.values()),
            *((colon, colon + 1, b"$") for colon in _colons(tokens)),
        ],
    )
    whole = _parsed(plain, parser)
    _check(whole["node"])
    after = {a.start: b.start for a, b in pairwise(tokens)}
    names = {token.start: token for token in tokens}
    references: list[TableReference] = []
    called: dict[int, str] = {}
    edits = []
    # names that are nowhere in the text: WITH and aliases may name anything
    own_names = (own for n in count() if (own := f"{_OWN}{n}") not in text)
    for node in _tables(whole["node"], frozenset()):
        token, table = names.get(node["query_location"]), node["table_name"]
        at = _place(plain, node["query_location"])
        _check_table(node, at)
        if token is None or _name(token) != table:  # DuckDB says another place, or none
            raise InvalidRequestError(
                f"table {table} is not named after FROM",
                hint=f"write FROM {table}, with plain spaces, and an alias after it",
            )
        version = versions.pop(after.get(token.start, -1), None)
        as_of = version.text if version else ""
        name = next(own_names)
        references.append(TableReference(name, table, as_of, *at))
        called[node["query_location"]] = node["alias"] or table
        alias = "" if node["alias"] else f" AS {quoted(table)}"
        edits.append((token.start, token.end, f"{quoted(name)}{alias}".encode()))
    asked, more = _asked(whole["node"], tokens, called, plain)
    edits += more
    _check_references(references, versions.values(), plain)
    end = max((token.end for token in tokens if token.text.strip("; ")), default=0)
    return ParsedStatement(
        _edited(plain[:end], edits).decode(),
        tuple(references),
        tuple(each["key"] for each in whole["named_param_map"]),
        explains is not None,
        whole["node"],
        asked=asked,
    )


def _check_references(
    references: Sequence[TableReference], unused: Iterable[_Token], text: bytes
) -> None:
    """Refuse too many references, and versions that are of no table."""
    for version in unused:
        raise InvalidRequestError(
            f"{_at(text, version.start)}: the version does not follow the name of a table",
            hint="write FROM table FOR VERSION AS OF 33, and an alias after it",
        )
    if len(references) > MAX_REFERENCES:
        raise InvalidRequestError(
            f"the statement refers to tables {len(references):,} times; "
            f"at most {MAX_REFERENCES} are allowed"
        )


# What can be asked for and is no column: ``tag('day')``, or ``f.tag('day')`` of one of several
# tables, and names such as ``_file``.
#
# Each becomes a column, which every table of the statement has then; so that a star does not mean
# it, the star leaves it out.


def tag_column(key: str) -> str:
    """Return what the column of a row tag is called in a statement."""
    return f"tag('{key}')"


def _asked(
    node: Node, tokens: Sequence[_Token], tables: Mapping[int, str], text: bytes
) -> tuple[tuple[str, ...], list[tuple[int, int, bytes]]]:
    """Return what a statement asks for that is no column of a table, and the edits for it; `tables`
    are what references are called where they stand, by their places.
    """
    tags = list(_tags(node, tokens, text))
    named = (name for each in all_nodes(node) for name in each.get("column_names", ()))
    used = {name.lower() for name in named}
    asked = tuple(dict.fromkeys(tag_column(tag.text) for tag in tags))
    asked += tuple(field.name for field in ASKED if field.name in used)
    edits = [(tag.start, tag.end, quoted(tag_column(tag.text)).encode()) for tag in tags]
    return asked, [*edits, *(_without_asked(node, tokens, tables, asked) if asked else ())]


def _tags(node: Node, tokens: Sequence[_Token], text: bytes) -> Iterator[_Token]:
    """Yield the calls of ``tag`` in a statement.
    Raises InvalidRequestError: it is not called with the key of a row tag, in quotes; or two keys
    differ only by the case of letters, which columns do not.
    """
    places = {token.start: place for place, token in enumerate(tokens)}
    seen: dict[str, str] = {}
    for each in all_nodes(node):
        if str(each.get("function_name", "")).lower() != _TAG:
            continue
        at = each["query_location"]
        first = places.get(at)
        if first is not None and tokens[first + 1].text == ".":  # of a table
            first += 2
        called = tokens[first : first + 4] if first is not None else []
        words = [token.text for token in called]
        key = words[2][1:-1] if len(words) == 4 else ""
        if words[1::2] != ["(", ")"] or words[2] != f"'{key}'" or tag_in(key, "-") is None:
            raise InvalidRequestError(
                f"{_at(text, at)}: tag takes the key of a row tag", hint="write tag('day')"
            )
        if seen.setdefault(key.lower(), key) != key:
            raise InvalidRequestError(f"the row tags {key} and {seen[key.lower()]} differ by case")
        yield _Token(called[0].start, called[3].end, _TAG, key)


def _without_asked(
    node: Node, tokens: Sequence[_Token], tables: Mapping[int, str], asked: Sequence[str]
) -> Iterator[tuple[int, int, bytes]]:
    """Yield the edits by which no star of a statement means the columns `asked`.
    Raises InvalidRequestError: another part of it would mean them.
    """
    places = {token.start: place for place, token in enumerate(tokens)}
    for select in all_nodes(node):
        if select.get("type") != "SELECT_NODE":
            continue
        own = list(_own_tables(select["from_table"], tables))
        parts = {name: value for name, value in select.items() if name != "from_table"}
        for star in _within(parts) if own else ():
            if star.get("class") != "STAR":
                continue
            named = [n for n in own if not star["relation_name"] or star["relation_name"] == n]
            names = [f"{quoted(n)}.{quoted(name)}" for n in named for name in asked]
            if names:
                yield _excluded(star, tokens, places.get(star["query_location"]), names)


def _excluded(
    star: Node, tokens: Sequence[_Token], place: int | None, names: Sequence[str]
) -> tuple[int, int, bytes]:
    """Return the edit by which a star leaves out some columns."""
    following = tokens[place:] if place is not None else []
    at = next((n for n, token in enumerate(following[:3]) if token.text == "*"), -1)
    columns = ", ".join(names)
    if at >= 0 and not star["exclude_list"] and not star.get("qualified_exclude_list"):
        return following[at].end, following[at].end, f" EXCLUDE ({columns})".encode()
    exclude, first = [*following[at + 1 : at + 3], None, None][:2] if at >= 0 else (None, None)
    if exclude and first and exclude.text.upper() == "EXCLUDE":
        if first.text == "(":
            return first.end, first.end, f"{columns}, ".encode()
        return first.start, first.end, f"({columns}, {first.text})".encode()
    raise InvalidRequestError(
        "a statement with tag() or origins of rows selects columns by their names, or by * with "
        "EXCLUDE (…)",
        hint="write SELECT and the columns",
    )


def _own_tables(source: Node, tables: Mapping[int, str]) -> Iterator[str]:
    """Yield what the tables are called that a FROM names itself, not in a query in it."""
    kind = source.get("type")
    if kind == "BASE_TABLE" and source["query_location"] in tables:
        yield tables[source["query_location"]]
    nodes = [] if kind == "SUBQUERY" else [*_children(source)]
    names = [name for child in nodes for name in _own_tables(child, tables)]
    if names and (kind == "PIVOT" or source.get("ref_type") == "NATURAL"):
        raise InvalidRequestError(
            "a statement with tag() or origins of rows has no PIVOT or NATURAL JOIN of tables: "
            "they take all columns",
            hint="use them on a query in brackets that selects the columns",
        )
    yield from names


def _within(parts: Mapping[str, Any]) -> Iterator[Node]:
    """Yield the nodes of parts of a query, but not those of queries in it."""
    rest = list(_children(parts))
    while rest:
        current = rest.pop()
        yield current
        rest += (e for e in _children(current) if not str(e.get("type")).endswith("_NODE"))


def all_nodes(node: Node) -> Iterator[Node]:
    """Yield a node and all within it."""
    rest = [node]
    while rest:
        current = rest.pop()
        yield current
        rest += _children(current)


def _tokens(text: bytes) -> Iterator[_Token]:
    """Yield the tokens of a text without comments, as DuckDB finds them."""
    places = [(start, kind.name) for start, kind in duckdb.tokenize(text.decode())]
    for (start, kind), (end, _) in pairwise([*places, (len(text), "")]):
        if kind != "comment":
            word = text[start:end].decode(errors="replace").rstrip()
            if len(word) > MAX_NAME and kind != "string_const":
                raise InvalidRequestError(f"a name or number has more than {MAX_NAME:,} characters")
            yield _Token(start, start + len(word.encode()), kind, word)


def _name(token: _Token) -> str:
    """Return the name that a token is, without its quotes."""
    quote = token.text[:1]
    return token.text[1:-1].replace(quote * 2, quote) if quote in ("'", '"') else token.text


def _versions(tokens: Sequence[_Token]) -> Iterator[_Token]:
    for words in zip(*(tokens[n:] for n in range(5)), strict=False):
        first, kind, *others, value = words
        keywords = [first.text.upper(), *(each.text.upper() for each in others)]
        if keywords == ["FOR", "AS", "OF"] and kind.text.upper() in ("VERSION", "TIMESTAMP"):
            if value.kind not in ("string_const", "numeric_const") or len(value.text) < 1:
                continue
            yield _Token(first.start, value.end, "version", _name(value))


def _colons(tokens: Sequence[_Token]) -> Iterator[int]:
    """Yield where parameters ``:name`` begin: DuckDB writes them ``$name``."""
    for before, colon, name in zip([None, *tokens], tokens, tokens[1:], strict=False):
        if colon.text != ":" or name.start != colon.end or not name.text.isidentifier():
            continue
        if before is None or (before.kind not in _VALUES and before.text[-1] not in ")]}"):
            yield colon.start


def _edited(text: bytes, edits: Sequence[tuple[int, int, bytes]]) -> bytes:
    """Return a text with other bytes in place of some disjoint parts."""
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _parsed(text: bytes, parser: duckdb.DuckDBPyConnection) -> Node:
    """Return the only statement of a text as DuckDB's tree."""
    try:
        whole = parsed_tree(text.decode(), parser)
    except duckdb.Error as error:
        raise InvalidRequestError(f"the statement is not SQL: {first_line(error)}") from error
    except ValueError as error:
        raise InvalidRequestError("the statement is nested too deeply") from error
    if whole["error"]:
        raise _refused(text, whole)
    if len(whole["statements"]) != 1:
        problem = _SEVERAL if whole["statements"] else "the statement is empty"
        raise InvalidRequestError(problem, hint=_ONE)
    statement: Node = whole["statements"][0]
    return statement


def parsed_tree(text: str, parser: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    """Return DuckDB's tree of a text. Raises ValueError if it is nested too deeply."""
    row = parser.execute("SELECT json_serialize_sql(?::VARCHAR)", [text]).fetchone()
    assert row is not None
    return decode_json(row[0], dict[str, Any])


def _refused(text: bytes, error: Node) -> InvalidRequestError:
    """Return DuckDB's refusal of a text as ours."""
    if _TOO_DEEP in error["error_message"]:
        return InvalidRequestError("the statement is nested too deeply")
    if error["error_type"] == "not implemented":
        if not str(error["error_message"]).startswith("Only SELECT"):
            return InvalidRequestError(f"the statement cannot be run: {error['error_message']}")
        upper = text.decode(errors="replace").upper()
        if "PIVOT" in upper:
            return InvalidRequestError(
                "PIVOT without the values that become columns cannot be run",
                hint="name them: PIVOT t ON kind IN ('a', 'b') USING sum(n)",
            )
        tokens = list(_tokens(text))
        if any(a.text == ";" != b.text for a, b in pairwise(tokens)):
            return InvalidRequestError(_SEVERAL, hint=_ONE)
        is_with = tokens[0].text.upper() == "WITH"  # which something else than a query follows
        changes = (token for token in tokens if is_with and token.text.upper() in _CHANGES)
        first = next(changes, tokens[0])
        return InvalidRequestError(
            f"{_at(text, first.start)}: {first.text[:40].upper()} cannot be run, only queries can",
            hint="begin with SELECT or WITH",
        )
    at = f" at {_at(text, int(error['position']))}" if "position" in error else ""
    problem = str(error["error_message"]).splitlines()[0]
    hint = _quoting(text, int(error["position"])) if "position" in error else ""
    return InvalidRequestError(f"the statement is not SQL{at}: {problem}", hint=hint)


def _quoting(text: bytes, at: int) -> str:
    """Return how to quote a reserved word that stands where a text is no more understood, or just
    before: it may be meant as a column; empty if there is none.
    """
    *_, before, near = [None, None, *(token for token in _tokens(text) if token.start <= at)]
    for token in (before, near):
        if token and token.kind == "keyword" and not _OF_QUERIES.fullmatch(token.text):
            return f'is {token.text} a column? write it in double quotes: "{token.text}"'
    return ""


def _check(node: Node) -> None:
    """Refuse functions that may not be used, and what is nested too deeply or too long."""
    selects, rest = 0, [(node, 0)]
    while rest:
        current, depth = rest.pop()
        if depth > MAX_DEPTH or len(current.get("column_names", ())) > MAX_PARTS:
            raise InvalidRequestError("the statement is nested too deeply")
        kind = current.get("type")
        selects += kind == "SELECT_NODE"
        if str(kind).endswith("_NODE") and kind not in QUERY_NODES:
            raise InvalidRequestError(
                f"{str(kind).split('_')[0]} cannot be run, only queries can",
                hint="begin with SELECT or WITH, also within brackets",
            )
        name = str(current.get("function_name", "")).lower()
        if kind == "TABLE_FUNCTION":
            function = str(current["function"]["function_name"]).lower()
            if function not in ROW_FUNCTIONS:
                raise InvalidRequestError(
                    f"{function} is not allowed in the place of a table",
                    hint="name a table, or one of the functions "
                    + ", ".join(sorted(ROW_FUNCTIONS)),
                )
        if kind == "SHOW_REF":
            raise InvalidRequestError(
                "DESCRIBE, SUMMARIZE and SHOW cannot be run, only queries can",
                hint="begin with SELECT or WITH; `dormouse table list` shows the tables, `dormouse "
                "table show NAME` the columns of one",
            )
        if name in _BY_NAME:
            name = _aggregate(current["arguments"]) or name
        if name and name not in FUNCTIONS | ROW_FUNCTIONS | _OWN_FUNCTIONS:
            raise InvalidRequestError(
                f"the function {name} is not allowed in a statement, or there is none",
                hint=did_you_mean(name, FUNCTIONS),
            )
        if name == HAS:
            _check_words(current["arguments"])
        if name.startswith("regexp_") or name in _PATTERN_FUNCTIONS:
            _check_patterns(current["arguments"])
        rest += ((each, depth + 1) for each in _children(current))
    if selects > MAX_SELECTS:
        raise InvalidRequestError(
            f"the statement has {selects:,} SELECTs; at most {MAX_SELECTS} are allowed",
            hint="rows of values are one VALUES, and are joined if they are many",
        )


def _aggregate(arguments: Sequence[Node]) -> str:
    """Return the name of the aggregate that an argument names; empty if there is no such one.
    Raises InvalidRequestError: it is computed.
    """
    if len(arguments) < 2:
        return ""
    literal = arguments[1]["expression"].get("literal")
    if not literal:
        raise InvalidRequestError("the name of an aggregate is computed", hint="write it: 'sum'")
    return str(literal.get("text", "")).lower()


def _check_words(arguments: Sequence[Node]) -> None:
    """Refuse a constant without a word: no text has it."""
    for text in _texts(arguments[1:]):
        if not has_words(text):
            raise InvalidRequestError(
                "what has() looks for is a text with a letter or a digit",
                hint="write has(message, 'refused'), or contains(message, '--')",
            )


def _check_patterns(arguments: Sequence[Node]) -> None:
    """Refuse regular expressions that take long to compile, and are not interrupted meanwhile."""
    if any(len(text) > MAX_PATTERN for text in _texts(arguments)):
        raise InvalidRequestError(f"a regular expression has more than {MAX_PATTERN:,} characters")


def _texts(arguments: Iterable[Node]) -> Iterator[str]:
    """Yield the constant texts among the arguments of a function."""
    for each in arguments:
        literal = each["expression"].get("literal") or {}
        if literal.get("kind") == "STRING":
            yield str(literal["text"])


def _children(node: Node) -> Iterator[Node]:
    return _nodes_in(node.values())


def _nodes_in(parts: Iterable[Any]) -> Iterator[Node]:
    """Yield the nodes among values, also those in lists of lists: the rows of VALUES are such."""
    for part in parts:
        if isinstance(part, dict):
            yield part
        elif isinstance(part, list):
            yield from _nodes_in(part)


def _tables(node: Node, names: frozenset[str]) -> Iterator[Node]:
    """Yield the references to tables; `names` are those of WITH, folded.

    What is taken for one of WITH stays as it is, so it must be one for DuckDB, too.
    """
    if node.get("type") == "BASE_TABLE":
        name = node["table_name"]
        if len(node["qualified_name"]["path"]) > 1 or folded(name) not in names:
            yield node
        elif folded(name).startswith(_SYSTEM):
            raise InvalidRequestError(
                f"WITH cannot name {name}: DuckDB has a view of its own that may be called so"
            )
        return
    for part in node.get("cte_map", {}).get("map", ()):
        yield from _tables(part["value"], names)
        names |= {folded(part["key"])}
    for name, value in node.items():
        # only the second part of a recursive one names itself; the first means what was before
        is_again = name == "right" and node.get("type") == "RECURSIVE_CTE_NODE"
        inner = names | {folded(node["cte_name"])} if is_again else names
        if name != "cte_map":
            for child in _children({name: value}):
                yield from _tables(child, inner)


def only_table(node: Node) -> Node | None:
    """Return the table that is all of FROM, by the names that its columns have; None of another
    query. What a name of WITH stands for has the names, but not the rows of a table.
    """
    if node["type"] != "SELECT_NODE" or node["sample"]:
        return None
    source: Node = node["from_table"]
    if source["type"] != "BASE_TABLE" or source["column_name_alias"] or source["sample"]:
        return None
    names = {folded(part["key"]) for part in node["cte_map"]["map"]}
    return None if folded(source["table_name"]) in names else source


@dataclass(frozen=True, slots=True)
class Filtered:
    """A WHERE, and the tables beside it of which only those rows count that it is true of: the
    names of references by what the tables are called there, `folded`; `is_all` says that
    its FROM has no others.
    """

    where: Node
    tables: Mapping[str, str]
    is_all: bool


def filtered_tables(statement: ParsedStatement) -> Iterator[Filtered]:
    """Yield each WHERE of a statement, with the tables that its FROM joins."""
    # what is chosen at random is chosen before WHERE
    selects = (each for each in all_nodes(statement.tree) if each.get("type") == "SELECT_NODE")
    filtered = [each for each in selects if each["where_clause"] and not each["sample"]]
    if not filtered:
        return
    nodes = _tables(statement.tree, frozenset())
    names = {id(n): each.name for n, each in zip(nodes, statement.references, strict=True)}
    for select in filtered:
        joined = list(_joined(select["from_table"]))
        tables = {
            folded(node["alias"] or node["table_name"]): names[id(node)]
            for node in joined
            if id(node) in names and not node["column_name_alias"] and not node["sample"]
        }
        yield Filtered(select["where_clause"], tables, is_all=len(tables) == len(joined))


def _joined(source: Node) -> Iterator[Node]:
    """Yield what is joined so that without a row of it, only those with its values are missing, or
    become some with nulls: not the rows before another one, or beside it.
    """
    if source["type"] == "JOIN" and source["ref_type"] in _JOINS:
        yield from _joined(source["left"])
        yield from _joined(source["right"])
    else:
        yield source


def folded(name: str) -> str:
    """Return a name as DuckDB compares it: without the case of the letters from A to Z alone."""
    return name.encode().lower().decode()


def _check_table(node: Node, at: tuple[int, int]) -> None:
    if len(node["qualified_name"]["path"]) > 1 or node.get("at_clause"):
        raise InvalidRequestError(
            f"line {at[0]}, column {at[1]}: a table is named on its own, with a version "
            "and an alias",
            hint='a name with dots is quoted: "events.2026"; a version follows as '
            "FOR VERSION AS OF",
        )


def _place(text: bytes, at: int) -> tuple[int, int]:
    """Return the line and the column, both from 1, of a byte of a text."""
    before = text[:at].decode(errors="replace")
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


def _at(text: bytes, at: int) -> str:
    line, column = _place(text, at)
    return f"line {line}, column {column}"


def first_line(error: BaseException) -> str:
    """Return the first line of an error of DuckDB, without the name of its class."""
    line = str(error).strip().splitlines()[0]
    return re.sub(r"^[A-Z][\w ]* Error: ", "", line)


# The values of a statement's parameters: checked, and in the form that DuckDB takes.

MAX_PARAMETERS = 1000
"""The most parameters of a statement."""
MAX_PARAMETER_BYTES = 16 * 1024 * 1024
HUGEINT = 2**127
MAX_DIGITS = 38
"""The most digits of a decimal: DuckDB takes longer ones for doubles, without a word."""
_AS_TABLE = "ingest long lists of values into a table, and join it"


def checked_parameters(
    statement: ParsedStatement, values: Mapping[str, object]
) -> dict[str, object]:
    """Return the values of the parameters of a statement by name.
    Raises InvalidRequestError: the statement names others; one has no type of SQL; or they are too
    many or too large.
    """
    _check_size(values)
    missing = [name for name in statement.parameters if name not in values]
    unknown = [name for name in values if name not in statement.parameters]
    if missing or unknown:
        problem = f"has no value for ${missing[0]}" if missing else f"has no ${unknown[0]}"
        raise InvalidRequestError(
            f"the statement {problem}", hint="give each of its parameters one value"
        )
    return {name: _value(value) for name, value in values.items()}


def _check_size(values: Mapping[str, object]) -> None:
    """Refuse values that are too many or too large, or have no type.
    Raises InvalidRequestError: they are.
    """
    if len(values) > MAX_PARAMETERS:
        raise InvalidRequestError(
            f"the statement has {len(values):,} parameters; at most {MAX_PARAMETERS:,} are allowed",
            hint=_AS_TABLE,
        )
    size_bytes = 0
    for name, value in values.items():
        try:
            each: list[Any] = [*value] if isinstance(value, list | tuple) else [value]
            is_wide = type(value) is int and -HUGEINT < value < HUGEINT  # which Arrow has not
            size_bytes += 16 if is_wide else pa.array(each).nbytes
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:  # as of NaT
            problem = f"the value of ${name}, a {type(value).__name__}, has no type of SQL"
            raise InvalidRequestError(problem) from error
    if size_bytes > MAX_PARAMETER_BYTES:
        raise InvalidRequestError(
            f"the parameters take {size_bytes:,} bytes; at most {MAX_PARAMETER_BYTES:,} may be",
            hint=_AS_TABLE,
        )


def _value(value: object) -> object:
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    if isinstance(value, list | tuple):
        return [_value(each) for each in value]
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)  # DuckDB takes none of NumPy's
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        plain = value.item()
        return plain if isinstance(plain, bool | float) else value
    if isinstance(value, Decimal) and value.is_finite():
        digits = value.as_tuple()
        if max(len(digits.digits), -int(digits.exponent)) > MAX_DIGITS:
            raise InvalidRequestError(f"a parameter has more than {MAX_DIGITS} digits")
    return value
