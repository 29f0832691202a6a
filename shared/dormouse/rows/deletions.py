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
from dormouse.schema.schema import RESERVED, SEQUENCE, Field, Schema, parse_field
from dormouse.schema.types import Primitive
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
    added = tuple(field for key, field in fields.items() if field.name.startswith(RESERVED))
    return Deletions(schema.with_values(*added, SEQUENCE), any_of(hidden))


def _condition(deletion: Deletion, fields: dict[int, Field]) -> Expression:
    """Return the condition of a deletion on present columns; those that were dropped since are
    added to `fields`.
    """
    try:
        named = [parse_field(json.loads(text), "a column") for text in deletion.columns]
        for field in named:
            dropped = replace(field, name=f"{RESERVED}{field.id}", nullable=True)
            fields.setdefault(field.id, dropped)
        then = tuple(replace(fields[field.id], name=field.name) for field in named)
        found = _parsed(deletion.where, then)
    except (InvalidRequestError, ValueError):
        # not chained: the message quotes what may be values of rows
        raise CorruptDataError(
            f"deletion {deletion.id} cannot be read", hint="a later release made it: upgrade"
        ) from None
    return _renamed(found, {field.name: fields[field.id].name for field in named})


@lru_cache(maxsize=2 * MAX_DELETIONS)
def _parsed(where: str, fields: tuple[Field, ...]) -> Expression:
    return parse_condition(where, Schema((), (), fields, is_part=True)).expression


def _renamed(expression: Expression, names: Mapping[str, str]) -> Expression:
    match expression:
        case Column(name=name):
            return replace(expression, name=names[name])
        case Call(arguments=arguments):
            return replace(expression, arguments=tuple(_renamed(a, names) for a in arguments))
    return expression


def check_columns(schema: Schema, deletions: Iterable[Deletion], left_out: int) -> None:
    """Check that a job which leaves out the rows of deletions up to the number `left_out` writes
    every column by which later ones hide rows of its output.

    Raises:
        InvalidRequestError: the table has dropped one.
    """
    present = {field.id for field in schema.fields}
    for deletion in deletions:
        if deletion.number > left_out and not present.issuperset(
            json.loads(text)["id"] for text in deletion.columns
        ):
            raise InvalidRequestError("a deletion came, and a column that it names was dropped")


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
    return tuple(json.dumps(schema.field_named(name).to_json()) for name in named)


def any_of(conditions: Sequence[Expression]) -> Condition:
    """Return the condition that is true where one of some, at least one, is."""
    return Condition(conditions[0] if len(conditions) == 1 else truth("OR", *conditions))
