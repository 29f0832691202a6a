"""Parse columns, properties, renames and units written on the command line."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dormouse.errors import InvalidRequestError, NotFoundError
from dormouse.key_codec import KeyCodec, KeyLike, Ranges, part_from_text, show_part
from dormouse.keys import Key, KeyPart
from dormouse.schema.schema import Field, Schema, parse_field, parse_schema
from dormouse.schema.types import parse_type_text
from dormouse.tables.properties import KNOWN, SparkOptions
from dormouse_cli.session import tables_beginning
from dormouse_cli.terminal import Format, ListFormat, counted, note, print_listing

if TYPE_CHECKING:
    from dormouse.client.inferring import Inferred


def parse_columns(texts: Sequence[str], schema: Schema) -> list[str] | None:
    """Return the columns named, one an argument or several with commas between; None if none is."""
    names = [field.name for field in schema.fields]
    columns = [c for text in texts for c in ([text] if text in names else text.split(","))]
    return columns or None


def parse_keys(texts: Sequence[str] | None, schema: Schema) -> list[KeyLike]:
    """Return the keys written as ``key=value,…``; none for none."""
    return [KeyCodec(schema).from_assignments(text) for text in texts or ()]


def parse_ranges(texts: Sequence[str] | None, schema: Schema) -> Ranges | None:
    """Return the ranges of keys written as ``key=value,…..key=value,…``; None for none."""
    return [KeyCodec(schema).range_from_assignments(text) for text in texts or ()] or None


def parse_properties(texts: Sequence[str]) -> dict[str, object]:
    """Return the properties written as ``name=value``.

    A value that is a whole number is one, unless the property is a text.
    Raises InvalidRequestError: one is written otherwise.
    """
    properties: dict[str, object] = {}
    for text in texts:
        name, value = _pair(text, "has no value", "name=value")
        is_text = name in KNOWN and isinstance(KNOWN[name].default, str)
        is_number = not is_text and re.fullmatch(r"-?[0-9]{1,100}", value)
        properties[name] = int(value) if is_number else value
    return properties


def parse_parameters(texts: Sequence[str]) -> dict[str, object]:
    """Return the parameters of a statement written as ``name=value``; their values are texts.
    Raises InvalidRequestError: one is written otherwise.
    """
    parameters: dict[str, object] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not re.fullmatch(r"\w+", name):
            raise InvalidRequestError(
                "a parameter is written otherwise", hint="write it as name=value"
            )
        parameters[name] = value
    return parameters


def parse_spark(spark: bool, settings: Sequence[str] | None) -> SparkOptions | None:
    """Return what is asked of Spark for a job; None if nothing is: neither it nor a property.
    Raises InvalidRequestError: a property is not one of a single job, or cannot have its value.
    """
    if not spark and not settings:
        return None
    properties = parse_properties(settings or ())
    names = SparkOptions.__struct_fields__
    if others := [name for name in properties if name not in names]:
        raise InvalidRequestError(
            f"{others[0]!r} is no property of a single job", hint=f"there are {', '.join(names)}"
        )
    return SparkOptions(**properties)  # type: ignore[arg-type]  # it checks them itself


def parse_new_fields(texts: Sequence[str]) -> list[Field]:
    """Return the columns written as ``name:type``, which can be null, or as JSON.
    Raises InvalidRequestError: one is written otherwise, or there is no such type.
    """
    fields = []
    for text in texts:
        if text.startswith("{"):
            fields.append(parse_field(_json(text), "the column"))
            continue
        name, kind = _typed(text)
        fields.append(Field(name, parse_type_text(kind.rstrip().removesuffix("?")), nullable=True))
    return fields


def parse_types(texts: Sequence[str]) -> dict[str, str]:
    """Return types by columns, written as ``name:type``.
    Raises InvalidRequestError: one is written otherwise.
    """
    return dict(map(_typed, texts))


def _pair(text: str, problem: str, form: str) -> tuple[str, str]:
    """Return what is before and after the first sign of a form, ``=`` or ``:``."""
    name, sign, value = text.partition("=" if "=" in form else ":")
    if not name or not sign:
        raise InvalidRequestError(f"{text!r} {problem}", hint=f"write it as {form}")
    return name, value


def _typed(text: str) -> tuple[str, str]:
    """Return the name and the type of ``name:type``. The name may have colons, and so have structs:
    the type follows the first colon behind which nothing but a type is.
    """
    typed = re.fullmatch(r"(.+?):(\s*\w+\s*([<(].*[>)])?\s*\??\s*)", text, re.DOTALL)
    return (typed[1], typed[2]) if typed else _pair(text, "is no column", "name:type")


def parse_renames(texts: Sequence[str], schema: Schema) -> dict[str, str]:
    """Return new names by old ones, written as ``old=new``; the old name may have ``=`` in it.
    Raises InvalidRequestError: one is written otherwise, or a column is renamed twice.
    """
    renames: dict[str, str] = {}
    names = [field.name for field in schema.fields]
    for text in texts:
        column = max((n for n in names if text.startswith(f"{n}=")), key=len, default=None)
        old, equals, new = (
            text.partition("=") if column is None else (column, "=", text[len(column) + 1 :])
        )
        if not old or not equals or not new:
            raise InvalidRequestError(
                f"{text!r} is no change of a name", hint="write it as old=new"
            )
        if old in renames:
            raise InvalidRequestError(f"column {old!r} is renamed twice")
        renames[old] = new
    return renames


def parse_units(texts: Sequence[str]) -> dict[str, str]:
    """Return units by columns, written as ``column=unit``; ``none`` takes one away.
    Raises InvalidRequestError: one is written otherwise, or a column has two.
    """
    units: dict[str, str] = {}
    for text in texts:
        name, _, unit = text.rpartition("=")
        if not name or not unit:
            raise InvalidRequestError(f"{text!r} is no unit", hint="write it as column=unit")
        if name in units:
            raise InvalidRequestError(f"column {name!r} is given two units")
        units[name] = "" if unit == "none" else unit
    return units


_SCHEMA_HINT = "a schema is a file of JSON, or text such as 'id: long, name: string?'"


def read_file(path: Path, hint: str = "") -> bytes:
    """Return what a small file holds; `hint` says what could be given instead.
    Raises NotFoundError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise NotFoundError(f"cannot read {str(path)!r}: {error.strerror}", hint=hint) from error


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{text!r} is not valid JSON: {error}") from error


