"""The shape of a statement that can be cut: a SELECT over one table, with its names resolved.

What is not surely understood is not cut: one process computes it, with the same result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlglot import exp

from dormouse.sql.cut.aggregates import Aggregate, NotCutError, read_aggregate

OWN = "_part_"
"""What the names of columns of partial results begin with."""
_PARTS = {
    "kind",
    "expressions",
    "from_",
    "where",
    "group",
    "having",
    "order",
    "limit",
    "offset",
    "distinct",
}
_REASONS = {
    "joins": "it joins tables",
    "with_": "it has a WITH",
    "windows": "it has a window",
    "qualify": "it has a window",
}
_WHOLE: dict[type[exp.Expr], str] = {
    exp.Window: "it has a window",
    exp.Query: "it has a sub-query",
    exp.Unnest: "it makes rows of lists",
    exp.CurrentTime: "it has the time of day",
}
_CLOCKS = ("today", "now", "current_time", "current_date", "current_timestamp")
"""Functions that processes would evaluate at different times, unless they are nodes of their own.
"""


@dataclass(frozen=True, slots=True)
class Shape:
    """A SELECT over one table, which `alias` names in it.

    `items` are the columns of the result without names. Expressions are resolved: a name is that of
    a column of the table, and none is qualified. `aggregates` are in items, `having` and `order`,
    each once.
    """

    alias: str
    items: tuple[exp.Expr, ...]
    where: exp.Expr | None
    groups: tuple[exp.Expr, ...]
    having: exp.Expr | None
    order: tuple[exp.Ordered, ...]
    limit: int | None
    offset: int
    is_distinct: bool
    aggregates: tuple[Aggregate, ...]

    @property
    def is_aggregated(self) -> bool:
        """Whether rows of the table become rows of groups."""
        return bool(self.aggregates or self.groups or self.having is not None)

    def follows(self, keys: Sequence[str]) -> bool:
        """Return whether the result is in the order of the first of `keys`, ascending, or in
        none.
        """
        if len(self.order) > len(keys):
            return False
        pairs = zip(self.order, keys, strict=False)
        return all(
            isinstance(term.this, exp.Column) and _name(term.this) == key and not term.args["desc"]
            for term, key in pairs
        )

    def with_time(self, now: exp.Expr, today: exp.Expr) -> Shape:
        """Return the same statement with constants in place of the present time and date."""

        def fixed(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.CurrentTimestamp):
                return now.copy()
            return today.copy() if isinstance(node, exp.CurrentDate) else node

        def each(nodes: Sequence[exp.Expr]) -> tuple[exp.Expr, ...]:
            return tuple(node.transform(fixed) for node in nodes)

        return Shape(
            self.alias,
            each(self.items),
            self.where.transform(fixed) if self.where is not None else None,
            each(self.groups),
            self.having.transform(fixed) if self.having is not None else None,
            tuple(_ordered(term, term.this.transform(fixed)) for term in self.order),
            self.limit,
            self.offset,
            self.is_distinct,
            tuple(aggregate.changed(fixed) for aggregate in self.aggregates),
        )


def read_shape(tree: exp.Expr, columns: Sequence[str]) -> Shape:
    """Return the shape of a statement on a table with these columns.

    Raises:
        NotCutError: it is computed whole; the error says why.
    """
    if not isinstance(tree, exp.Select):
        raise NotCutError("it is not a single SELECT")
    for part in tree.args:
        if tree.args.get(part) and part not in _PARTS:
            raise NotCutError(_REASONS.get(part, "it has more than a plain SELECT"))
    for node in tree.walk():
        for kind, reason in _WHOLE.items():
            if isinstance(node, kind) and node is not tree:
                raise NotCutError(reason)
        if isinstance(node, exp.Anonymous) and node.name.lower() in _CLOCKS:
            raise NotCutError("it has a function of the present time")
    return _Reader(tree.copy(), columns).shape()


class _Reader:
    """A tree that is read; names in it are changed on the way."""

    def __init__(self, tree: exp.Select, columns: Sequence[str]) -> None:
        self._tree, self._columns = tree, columns
        self._alias = self._table()
        if any(name.startswith(OWN) for name in columns):
            raise NotCutError(f"a column is called {OWN}…")
        for column in tree.find_all(exp.Column):
            self._unqualify(column)
        self._items, self._named = self._read_items()

    def shape(self) -> Shape:
        distinct = self._tree.args.get("distinct")
        if distinct is not None:
            for item in self._items:
                self._no_literal(item)
        if distinct is not None and distinct.args.get("on"):
            raise NotCutError("it has DISTINCT ON")
        having = self._tree.args.get("having")
        groups = tuple(self._groups())
        order = tuple(self._order())
        condition = self._resolved(having.this) if having else None
        if groups or order or condition is not None or distinct:
            self._check_names()
        where = self._tree.args.get("where")
        found = [*self._items, *([condition] if condition is not None else []), *order]
        return Shape(
            self._alias,
            tuple(self._items),
            where.this if where else None,
            groups,
            condition,
            order,
            self._number("limit"),
            self._number("offset") or 0,
            distinct is not None,
            tuple(_aggregates(found)),
        )

    def _table(self) -> str:
        source = self._tree.args.get("from_")
        table = source.this if source is not None else None
        if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
            raise NotCutError("it reads no table")
        if table.args.get("joins"):
            raise NotCutError("it joins tables")
        alias = table.args.get("alias")
        if alias is not None and alias.args.get("columns"):
            raise NotCutError("it renames columns of its table")
        return table.alias or table.name

    def _unqualify(self, column: exp.Column) -> None:
        """Leave out the name of the table, and quote what names are: they are case-sensitive."""
        if column.args.get("db"):
            raise NotCutError("it names a part of a column by way of its table")
        if column.table == self._alias:
            column.set("table", None)
        if isinstance(column.this, exp.Star):
            return
        for part in column.parts:
            part.set("quoted", True)

    def _read_items(self) -> tuple[list[exp.Expr], dict[str, exp.Expr]]:
        items: list[exp.Expr] = []
        named: dict[str, exp.Expr] = {}
        for each in self._tree.expressions:
            star = each.this if isinstance(each, exp.Column) else each
            if isinstance(star, exp.Star):
                if any(star.args.values()):
                    raise NotCutError("it selects all columns but some")
                items += [_column(name) for name in self._columns]
                continue
            inner = each.this if isinstance(each, exp.Alias) else each
            items.append(inner)
            if isinstance(each, exp.Alias):
                named[each.alias] = inner
        if any(name.startswith(OWN) for name in named):
            raise NotCutError(f"a column of its result is called {OWN}…")
        return items, named

    def _check_names(self) -> None:
        for name, item in self._named.items():
            if name in self._columns and item != _column(name):
                raise NotCutError("a column of its result has the name of another of the table")

    def _groups(self) -> Iterator[exp.Expr]:
        group = self._tree.args.get("group")
        if group is None:
            return
        if {part for part, value in group.args.items() if value} != {"expressions"}:
            raise NotCutError("it has several sets of groups")
        for term in group.expressions:
            if isinstance(term, exp.Tuple | exp.Rollup | exp.Cube | exp.GroupingSets):
                raise NotCutError("it has several sets of groups")
            yield self._no_literal(self._by_position(term))

    def _order(self) -> Iterator[exp.Ordered]:
        order = self._tree.args.get("order")
        for term in order.expressions if order is not None else ():
            if not isinstance(term, exp.Ordered) or term.args.get("with_fill"):
                raise NotCutError("its ORDER BY is not understood")
            yield _ordered(term, self._no_literal(self._by_position(term.this)))

    def _by_position(self, term: exp.Expr) -> exp.Expr:
        """Return the expression of a term, which may be the number of a column of the result."""
        if not isinstance(term, exp.Literal):
            return self._resolved(term)
        if term.is_string or not term.name.isdigit():
            return term
        if not 0 < int(term.name) <= len(self._items):
            raise NotCutError("it names a column by a number that there is not")
        return self._items[int(term.name) - 1].copy()

    @staticmethod
    def _no_literal(node: exp.Expr) -> exp.Expr:
        """Refuse a term that would be read as the number of a column."""
        if isinstance(node, exp.Literal):
            raise NotCutError("it groups or sorts by a constant")
        return node

    def _resolved(self, node: exp.Expr) -> exp.Expr:
        """Return an expression with those of the result in place of their names."""

        def resolved(part: exp.Expr) -> exp.Expr:
            is_name = isinstance(part, exp.Column) and not part.table
            if is_name and part.name in self._named and part.name not in self._columns:
                return self._named[part.name].copy()
            return part

        return node.copy().transform(resolved)

    def _number(self, part: str) -> int | None:
        node = self._tree.args.get(part)
        if node is None:
            return None
        number = node.expression
        if not isinstance(node, exp.Limit | exp.Offset) or not isinstance(number, exp.Literal):
            raise NotCutError(f"its {part.upper()} is not a number")
        if number.is_string or not number.name.isdigit() or int(number.name) >= 2**62:
            raise NotCutError(f"its {part.upper()} is not a number")
        return int(number.name)


def to_columns(node: exp.Expr, columns: Sequence[tuple[exp.Expr, str]]) -> exp.Expr:
    """Return an expression with columns of another relation in place of what they have.

    Raises:
        NotCutError: something is left that needs the table's rows.
    """

    def replaced(part: exp.Expr) -> exp.Expr:
        for wanted, name in columns:
            if part == wanted:
                return _column(name)
        return part

    found = node.copy().transform(replaced)
    names = {name for _, name in columns}
    for column in found.find_all(exp.Column):
        if _name(column) not in names:
            raise NotCutError(f"{_name(column)} is not among its groups")
    return found


def _aggregates(nodes: Sequence[exp.Expr]) -> list[Aggregate]:
    found: list[Aggregate] = []
    for node in nodes:
        for part in node.walk(prune=_is_aggregate):
            if _is_aggregate(part):
                aggregate = read_aggregate(part)
                if aggregate not in found:
                    found.append(aggregate)
    return found


def _is_aggregate(node: exp.Expr) -> bool:
    return isinstance(node, exp.AggFunc | exp.Filter | exp.WithinGroup)


def _ordered(term: exp.Ordered, by: exp.Expr) -> exp.Ordered:
    """Return a term of an ORDER BY with another expression."""
    changed: exp.Ordered = term.copy()
    changed.set("this", by)
    return changed


def _column(name: str) -> exp.Column:
    return exp.Column(this=exp.Identifier(this=name, quoted=True))


def _name(column: exp.Column) -> str:
    return column.name if not column.table else f"{column.table}.{column.name}"


def present(time_ms: int, kind: str) -> tuple[exp.Expr, exp.Expr]:
    """Return the time and the date, in UTC, as constants: the time of a type that `arrow_cast`
    knows as `kind`, which has nanoseconds.
    """
    nanoseconds = exp.Literal.number(time_ms * 1_000_000)
    now = exp.Anonymous(this="arrow_cast", expressions=[nanoseconds, exp.Literal.string(kind)])
    today = datetime.fromtimestamp(time_ms / 1000, UTC).date().isoformat()
    return now, exp.cast(exp.Literal.string(today), "date")
