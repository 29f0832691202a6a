"""The row rules of a table: filters, which hide rows, and aggregations, which combine rows.

Both apply whenever rows are written or read, so the result must not depend on which shards have
been merged so far. Therefore every aggregation is associative and commutative, and a filter of a
table that aggregates may read only fields that all rows of a group share.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import Literal, TypeAlias, cast, get_args

from dormouse.errors import InvalidRequestError
from dormouse.keys import INT64_MAX, INT64_MIN
from dormouse.schema.schema import (
    ASKED,
    ORIGIN,
    ROW_LINEAGE,
    SEQUENCE,
    SHARD,
    TAGS,
    TOMBSTONE,
    Field,
    Schema,
)
from dormouse.schema.types import KEY_TYPES, DecimalType, FieldType, MapType, Primitive, show_type
from dormouse.sql.conditions import Column, Condition, greater_than, parse_condition, truth
from dormouse.tables.properties import Properties

Operation: TypeAlias = Literal["sum", "min", "max", "map_sum", "map_min", "map_max"]
Kept: TypeAlias = Literal["first", "last", "latest"]

_OPERATIONS: tuple[Operation, ...] = get_args(Operation)
_KEPT: tuple[Kept, ...] = ("first", "last")
_ORDERED = KEY_TYPES | {Primitive.FLOAT, Primitive.DOUBLE, Primitive.BOOLEAN}
_PER_MILLISECOND: dict[FieldType, int] = {
    Primitive.LONG: 1,
    Primitive.TIMESTAMP: 1_000,
    Primitive.TIMESTAMP_NS: 1_000_000,
}
"""The types of instants by which rows age, and how many units a millisecond has."""
_NUMBER = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class AgeOff:
    """Keep rows whose `column`, a time, is less than `age_ms` ago; none where it is null."""

    column: Column
    age_ms: int

    def condition(self, now_ms: int) -> Condition:
        """Return the condition that rows to be kept at `now_ms` match."""
        oldest = (now_ms - self.age_ms) * _PER_MILLISECOND[self.column.type]
        return greater_than(self.column, max(INT64_MIN, min(INT64_MAX, oldest)))


@dataclass(frozen=True, slots=True)
class Aggregation:
    """How the rows of a group become one row.

    Either rows with equal row keys and sort keys are combined, each value field by its operation.
    Or, if `kept` is set, the row with the least (first) or greatest (last) sort key is kept of all
    rows with equal row keys; or the `latest`: that with the greatest value in the column `by`, if
    there is one, and of these the one that was committed last.
    """

    operations: tuple[tuple[str, Operation], ...] = ()
    kept: Kept | None = None
    by: str = ""

    def group_keys(self, schema: Schema) -> tuple[Field, ...]:
        """Return the fields that are equal in all rows of a group."""
        return schema.row_keys if self.kept else schema.keys


@dataclass(frozen=True, slots=True)
class RowRules:
    """The filters of a table, which apply first, and its aggregation. `kept` is true of the rows
    that no deletion hides: it also reads what `rows.deletions` adds to the columns.
    """

    age_off: AgeOff | None = None
    where: Condition | None = None
    aggregation: Aggregation | None = None
    kept: Condition | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether the rules change nothing."""
        return self == NO_RULES

    @property
    def aggregates(self) -> bool:
        """Return whether rows may be combined, so that all of a group have to be read together."""
        return self.aggregation is not None

    @property
    def keeps_latest(self) -> bool:
        """Return whether a stored row can be a tombstone, or hidden by a later one of its key."""
        return self.aggregation is not None and self.aggregation.kept == "latest"

    @property
    def keeps_tags(self) -> bool:
        """Return whether rows have row tags: each is one of a file, not made of several."""
        return self.keeps_latest or not self.aggregates

    @property
    def filter_columns(self) -> frozenset[str]:
        """The names of the columns that the filters read."""
        aged = {self.age_off.column.name} if self.age_off else set()
        tested = (each.columns for each in (self.where, self.kept) if each is not None)
        return frozenset(aged).union(*tested)

    def after_publishing(self) -> "RowRules":
        """Return the rules that readers of Iceberg apply themselves: what is published lists the
        rows that the latest ones hide.
        """
        return replace(self, aggregation=None) if self.keeps_latest else self

    def stored_schema(self, schema: Schema) -> Schema:
        """Return the columns that shards have of a table with this schema."""
        return schema.with_values(TOMBSTONE, SEQUENCE) if self.keeps_latest else schema

    def for_readers(self) -> "RowRules":
        """Return the rules for readers, to whom a tombstone is no row."""
        if not self.keeps_latest:
            return self
        shows = is_no_tombstone()
        return replace(self, kept=shows if self.kept is None else self.kept.and_also(shows))

    def needed(self, columns: Sequence[str], schema: Schema) -> list[str]:
        """Return the columns to read for `columns` to be right under the rules, in schema order."""
        names = {*columns, *self.filter_columns}
        if self.aggregation:
            names |= {field.name for field in schema.keys}
            if self.keeps_latest:
                names |= {self.aggregation.by, SEQUENCE.name, TOMBSTONE.name}
            elif self.aggregation.kept:  # ties are broken by all values
                names |= {field.name for field in schema.values}
        return [field.name for field in schema.fields if field.name in names]

    def filter_at(self, now_ms: int) -> Condition | None:
        """Return the condition on rows to be kept at `now_ms`; None if all rows are kept."""
        aged = self.age_off.condition(now_ms) if self.age_off else None
        tests = [each for each in (aged, self.where, self.kept) if each is not None]
        return reduce(Condition.and_also, tests) if tests else None