TableName = Annotated[
    str, typer.Argument(metavar="NAME", help="The table's name.", autocompletion=tables_beginning)
]
AnyTableName = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]", help="A table; by default all.", autocompletion=tables_beginning
    ),
]
AsOfOption = Annotated[
    str | None,
    typer.Option(
        "--as-of", metavar="VERSION|TAG|TIME", help="As the table was then; by default now."
    ),
]
NewTableName = Annotated[str, typer.Argument(metavar="NAME", help="The new table's name.")]
FormatOption = Annotated[Format, typer.Option("--format", help="How to print it.")]
ListFormatOption = Annotated[ListFormat, typer.Option("--format", help="How to print it.")]
PortOption = Annotated[int, typer.Option(help="The port; 0 takes a free one.", max=65535, min=0)]
ForceOption = Annotated[bool, typer.Option("--force", help="Do not ask.")]
ReleaseTagsOption = Annotated[
    bool, typer.Option("--release-tags", help="Also remove the table's tags.")
]
SparkOption = Annotated[
    bool, typer.Option("--spark", help="Have Spark do it, even if it is small.")
]
JobPropertyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        metavar="NAME=VALUE",
        help="spark_executors, spark_executor_cores or spark_executor_memory_bytes for this job "
        "alone, which is then for Spark; repeat for more.",
    ),
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0, help="How long to wait at most.")
]

MAX_PATH_CHARACTERS = 250
COLUMNS = ("column", "type", "role")

RowKeysOption = Annotated[
    list[str] | None,
    typer.Option("--row-keys", metavar="A,B", help="Columns that partition and sort the rows."),
]
SortKeysOption = Annotated[
    list[str] | None,
    typer.Option("--sort-keys", metavar="A,B", help="Columns that sort rows of equal row keys."),
]
TypesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        metavar="NAME:TYPE",
        help="The type of a column, in place of the inferred one; repeatable.",
    ),
]

WiderTypesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        metavar="NAME:TYPE",
        help="Gives a column or member a wider type: int becomes long, float double, a decimal one "
        "of more digits and the same scale, a timestamp one of nanoseconds; repeatable.",
    ),
]


def written_schema(
    text: str,
    row_keys: Sequence[str] | None,
    sort_keys: Sequence[str] | None,
    types: Sequence[str] | None,
) -> Schema:
    """Return the schema of a file, or of the text itself.

    Raises:
        NotFoundError: it is neither.
        InvalidRequestError: it is no schema.
    """
    if types:
        raise InvalidRequestError(
            "--type goes with --like", hint="a schema says the type of each column itself"
        )
    # a path that is too long for the file system is text, and may not even be looked for
    is_text = ":" in text and (len(text) > MAX_PATH_CHARACTERS or not Path(text).is_file())
    content = text if is_text else _decoded(read_file(Path(text), _SCHEMA_HINT), Path(text))
    return parse_schema(content, parse_names(row_keys), parse_names(sort_keys))


