"""The columns of a table whose shards have a term index, as the property `term_index` says."""

import json
import re
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal, TypeAlias, cast, get_args

from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import ROW_FIELD_IDS, Field, Schema
from dormouse.schema.types import Primitive, show_type
from dormouse.sql.conditions import Call, Column, parse_condition
from dormouse.sql.conditions import Literal as Constant
from dormouse.tables.properties import Properties, column_named

Tokenizer: TypeAlias = Literal["word", "log"]
"""What texts are cut to: words, or words and whole IPv4 addresses."""
TermColumns: TypeAlias = tuple[tuple[str, Tokenizer], ...]
"""Names of columns, each with its tokenizer."""
_TOKENIZERS = get_args(Tokenizer)


def term_columns(schema: Schema, properties: Properties) -> TermColumns:
    """Parse and check the property `term_index`; return the columns, each once.
    Raises InvalidRequestError: a column is unknown, is no text, or is named twice; or a tokenizer
    is unknown.
    """
    names = [name.strip() for name in properties.term_index.split(",")]
    tokenizers: dict[str, Tokenizer] = {}
    for name, tokenizer in (_parted(each, schema) for each in names if each):
        if tokenizers.setdefault(name, tokenizer) != tokenizer:
            raise InvalidRequestError(f"term_index: {name} is named with two tokenizers")
    return tuple(tokenizers.items())


def _parted(text: str, schema: Schema) -> tuple[str, Tokenizer]:
    names = [field.name for field in schema.fields]
    name, colon, tokenizer = text.rpartition(":")
    if text in names or not colon:
        name, tokenizer = text, "word"
    name, tokenizer = name.strip(), tokenizer.strip()
    field = column_named(name, schema.fields, "term_index")
    if tokenizer not in _TOKENIZERS:
        raise InvalidRequestError(
            f"term_index: there is no tokenizer {tokenizer!r}",
            hint=f"write {name} or {name}:word for words, {name}:log for words and IPv4 addresses",
        )
    if field.type is not Primitive.STRING:
        raise InvalidRequestError(
            f"term_index: {name} is {show_type(field.type)}, which can have no term index",
            hint="columns of type string can; has() and LIKE find words in others without one",
        )
    return name, cast(Tokenizer, tokenizer)


# The paths in documents that shards have columns of, as the property `shredded_paths` says.
#
# Such a column holds the values of one kind at one path, beside the documents, and is no column of
# the table: it is found by its name, which says the id of the documents' column, path and kind.


MOST_PATHS = 16
"""The most of a column."""
KINDS = (Primitive.LONG, Primitive.STRING, Primitive.BOOLEAN)
_FIRST_ID, _IDS = ROW_FIELD_IDS + 1_000, 60_000_000
"""Where their ids begin, and how many there are; each has the next one too, as `other_id`. They end
before those of Iceberg's own fields."""
_PART = re.compile(r"""(?:"[^"]*"|'[^']*'|[^,"'])+""")
_WORD = re.compile(r"[^\W\d]\w*")
_HINT = "write payload.user.id:long, payload.kind:string; auto chooses by the data, off none"


@dataclass(frozen=True, slots=True)
class ShreddedPath:
    """A path in the documents of a column, and the kind of values there that have a column."""

    column: Field
    path: tuple[str | int, ...]
    kind: Primitive

    @property
    def field(self) -> Field:
        """The column of the values, which shards have if it holds all values of a kind that could
        be compared as these: a long, all numbers.
        """
        steps = "".join(map(_step, self.path))
        name = f"_{self.column.id}{steps}:{show_type(self.kind)}"
        digest = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big")
        return Field(name, self.kind, nullable=True, id=_FIRST_ID + 2 * (digest % _IDS))


def is_shredded(field_id: int) -> bool:
    """Return whether a field of this id is a column of values at a path."""
    return _FIRST_ID <= field_id < _FIRST_ID + 2 * _IDS


def other_id(field_id: int) -> int:
    """Return the id that the column has in a shard where it lacks values of its kind."""
    return field_id + 1


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step if _WORD.fullmatch(step) else json.dumps(step)}"


def shredded_paths(schema: Schema, properties: Properties) -> tuple[ShreddedPath, ...] | None:
    """Parse and check the property `shredded_paths`; return None if the data decides.
    Raises InvalidRequestError: a path is none in a dynamic column, or it names no kind.
    """
    text = properties.shredded_paths.strip()
    if text in ("auto", "off", ""):
        return None if text == "auto" else ()
    paths = tuple(dict.fromkeys(_shredded(part.strip(), schema) for part in _PART.findall(text)))
    for column in {each.column for each in paths}:
        count = sum(each.column == column for each in paths)
        if count > MOST_PATHS:
            raise InvalidRequestError(
                f"shredded_paths: {count} paths are of {column.name}; at most {MOST_PATHS} can be"
            )
    return paths


def _shredded(text: str, schema: Schema) -> ShreddedPath:
    part, _, kind = text.rpartition(":")
    primitive = next((each for each in KINDS if show_type(each) == kind.strip()), None)
    if primitive is None:
        raise InvalidRequestError(
            f"shredded_paths: {text!r} does not end in :long, :string or :boolean", hint=_HINT
        )
    try:
        test = parse_condition(f"{part} IS NULL", schema).expression
    except InvalidRequestError as error:
        raise InvalidRequestError(f"shredded_paths: {error}", hint=error.hint or _HINT) from error
    path = test.arguments[0] if isinstance(test, Call) else test
    if not isinstance(path, Call) or path.op != "PATH" or not isinstance(path.arguments[0], Column):
        raise InvalidRequestError(
            f"shredded_paths: {part} is no path in a dynamic column", hint=_HINT
        )
    return of_call(path, schema, primitive)


def of_call(path: Call, schema: Schema, kind: Primitive) -> ShreddedPath:
    """Return what the values at the path of a condition would be a column of."""
    column, *steps = path.arguments
    assert isinstance(column, Column)
    values = (step.value for step in steps if isinstance(step, Constant))
    names = tuple(value for value in values if isinstance(value, str | int))
    return ShreddedPath(schema.field_named(column.name), names, kind)