NO_RULES = RowRules()


def is_no_tombstone() -> Condition:
    """Return the condition that is true of the rows of a table that keeps the latest ones."""
    return Condition(truth("IS NULL", Column(TOMBSTONE.name, Primitive.LONG)))


def row_rules(schema: Schema, properties: Properties) -> RowRules:
    """Parse and check the filters and aggregations among a table's properties.
    Raises InvalidRequestError: they are malformed, do not fit the schema, or would make the rows
    depend on which shards have been merged. The message says which and why.
    """
    aggregation = _combines(schema, properties)
    if not properties.filters and not aggregation:
        return NO_RULES  # of most tables, and each query asks
    age_off, where = _filters(properties.filters, schema)
    rules = RowRules(age_off, where, aggregation)
    if aggregation and not rules.keeps_latest:
        shared = [field.name for field in aggregation.group_keys(schema)]
        alone = sorted(rules.filter_columns - set(shared))
        if alone:
            raise InvalidRequestError(
                f"filters cannot use {', '.join(alone)}: rows that are aggregated into one may "
                "differ there, and what comes out would depend on when they were",
                hint="fields for filters: " + ", ".join(shared),
            )
    return rules


def origin_fields(rules: RowRules, properties: Properties) -> tuple[Field, ...]:
    """Return what shards of a table keep of where rows come from."""
    if properties.row_origin == "off" or not rules.keeps_tags:
        return ()
    return ORIGIN if properties.row_origin == "on" else (*ORIGIN, *ROW_LINEAGE)


def asked_fields(
    rules: RowRules, properties: Properties, names: Collection[str]
) -> tuple[Field, ...]:
    """Return the fields of these names that are no columns. Raises InvalidRequestError."""
    fields = tuple(field for field in (TAGS, *ASKED) if field.name in names)
    if fields and not rules.keeps_tags:
        raise InvalidRequestError(
            "rows of a table with aggregations have no row tags and no origin: one may come of "
            "several files",
            hint="leave them out, or make the table without aggregations",
        )
    known = {TAGS, SHARD, *origin_fields(rules, properties)}
    if unknown := [field for field in fields if field not in known]:
        names = ", ".join(field.name for field in unknown)
        value = "ids" if {*ROW_LINEAGE}.intersection(unknown) else "on"
        raise InvalidRequestError(
            f"the table does not keep {names}: where its rows come from",
            hint=f"set its property row_origin={value}: rows that are ingested from then on have "
            "it; `dormouse why NAME --key KEY` says what is known of others",
        )
    return fields


def group_keys(schema: Schema, properties: Properties) -> tuple[Field, ...]:
    """Return the keys in which stored rows agree that can become one row; all keys if none can.

    A condition on another column can be evaluated only once all rows of a group are combined.
    Raises InvalidRequestError: the properties are not well-formed.
    """
    aggregation = _combines(schema, properties)
    return schema.keys if aggregation is None else aggregation.group_keys(schema)


