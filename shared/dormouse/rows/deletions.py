"""The rows that deletions hide: a condition on the rows of shards, as they are read.

A deletion hides rows of the shards that were there before it. So while there are deletions, shards
are read with one column more, `APPLIED`: the number of the last deletion that hides none of the
shard's rows (`state.Shard`); and with the columns that deletions name and the table dropped since.
A job that applied a deletion may have left such columns out, so it must not be applied again.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from dormouse.errors import CorruptDataError, InvalidRequestError
from dormouse.keys import KeyRange
from dormouse.schema.evolution import parts_of, with_parts
from dormouse.schema.schema import (
    APPLIED,
    ASKED,
    OF_ROWS,
    RESERVED,
    TAGS,
    Field,
    Schema,
    parse_field,
)
from dormouse.schema.types import Primitive, widest
from dormouse.sql import conditions as sql
from dormouse.state.rules import MAX_DELETIONS
from dormouse.state.state import Deletion


@dataclass(frozen=True, slots=True)
class Deletions:
    """What deletions mean for readers: `schema` is what they read, and the rows of which
    `hidden` is true are deleted.
    """

    schema: Schema
    hidden: sql.Condition


@lru_cache(maxsize=64)
def deletions_for(schema: Schema, deletions: tuple[Deletion, ...]) -> Deletions:
    """Return what some deletions, at least one, mean for readers of a table with this schema.
    Raises CorruptDataError: one cannot be read by this release; the message does not quote it.
    """
    fields = {field.id: field for field in schema.fields}
    hidden = []
    for deletion in deletions:
        condition = _condition(deletion, fields)
        if not deletion.below:
            before = sql.Column(APPLIED.name, Primitive.LONG)
            is_before = sql.truth("<", before, sql.Literal(deletion.number, Primitive.LONG))
            condition = sql.truth("AND", is_before, condition)
        hidden.append(condition)
    ids = {field.id for field in schema.fields}
    more = tuple(field for field in fields.values() if field.id not in ids)
    present = replace(schema, values=tuple(fields[field.id] for field in schema.values))
    return Deletions(present.with_values(*more, APPLIED), any_of(hidden))


def _condition(deletion: Deletion, fields: dict[int, Field]) -> sql.Expression:
    """Return the condition of a deletion on columns as they are now. What it names and was dropped
    since is added to `fields`.
    """
    try:
        named = [parse_field(json.loads(text), "a column") for text in deletion.columns]
        condition = _parsed(deletion.where, tuple(named))
    except (InvalidRequestError, ValueError):
        # not chained: the message quotes what may be values of rows
        raise CorruptDataError(
            f"deletion {deletion.id} cannot be read", hint="a later release made it: upgrade"
        ) from None
    for field in named:
        is_of_rows = field.name in OF_ROWS
        now = field if is_of_rows else _with_dropped(fields.get(field.id), field)
        fields[field.id] = now
    return _as_now(condition, {field.name: (field, fields[field.id]) for field in named})[0]


def _with_dropped(now: Field | None, then: Field) -> Field:
    """Return a field as it is now, with what it had then and was dropped since, under names that no
    column has. A type may have become wider before that.
    """
    if now is None:
        return replace(then, name=f"{RESERVED}{then.id}", type=widest(then.type), nullable=True)
    before = {part.id: part for part in parts_of(then)}
    parts = [_with_dropped(p, before.pop(p.id)) if p.id in before else p for p in parts_of(now)]
    return with_parts(now, [*parts, *(_with_dropped(None, part) for part in before.values())])


@lru_cache(maxsize=2 * MAX_DELETIONS)
def _parsed(where: str, fields: tuple[Field, ...]) -> sql.Expression:
    schema = Schema((), (), fields, is_part=True)
    return sql.parse_condition(where, schema, of_rows=True).expression


_Fields = tuple[Field, Field]
"""A column or part as it was when a deletion was made, and as it is now."""


def _as_now(
    expression: sql.Expression, named: Mapping[str, _Fields]
) -> tuple[sql.Expression, _Fields | None]:
    """Return an expression on columns as they were as one on those as they are now, and the field
    that it is, if it is one. A value that has a wider type now is cast to the type of then, in
    which it is what it was; one that did not exist in that type is null.
    """
    match expression:
        case sql.Column(name=name):
            then, now = named[name]
            return _in_type(sql.Column(now.name, now.type), then, now)
        case sql.Call(op="FIELD" | "ELEMENT" | "VALUE", arguments=(inner, sql.Literal() as place)):
            inside, both = _as_now(inner, named)
            if both is None:
                return expression, None
            then, now = both
            if expression.op == "FIELD":
                then = next(part for part in parts_of(then) if part.name == place.value)
                now = next(part for part in parts_of(now) if part.id == then.id)
                place = replace(place, value=now.name)
            else:
                then, now = parts_of(then)[-1], parts_of(now)[-1]
            return _in_type(sql.Call(expression.op, (inside, place), now.type), then, now)
        case sql.Call(arguments=arguments):
            parts = tuple(_as_now(each, named)[0] for each in arguments)
            return replace(expression, arguments=parts), None
    return expression, None


def _in_type(value: sql.Expression, then: Field, now: Field) -> tuple[sql.Expression, _Fields]:
    is_wider = then.type != now.type and not parts_of(then)
    return (sql.Call("CAST", (value,), then.type) if is_wider else value), (then, now)


def check_columns(schema: Schema, deletions: Iterable[Deletion], left_out: int) -> None:
    """Check that a job which leaves out the rows of deletions up to the number `left_out` writes
    everything by which later ones hide rows of its output.
    Raises InvalidRequestError: the table has dropped one.
    """
    present = {i for field in schema.fields for i in (field.id, *field.nested_ids)} | {TAGS.id}
    for deletion in deletions:
        named = [json.loads(text) for text in deletion.columns]
        ids = {i for field in named for i in (field["id"], *field.get("nestedIds", ()))}
        if deletion.number > left_out and not ids <= present:
            raise InvalidRequestError("a deletion came, and what it names was dropped")


def id_of_job(job: str, generation: int) -> str:
    """Return the id of the deletion that an ingest job brings: what a job of a generation adds, it
    adds once, and its shards name it.
    """
    return f"{job}-{generation}"


def deletion_of_all(id: str, schema: Schema, by: str, below: str) -> Deletion:
    """Return the deletion of all rows; with the column `by`, of those with less than `below` there,
    however late they come.
    """
    condition = sql.parse_condition("true", schema)
    if by:
        bound = sql.Literal(below, Primitive.STRING)
        condition = sql.Condition(sql.truth("<", sql.Column(by, Primitive.STRING), bound))
    columns, ranges = named_fields(condition, schema), ((KeyRange().low, KeyRange().high),)
    return Deletion(id, condition.sql, columns, ranges, below=below)


def named_fields(condition: sql.Condition, schema: Schema) -> tuple[str, ...]:
    """Return the columns of a condition as a deletion stores them."""
    names: Iterable[str] = sorted(condition.columns)
    fields = schema.with_values(TAGS, *ASKED)
    return tuple(json.dumps(fields.field_named(name).to_json()) for name in names)


def any_of(conditions: Sequence[sql.Expression]) -> sql.Condition:
    """Return the condition that is true where one of some, at least one, is."""
    return sql.Condition(conditions[0] if len(conditions) == 1 else sql.truth("OR", *conditions))
