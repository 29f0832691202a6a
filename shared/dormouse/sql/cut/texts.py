"""The SQL of the partial statement, and of the final one over what the partial ones return.

For example, of `SELECT carrier, avg(delay) AS late FROM flights GROUP BY 1 ORDER BY 2 LIMIT 3`:

    SELECT "carrier" AS "_part_g0", sum(arrow_cast("delay", 'Float64')) AS "_part_a0_0",
           count(arrow_cast("delay", 'Float64')) AS "_part_a0_1"
    FROM "flights" AS "flights" GROUP BY "carrier"

    SELECT "_part_g0" AS "carrier", "_part_f0" AS "late"
    FROM (SELECT "_part_g0", sum("_part_a0_0") / CAST(sum("_part_a0_1") AS DOUBLE) AS "_part_f0"
          FROM "partials" GROUP BY "_part_g0")
    ORDER BY "_part_f0" LIMIT 3
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from dormouse.sql.cut.aggregates import Number, final_text, partial_texts
from dormouse.sql.cut.shape import OWN, Shape, to_columns
from dormouse.sql.expressions import quoted
from dormouse.sql.statements import to_sql

PARTIALS = "partials"
"""The name of the relation that the final statement reads."""


@dataclass(frozen=True, slots=True)
class Texts:
    """What is written of a shape. `names` are those of the columns of its result, `numbers` the
    types of the arguments of its aggregates, `keys` the first columns by which rows are sorted.
    """

    shape: Shape
    names: Sequence[str]
    numbers: Sequence[Number]
    keys: Sequence[str]

    @property
    def has_final(self) -> bool:
        """Whether results of pieces, one after the other, are not the result yet."""
        shape = self.shape
        in_order = shape.follows(self.keys) and not shape.offset
        return shape.is_aggregated or shape.is_distinct or not in_order

    @property
    def limit(self) -> int | None:
        """How many rows of the results of pieces, one after the other, are the result; None for
        all. Only without a final statement.
        """
        return None if self.has_final else self.shape.limit

    def partial(self, table: str) -> str:
        """Return the partial statement, which reads a piece of `table`."""
        shape = self.shape
        source = f"FROM {quoted(table)} AS {quoted(shape.alias)}"
        if shape.where is not None:
            source += f" WHERE {to_sql(shape.where)}"
        if not self.has_final:
            result = zip(map(to_sql, shape.items), self.names, strict=True)
            order = _clause("ORDER BY", map(to_sql, shape.order))
            return f"SELECT {_listed(result)} {source}{order}"
        if shape.is_aggregated:
            groups = [to_sql(group) for group in (*shape.groups, *self._distinct)]
            columns = [*self._grouped(), *self._aggregated()]
            return f"SELECT {_listed(columns)} {source}{_clause('GROUP BY', groups)}"
        columns = [(to_sql(item), name) for item, name in self._items]
        if shape.is_distinct:
            groups = [to_sql(item) for item in shape.items]
            return f"SELECT {_listed(columns)} {source}{_clause('GROUP BY', groups)}"
        sorts = [(to_sql(term.this), name) for term, name in self._sorts]
        return f"SELECT {_listed([*columns, *sorts])} {source}{self._first()}"

    def final(self, kinds: Mapping[str, str]) -> str:
        """Return the final statement; `kinds` are the types of the columns of partial results, as
        `arrow_cast` writes them.

        Raises:
            NotCutError: it would need more than partial results have.
        """
        shape = self.shape
        if not shape.is_aggregated:
            return self._over(quoted(PARTIALS), [(i, n) for i, n in self._items], self._ordered())
        columns = [*self._groups, *((a.node, f"{OWN}f{n}") for n, a in enumerate(shape.aggregates))]
        inner = [(quoted(name), name) for _, name in self._groups]
        for number, aggregate in enumerate(shape.aggregates):
            names = self._names_of(number)
            given = [kinds[name] for name in names]
            text = final_text(aggregate, names, self.numbers[number], given)
            inner.append((text, f"{OWN}f{number}"))
        groups = _clause("GROUP BY", (quoted(name) for _, name in self._groups))
        source = f"(SELECT {_listed(inner)} FROM {quoted(PARTIALS)}{groups})"
        if shape.having is not None:
            source += f" WHERE {to_sql(to_columns(shape.having, columns))}"
        order = [to_sql(to_columns(term, columns)) for term in shape.order]
        if not order and not shape.is_distinct:  # so that it is the same each time
            order = [quoted(name) for _, name in self._groups]
        return self._over(source, columns, order)

    def _over(
        self, source: str, columns: Sequence[tuple[exp.Expr, str]], order: Sequence[str]
    ) -> str:
        shape = self.shape
        items = [to_sql(to_columns(item, columns)) for item in shape.items]
        distinct = "DISTINCT " if shape.is_distinct else ""
        text = f"SELECT {distinct}{_listed(zip(items, self.names, strict=True))} FROM {source}"
        text += _clause("ORDER BY", order)
        text += f" LIMIT {shape.limit}" if shape.limit is not None else ""
        return text + (f" OFFSET {shape.offset}" if shape.offset else "")

    @property
    def _items(self) -> list[tuple[exp.Expr, str]]:
        return [(item, f"{OWN}p{n}") for n, item in enumerate(self.shape.items)]

    @property
    def _sorts(self) -> list[tuple[exp.Ordered, str]]:
        return [(term, f"{OWN}s{n}") for n, term in enumerate(self.shape.order)]

    @property
    def _groups(self) -> list[tuple[exp.Expr, str]]:
        return [(group, f"{OWN}g{n}") for n, group in enumerate(self.shape.groups)]

    @property
    def _distinct(self) -> list[exp.Expr]:
        return [a.argument for a in self.shape.aggregates if a.is_distinct and a.argument]

    def _ordered(self) -> list[str]:
        """Return the terms of the order of rows that are not aggregated."""
        if self.shape.is_distinct:
            return [to_sql(to_columns(term, self._items)) for term in self.shape.order]
        return [_sorted(term, name) for term, name in self._sorts]

    def _first(self) -> str:
        """Return what leaves the rows of a piece that may be among the first of all."""
        if self.shape.limit is None:
            return ""
        order = _clause("ORDER BY", (_sorted(term, name) for term, name in self._sorts))
        return f"{order} LIMIT {self.shape.limit + self.shape.offset}"

    def _grouped(self) -> Iterator[tuple[str, str]]:
        for group, name in self._groups:
            yield to_sql(group), name

    def _aggregated(self) -> Iterator[tuple[str, str]]:
        for number in range(len(self.shape.aggregates)):
            yield from zip(self._texts_of(number), self._names_of(number), strict=True)

    def _texts_of(self, number: int) -> list[str]:
        aggregate = self.shape.aggregates[number]
        if aggregate.is_distinct and aggregate.argument is not None:
            return [to_sql(aggregate.argument)]
        return partial_texts(aggregate, self.numbers[number])

    def _names_of(self, number: int) -> list[str]:
        return [f"{OWN}a{number}_{at}" for at in range(len(self._texts_of(number)))]


def arguments_text(shape: Shape, table: str) -> str:
    """Return a statement whose columns have the types of the arguments of aggregates, in order."""
    arguments = (a.argument for a in shape.aggregates)
    texts = ("NULL" if argument is None else to_sql(argument) for argument in arguments)
    columns = [(text, f"{OWN}t{number}") for number, text in enumerate(texts)]
    return f"SELECT {_listed(columns)} FROM {quoted(table)} AS {quoted(shape.alias)}"


def _sorted(term: exp.Ordered, name: str) -> str:
    """Return the term of an ORDER BY on a column that has its values."""
    column = exp.Column(this=exp.Identifier(this=name, quoted=True))
    renamed = term.copy()
    renamed.set("this", column)
    return to_sql(renamed)


def _listed(columns: Iterator[tuple[str, str]] | Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{text} AS {quoted(name)}" for text, name in columns)


def _clause(words: str, terms: Iterator[str] | Sequence[str]) -> str:
    listed = ", ".join(terms)
    return f" {words} {listed}" if listed else ""