def inferred_schema(
    like: Path,
    row_keys: Sequence[str] | None,
    sort_keys: Sequence[str] | None,
    types: Sequence[str] | None,
    properties: Mapping[str, object],
) -> "Inferred":
    """Return the schema inferred from a file. Raises InvalidRequestError: it cannot be inferred."""
    from dormouse.client.inferring import infer_schema

    types_by_name = parse_types(types or [])
    keys, sorting = parse_names(row_keys), parse_names(sort_keys)
    return infer_schema(like, keys, sorting, types_by_name, properties=properties)


def print_inferred(inferred: "Inferred") -> None:
    """Print what each column of a file was taken for."""
    kinds = {column.name: column.found for column in inferred.columns}
    rows = [
        {**row, "in the file": kinds[str(row["column"])]} for row in column_rows(inferred.schema)
    ]
    print_listing(("column", "in the file", "type", "role"), rows, "table")
    for remark in inferred.remarks:
        note(remark)
    if inferred.sampled_rows is not None:
        note(f"inferred from the first {counted(inferred.sampled_rows, 'row')}")


def column_rows(schema: Schema) -> list[dict[str, object]]:
    """Return the columns of a schema as rows of a listing."""
    return [dict(zip(COLUMNS, row, strict=True)) for row in schema.described()]


def parse_names(texts: Sequence[str] | None) -> list[str]:
    """Return names that are given one an argument, or several with commas between."""
    return [name for text in texts or () for name in text.split(",") if name]


def _decoded(content: bytes, path: Path) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequestError(
            f"{str(path)!r} is no text, so it is no schema",
            hint=f"to infer the schema of a data file: --like {path} --row-keys NAME,…",
        ) from error


# Files of split points: what `table add --splits` takes and `splits` prints.
#
# A line is a value of the first row key, as `parse_part` reads it; or a JSON list of the values
# of the first several row keys. So a string that looks like a JSON list must be in one.


def parse_split_points(content: bytes, schema: Schema) -> list[KeyLike]:
    """Return the split points of a file, which ascend, as a program passes them.
    Raises InvalidRequestError: a line is no split point, or out of order; the message has its
    number.
    """
    try:
        lines = content.decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"the split points are not UTF-8 text: {error}") from error
    points: list[tuple[KeyPart, ...]] = []
    for number, line in enumerate(lines if content else [], start=1):
        where = f"split points, line {number}"
        point = _split_point(line.removesuffix("\r"), schema, where)
        if points and not points[-1] < point:
            raise InvalidRequestError(
                f"{where}: {line.strip()} does not come after the line before",
                hint="split points ascend, without repeats",
            )
        points.append(point)
    return [KeyCodec(schema).to_python(point) for point in points]


def show_split_points(points: Iterable[Key], schema: Schema) -> str:
    """Return the file of split points which `parse_split_points` reads as these."""
    return "".join(f"{_line(point, schema)}\n" for point in points)


def _line(point: Key, schema: Schema) -> str:
    fields = zip(point, schema.row_keys, strict=False)
    texts = [show_part(part, field.type) for part, field in fields]
    text = texts[0]
    is_plain = text and not text.startswith("[") and not text.endswith("\r") and "\n" not in text
    return text if is_plain and len(texts) == 1 else json.dumps(texts, ensure_ascii=False)


def _split_point(line: str, schema: Schema, where: str) -> tuple[KeyPart, ...]:
    if not line:
        raise InvalidRequestError(
            f"{where} is empty", hint='remove it; the empty string is written [""]'
        )
    texts = _json_list(line) or [line]
    if len(texts) > len(schema.keys):
        raise InvalidRequestError(
            f"{where} has {len(texts)} values for {len(schema.row_keys)} row keys"
        )
    try:
        point = tuple(
            part_from_text(_text(value), field)
            for value, field in zip(texts, schema.keys, strict=False)
        )
        return KeyCodec(schema).split_point(point, "it")
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{where}: {error}", hint=error.hint) from error


def _json_list(line: str) -> list[object]:
    """Return the list that a line is as JSON; of any other line an empty one."""
    try:
        values: list[object] = json.loads(line) if line.startswith("[") else []
    except (ValueError, RecursionError):
        return []
    return values


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise InvalidRequestError(f"{json.dumps(value)} cannot be part of a key")