def check_groups(
    name: str, schema: Schema, properties: Properties, columns: Collection[str], what: str
) -> None:
    """Refuse columns that can differ between the stored rows of one group: a purge or deletion,
    `what`, of table `name` cannot select rows by them.

    All stored rows of a group are one row of the table. Removing some of them would change that row
    instead of removing it.
    Raises InvalidRequestError: there are such columns.
    """
    rules = row_rules(schema, properties)
    if not rules.aggregates:
        return
    shared = [field.name for field in group_keys(schema, properties)]
    alone = sorted(set(columns) - set(shared))
    if alone:
        why = "the table aggregates, so a stored row may be only a part of a row of the table"
        why = "older rows of a key would come back" if rules.keeps_latest else why
        raise InvalidRequestError(
            f"a {what} of {name!r} cannot select rows by {', '.join(alone)}: {why}",
            hint=f"columns that a {what} can use: " + ", ".join(shared),
        )


def _combines(schema: Schema, properties: Properties) -> Aggregation | None:
    """Return what makes one row of several, if anything does."""
    if properties.keep == "latest":
        return _latest(schema, properties)
    if properties.latest_by:
        raise InvalidRequestError("latest_by is for tables with keep=latest")
    return _aggregation(properties.aggregations, schema) if properties.aggregations else None


def _latest(schema: Schema, properties: Properties) -> Aggregation:
    if properties.aggregations:
        raise InvalidRequestError(
            "a table with keep=latest cannot aggregate",
            hint="it keeps one row of each key whole: leave aggregations away",
        )
    if by := properties.latest_by:
        with _of_property("latest_by"):
            field = schema.field_named(by)
        if field.nullable or not (isinstance(field.type, DecimalType) or field.type in _ORDERED):
            raise InvalidRequestError(
                f"latest_by cannot use {by}: its values can be null, or have no order",
                hint="make it a column that is not nullable, of numbers, times or text",
            )
        if field in schema.row_keys:
            raise InvalidRequestError(
                f"latest_by cannot use {by}: it is a row key, in which rows of a key agree"
            )
    return Aggregation(kept="latest", by=by)


@contextmanager
def _of_property(name: str) -> Iterator[None]:
    """Begin what is wrong with the property `name` with its name."""
    try:
        yield
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{name}: {error}", hint=error.hint) from error


@_of_property("filters")
def _filters(text: str, schema: Schema) -> tuple[AgeOff | None, Condition | None]:
    age_off: AgeOff | None = None
    where: Condition | None = None
    for name, inner in _calls(text):
        kind = name.lower()
        if kind == "ageoff" and age_off is None:
            age_off = _age_off(inner, schema)
        elif kind == "where" and where is None:
            where = parse_condition(inner, schema)
        elif kind in ("ageoff", "where"):
            hint = "combine conditions with AND" if kind == "where" else ""
            raise InvalidRequestError(f"{name} is there twice", hint=hint)
        else:
            raise InvalidRequestError(
                f"there is no filter {name!r}",
                hint="filters are ageOff(field, milliseconds) and where(condition)",
            )
    dynamic = {field.name for field in schema.fields if field.type is Primitive.DYNAMIC}
    if where and (documents := sorted(dynamic & where.columns)):
        raise InvalidRequestError(
            f"where cannot use {', '.join(documents)}: it is dynamic",
            hint="put what rows are filtered by into a column of its own",
        )
    return age_off, where


def _age_off(inner: str, schema: Schema) -> AgeOff:
    name, comma, age = inner.rpartition(",")
    age = age.strip()
    if not comma or not _NUMBER.fullmatch(age) or not int(age):
        raise InvalidRequestError(
            f"ageOff({inner}) is not ageOff(field, milliseconds)",
            hint="the age is a whole number above zero, as in ageOff(timestamp, 86400000)",
        )
    field = schema.field_named(_unquoted(name))
    if field.type not in _PER_MILLISECOND:
        raise InvalidRequestError(
            f"ageOff cannot use {field.name}, which is {show_type(field.type)}",
            hint="it takes a long of milliseconds since 1970, a timestamp or a "
            "timestamp_ns; a time without a zone has no age",
        )
    return AgeOff(Column(field.name, field.type), int(age))


