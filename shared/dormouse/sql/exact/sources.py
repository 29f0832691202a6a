"""What names in a statement mean: columns of tables, of sub-queries and of WITH."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TypeAlias

from sqlglot import exp

from dormouse.schema.schema import FieldType, Schema

Columns: TypeAlias = list[tuple[str, FieldType | None]]
"""Names and types, None for unknown ones."""
_MOST_COLUMNS = 10_000
"""The most columns of a relation of which types are looked for: stars of joins may double them."""
KindOf: TypeAlias = Callable[[exp.Expr], FieldType | None]


def find_cte(table: exp.Table) -> exp.CTE | None:
    """Return the part of a WITH that the name of a table means, if it is in its scope."""
    if table.args.get("db"):
        return None
    inside: exp.Expr = table
    node = table.parent
    while node is not None:
        scope = node if isinstance(node, exp.With) else node.args.get("with_")
        if isinstance(scope, exp.With):
            for cte in _visible(scope, inside):
                if cte.alias == table.name:
                    return cte
        inside, node = node, node.parent
    return None


def _visible(scope: exp.With, inside: exp.Expr) -> Iterator[exp.CTE]:
    """Yield the parts of a WITH that a part of it, or of its query, can name."""
    if inside is scope:  # its parts were looked at before
        return
    for cte in scope.expressions:
        if cte is inside and not scope.args.get("recursive"):
            return
        yield cte
        if cte is inside:
            return


class Sources:
    """The columns that each part of a statement sees; `kind_of` returns types of expressions."""

    def __init__(self, tables: Mapping[str, Schema], kind_of: KindOf) -> None:
        """Take tables by the names that the statement has for them."""
        self._tables, self._kind_of = tables, kind_of
        self._known: dict[int, Columns] = {}
        self._parts: dict[int, exp.Expr] = {}

    def resolve(self, column: exp.Column) -> tuple[FieldType | None, list[str]]:
        """Return the type of the column that a name begins with, and what follows of the name."""
        first, *others = [part.name for part in column.parts]
        scope: exp.Expr | None = column
        while scope is not None:
            part = self._part_of_select(scope)
            scope = part.parent
            if isinstance(scope, exp.Select):
                for found, rest in self._seen(scope, first, others):
                    return found, rest
                named = self._named(scope, part, first) if not others else None
                if named is not None:
                    return self._kind_of(named), []
        return None, []

    def _part_of_select(self, node: exp.Expr) -> exp.Expr:
        """Return the node above that is a part of a SELECT itself, or the root. What is above of
        each node on the way is noted, as chains of AND and OR are as deep as they are long.
        """
        way = [node]
        while way[-1].parent is not None and not isinstance(way[-1].parent, exp.Select):
            known = self._parts.get(id(way[-1]))
            if known is not None:
                way.append(known)
                break
            way.append(way[-1].parent)
        self._parts.update(dict.fromkeys(map(id, way), way[-1]))
        return way[-1]

    def _seen(
        self, select: exp.Select, first: str, others: list[str]
    ) -> Iterator[tuple[FieldType | None, list[str]]]:
        sources = list(self._sources(select))
        for name, source in sources:
            if others and name == first:
                for column, kind in self._of_source(source):
                    if column == others[0]:
                        yield kind, others[1:]
        for _, source in sources:
            for column, kind in self._of_source(source):
                if column == first:
                    yield kind, others

    @staticmethod
    def _named(select: exp.Select, inside: exp.Expr, name: str) -> exp.Expr | None:
        """Return the expression of the result that a name in HAVING or ORDER BY means."""
        if inside.arg_key not in ("having", "order", "group"):
            return None
        for each in select.expressions:
            if isinstance(each, exp.Alias) and each.alias == name:
                inner: exp.Expr = each.this
                return inner
        return None

    @staticmethod
    def _sources(select: exp.Select) -> Iterator[tuple[str, exp.Expr]]:
        from_ = select.args.get("from_")
        parts = [from_.this] if from_ is not None else []
        parts += [join.this for join in select.args.get("joins") or ()]
        for part in parts:
            yield part.alias_or_name, part
            for join in part.args.get("joins") or ():
                yield join.this.alias_or_name, join.this

    def _of_source(self, source: exp.Expr) -> Columns:
        known = self._known.get(id(source))
        if known is not None:
            return known
        self._known[id(source)] = []  # a recursion sees no columns yet
        found: Columns = []
        if isinstance(source, exp.Table):
            cte = find_cte(source)
            if cte is not None:
                found = _renamed(self.columns(cte.this), cte)
            elif source.name in self._tables:
                found = [(field.name, field.type) for field in self._tables[source.name].fields]
        elif isinstance(source, exp.Subquery):
            found = self.columns(source.this)
        self._known[id(source)] = found = _renamed(found, source)
        return found

    def columns(self, query: exp.Expr) -> Columns:
        """Return the columns of the result of a query."""
        match query:
            case exp.Select():
                found = (column for e in query.expressions for column in self._item(query, e))
                columns = list(islice(found, _MOST_COLUMNS + 1))
                return columns if len(columns) <= _MOST_COLUMNS else []
            case exp.SetOperation():
                left, right = self.columns(query.this), self.columns(query.expression)
                if len(left) != len(right):
                    return [(name, None) for name, _ in left]
                return [
                    (name, one if one == other else None)
                    for (name, one), (_, other) in zip(left, right, strict=True)
                ]
            case exp.Subquery() | exp.Paren():
                return self.columns(query.this)
        return []

    def _item(self, select: exp.Select, item: exp.Expr) -> Iterator[tuple[str, FieldType | None]]:
        star = item.this if isinstance(item, exp.Column) else item
        if not isinstance(star, exp.Star):
            inner = item.this if isinstance(item, exp.Alias) else item
            yield item.alias_or_name, self._kind_of(inner)
            return
        for name, source in self._sources(select):
            if not isinstance(item, exp.Column) or item.table == name:
                yield from self._of_source(source)


def _renamed(columns: Columns, source: exp.Expr) -> Columns:
    """Return columns with the names that an alias gives them, as in `(SELECT 1) AS one(number)`."""
    alias = source.args.get("alias")
    names = [each.name for each in alias.args.get("columns") or ()] if alias is not None else []
    if not names or len(names) > len(columns):
        return columns
    given = [(name, kind) for name, (_, kind) in zip(names, columns, strict=False)]
    return given + columns[len(names) :]
