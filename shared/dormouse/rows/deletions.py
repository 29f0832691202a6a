"""The rows that deletions hide: a condition on the rows of shards, as they are read.

A deletion hides rows of the shards that were there before it. So while there are deletions, shards
are read with one column more, `SEQUENCE`: the number of the last deletion that hides none of the
shard's rows (`state.Shard`); and with the columns that deletions name and the table dropped since.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from dormouse.errors import CorruptDataError, InvalidRequestError
from dormouse.keys import KeyRange
from dormouse.schema.evolution import parts_of, with_parts
from dormouse.schema.schema import (
    OF_ROWS,
    ORIGIN,
    RESERVED,
    SEQUENCE,
    TAGS,
    Field,
    Schema,
    parse_field,
)
from dormouse.schema.types import Primitive, widest
from dormouse.sql.conditions import (
    Call,
    Column,
    Condition,
    Expression,
    Literal,
    parse_condition,
    truth,
)
from dormouse.state.rules import MAX_DELETIONS
from dormouse.state.state import Deletion


@dataclass(frozen=True, slots=True)
class Deletions:
    """What deletions mean for readers: `schema` is what they read, and the rows of which
    `hidden` is true are deleted.
    """

    schema: Schema
    hidden: Condition


@lru_cache(maxsize=64)
def deletions_for(schema: Schema, deletions: tuple[Deletion, ...]) -> Deletions:
    """Return what some deletions, at least one, mean for readers of a table with this schema.

    Raises:
        CorruptDataError: one cannot be read by this release; the message does not quote it.
    """
    fields = {field.id: field for field in schema.fields}
    hidden = []
    for deletion in deletions:
        condition = _condition(deletion, fields)
        if not deletion.below:
            before = Column(SEQUENCE.name, Primitive.LONG)
            is_before = truth("<", before, Literal(deletion.number, Primitive.LONG))
            condition = truth("AND", is_before, condition)
        hidden.append(condition)
    known = {field.id for field in schema.fields}
    added = tuple(field for field in fields.values() if field.id not in known)
    present = replace(schema, values=tuple(fields[field.id] for field in schema.values))
    return Deletions(present.with_values(*added, SEQUENCE), any_of(hidden))


def _condition(deletion: Deletion, fields: dict[int, Field]) -> Expression:
    """Return the condition of a deletion on columns as they are now. What it names and was dropped
    since is added to `fields`.
    """
    try:
        named = [parse_field(json.loads(text), "a column") for text in deletion.columns]
        found = _parsed(deletion.where, tuple(named))
    except (InvalidRequestError, ValueError):
        # not chained: the message quotes what may be values of rows
        raise CorruptDataError(
            f"deletion {deletion.id} cannot be read", hint="a later release made it: upgrade"
        ) from None
    for field in named:
        is_of_rows = field.name in OF_ROWS
        now = field if is_of_rows else _with_dropped(fields.get(field.id), field)
        fields[field.id] = now
    return _as_now(found, {field.name: (field, fields[field.id]) for field in named})[0]


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
def _parsed(where: str, fields: tuple[Field, ...]) -> Expression:
    schema = Schema((), (), fields, is_part=True)
    return parse_condition(where, schema, of_rows=True).expression


_Fields = tuple[Field, Field]
"""A column or part as it was when a deletion was made, and as it is now."""


def _as_now(
    expression: Expression, named: Mapping[str, _Fields]
) -> tuple[Expression, _Fields | None]:
    """Return an expression on columns as they were as one on those as they are now, and the field
    that it is, if it is one. A value that has a wider type now is cast to the type of then, in
    which it is what it was; one that did not exist in that type is null.
    """
    match expression:
        case Column(name=name):
            then, now = named[name]
            return _in_type(Column(now.name, now.type), then, now)
        case Call(op="FIELD" | "ELEMENT" | "VALUE", arguments=(inner, Literal() as place)):
            found, both = _as_now(inner, named)
            if both is None:
                return expression, None
            then, now = both
            if expression.op == "FIELD":
                then = next(part for part in parts_of(then) if part.name == place.value)
                now = next(part for part in parts_of(now) if part.id == then.id)
                place = replace(place, value=now.name)
            else:
                then, now = parts_of(then)[-1], parts_of(now)[-1]
            return _in_type(Call(expression.op, (found, place), now.type), then, now)
        case Call(arguments=arguments):
            found_all = tuple(_as_now(each, named)[0] for each in arguments)
            return replace(expression, arguments=found_all), None
    return expression, None


def _in_type(value: Expression, then: Field, now: Field) -> tuple[Expression, _Fields]:
    is_wider = then.type != now.type and not parts_of(then)
    return (Call("CAST", (value,), then.type) if is_wider else value), (then, now)


def check_columns(schema: Schema, deletions: Iterable[Deletion], left_out: int) -> None:
    """Check that a job which leaves out the rows of deletions up to the number `left_out` writes
    everything by which later ones hide rows of its output.

    Raises:
        InvalidRequestError: the table has dropped one.
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
    condition = parse_condition("true", schema)
    if by:
        bound = Literal(below, Primitive.STRING)
        condition = Condition(truth("<", Column(by, Primitive.STRING), bound))
    columns, ranges = named_fields(condition, schema), ((KeyRange().low, KeyRange().high),)
    return Deletion(id, condition.sql, columns, ranges, below=below)


def named_fields(condition: Condition, schema: Schema) -> tuple[str, ...]:
    """Return the columns of a condition as a deletion stores them."""
    named: Iterable[str] = sorted(condition.columns)
    known = schema.with_values(TAGS, *ORIGIN)
    return tuple(json.dumps(known.field_named(name).to_json()) for name in named)


def any_of(conditions: Sequence[Expression]) -> Condition:
    """Return the condition that is true where one of some, at least one, is."""
    return Condition(conditions[0] if len(conditions) == 1 else truth("OR", *conditions))