@_of_property("aggregations")
def _aggregation(text: str, schema: Schema) -> Aggregation | None:
    pairs = [(op.lower(), _unquoted(name)) for op, name in _calls(text)]
    if not pairs:
        return None
    for op, _ in pairs:
        if op not in (*_OPERATIONS, *_KEPT):
            raise InvalidRequestError(
                f"there is no operation {op!r}",
                hint="operations are " + ", ".join((*_OPERATIONS, *_KEPT)),
            )
    _check_fields([name for _, name in pairs], schema)
    operations = {op for op, _ in pairs if op in _KEPT}
    if operations:
        return Aggregation(kept=_kept({op for op, _ in pairs}, schema))
    by_name = {name: cast(Operation, op) for op, name in pairs}
    for field in schema.values:
        _check_operation(by_name[field.name], field)
    return Aggregation(tuple((field.name, by_name[field.name]) for field in schema.values))


def _check_fields(names: Sequence[str], schema: Schema) -> None:
    """Check that every value field, and no other field, is named exactly once."""
    values = [field.name for field in schema.values]
    keys = [field.name for field in schema.keys]
    for problem, fields in (
        ("name key fields, which identify groups", sorted(set(names) & set(keys))),
        ("name unknown fields", sorted(set(names) - set(keys) - set(values))),
        ("name fields twice", sorted({name for name in names if names.count(name) > 1})),
        ("lack value fields", [name for name in values if name not in names]),
    ):
        if fields:
            raise InvalidRequestError(
                f"they {problem}: {', '.join(fields)}",
                hint="each value field has one operation: " + ", ".join(values),
            )


def _kept(operations: set[str], schema: Schema) -> Kept:
    if len(operations) > 1:
        raise InvalidRequestError(
            f"they mix {', '.join(sorted(operations))}",
            hint="first and last choose whole rows: use the same one for every value field",
        )
    (operation,) = operations
    if not schema.sort_keys:
        raise InvalidRequestError(
            f"{operation} needs a sort key, by which rows of equal row keys are ordered"
        )
    return cast(Kept, operation)


def _check_operation(op: Operation, field: Field) -> None:
    if field.nullable:
        raise InvalidRequestError(
            f"{op} cannot use {field.name}, which can be null",
            hint="make the field not nullable, or use first or last",
        )
    kind: FieldType = field.type
    what = op
    if op.startswith("map_"):
        if not isinstance(kind, MapType):
            raise InvalidRequestError(f"{op} needs a map; {field.name} is {show_type(kind)}")
        kind = kind.value
        what = cast(Operation, op.removeprefix("map_"))
    if what == "sum":
        _check_sum(op, field, kind)
    elif not (isinstance(kind, DecimalType) or kind in _ORDERED):
        raise InvalidRequestError(f"{op} cannot use {field.name}: {show_type(kind)} has no order")


def _check_sum(op: Operation, field: Field, kind: FieldType) -> None:
    if kind in (Primitive.INT, Primitive.LONG):
        return
    if kind in (Primitive.FLOAT, Primitive.DOUBLE):
        raise InvalidRequestError(
            f"{op} cannot use {field.name}: a sum of {show_type(kind)} depends on "
            "the order of adding, and so on when shards were merged",
            hint="make it a decimal of precision 38",
        )
    if isinstance(kind, DecimalType):
        if kind.precision == 38:
            return
        raise InvalidRequestError(
            f"{op} cannot use {field.name}: sums outgrow a precision of {kind.precision}",
            hint="make it a decimal of precision 38",
        )
    raise InvalidRequestError(f"{op} cannot add {show_type(kind)} ({field.name})")


def _calls(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name and argument of each ``name(argument)`` in a comma-separated text."""
    rest = text.strip()
    while rest:
        name, parenthesis, after = rest.partition("(")
        end = _closing(after) if parenthesis else -1
        if end < 0 or not name.strip():
            raise InvalidRequestError(f"{rest!r} is not of the form name(…)")
        yield name.strip(), after[:end].strip()
        rest = after[end + 1 :].strip()
        if rest:
            if not rest.startswith(",") or not rest[1:].strip():
                raise InvalidRequestError(f"a comma is expected before {rest!r}")
            rest = rest[1:].strip()


def _closing(text: str) -> int:
    """Return where the bracket is closed that was opened before `text`; -1 if it is not."""
    depth, quote = 1, ""
    for at, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "()":
            depth += 1 if character == "(" else -1
            if not depth:
                return at
    return -1


def _unquoted(name: str) -> str:
    """Return a field name without the double quotes of SQL, if it has them."""
    name = name.strip()
    if len(name) > 1 and name[0] == name[-1] == '"':
        return name[1:-1].replace('""', '"')
    return name
