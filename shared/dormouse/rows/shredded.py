"""Conditions on what is in documents as conditions on the columns that shards have of it.

A condition on a path is true of the same rows if it is of the column of all values of the kind that
it compares; where it is not true, it may be false instead of null, or the other way around. So it
is only replaced where that makes no difference.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from dormouse.errors import InvalidRequestError
from dormouse.rows.predicates import Predicate
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import Primitive
from dormouse.shards.reading import Blocks
from dormouse.sql.conditions import CASTS, MIRRORED, Call, Column, Condition, Expression, Literal
from dormouse.tables.shredding import KINDS, of_call

_COMPARISONS = ("=", "<", "<=", ">", ">=", "IN", "IS NOT DISTINCT FROM")
"""What is true of no value of another kind than the constants', and of nothing that is absent."""


def on_shredded(where: Predicate, shards: Sequence[Blocks] | None = None) -> Predicate:
    """Return a predicate that is true of the same rows and reads columns of values at paths, as far
    as all `shards` have them; without these, as if all shards had.
    """
    if not _reads_documents(where):
        return where
    of_shards = [blocks.index.stored.columns for blocks in shards or ()]

    def is_usable(target: Field) -> bool:
        return all(
            target.id in columns and columns[target.id][0].name == target.name
            for columns in of_shards
        )

    replacing = _Replacing(where.schema, is_usable)
    expression = replacing.of_truth(where.condition.expression)
    if not replacing.fields:
        return where
    schema = where.schema.with_values(*replacing.fields.values())
    return Predicate(Condition(expression), schema)


def _reads_documents(where: Predicate) -> bool:
    columns = where.columns
    return any(f.type is Primitive.DYNAMIC for f in where.schema.fields if f.name in columns)


@dataclass
class _Replacing:
    """Replaces what can be; `fields` are the columns that are read instead, by name."""

    schema: Schema
    is_usable: Callable[[Field], bool]
    fields: dict[str, Field] = field(default_factory=dict)

    def of_truth(self, expression: Expression) -> Expression:
        """Return an expression that is true where `expression` is."""
        match expression:
            case Call("AND" | "OR" | "IS TRUE", terms):
                return replace(expression, arguments=tuple(map(self.of_truth, terms)))
            case Call("NOT", (Call("IS TRUE", (inner,)) as test,)):
                is_true = replace(test, arguments=(self.of_truth(inner),))
                return replace(expression, arguments=(is_true,))
            case Call(op, (Call("PATH") as path, *constants)) if op in _COMPARISONS:
                return self._comparison(expression, path, constants)
            case Call(op, (Literal() as constant, Call("PATH") as path)) if op in _COMPARISONS:
                turned = replace(expression, op=MIRRORED.get(op, op))
                return self._comparison(turned, path, [constant])
        return self.of_value(expression)

    def of_value(self, expression: Expression) -> Expression:
        """Return an expression of the same value."""
        match expression:
            case Call(op, (Call("PATH") as path,), kind) if op in CASTS and kind in KINDS:
                return self._column(path, Primitive(kind)) or expression
            case Call("PATH"):
                return expression
            case Call(arguments=arguments):
                return replace(expression, arguments=tuple(map(self.of_value, arguments)))
        return expression

    def _comparison(self, test: Call, path: Call, constants: Sequence[Expression]) -> Expression:
        from dormouse.sql.operands import compared  # other conditions need none of it

        kinds = {_kind(each) for each in constants}
        (kind, *others) = kinds
        column = None if others or kind is None else self._column(path, kind)
        try:
            operands = compared([column, *constants]) if column else []
        except InvalidRequestError:  # a number that no decimal holds together with a long
            operands = []
        return replace(test, arguments=tuple(operands)) if operands else test

    def _column(self, path: Call, kind: Primitive) -> Column | None:
        documents = path.arguments[0]
        if not any(Column(f.name, f.type) == documents for f in self.schema.fields):
            return None  # a column that was dropped since a deletion named it
        target = of_call(path, self.schema, kind).field
        if not self.is_usable(target):
            return None
        self.fields[target.name] = target
        return Column(target.name, kind)


def _kind(constant: Expression) -> Primitive | None:
    """Return the type of the column with which a constant is compared."""
    match constant:
        case Literal(bool()):
            return Primitive.BOOLEAN
        case Literal(int() | Decimal()):
            return Primitive.LONG
        case Literal(str()):
            return Primitive.STRING
    return None
