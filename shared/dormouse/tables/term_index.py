"""The columns of a table whose shards have a term index, as the property `term_index` says."""

from typing import Literal, TypeAlias, cast, get_args

from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import Schema
from dormouse.schema.types import Primitive, show_type
from dormouse.tables.properties import Properties, column_named

Tokenizer: TypeAlias = Literal["word", "log"]
"""What texts are cut to: words, or words and whole IPv4 addresses."""
TermColumns: TypeAlias = tuple[tuple[str, Tokenizer], ...]
"""Names of columns, each with its tokenizer."""
_TOKENIZERS = get_args(Tokenizer)


def term_columns(schema: Schema, properties: Properties) -> TermColumns:
    """Parse and check the property `term_index`; return the columns, each once.

    Raises:
        InvalidRequestError: a column is unknown, is no text, or is named twice; or a tokenizer is
            unknown.
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
