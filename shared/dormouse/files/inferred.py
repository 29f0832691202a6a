"""Columns whose types or values a file does not state: named by folders, and inferred.

Read columns whose values are in the names of folders, as Hive and Spark write them.

The rows of ``carrier=AA/part-0.parquet`` have ``AA`` in the column ``carrier``. Only names of the
table's columns count. The text is a value as in CSV, with ``%`` escapes; Spark's name for null is
null. Where the file has values of the column itself, they must be the same.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.arrow.types import Array, arrow_schema, nulls
from dormouse.errors import InvalidRequestError, RefusedSourceError
from dormouse.files.casting import describe_without_values, exact_number, text_parser
from dormouse.files.rejects import refuse_rows
from dormouse.keys import INT64_MAX, INT64_MIN
from dormouse.schema.row_tags import without_tags
from dormouse.schema.schema import Field, FoundColumn, Schema
from dormouse.schema.types import (
    MAX_TYPE_DEPTH,
    TIMESTAMPS,
    DecimalType,
    FieldType,
    ListType,
    Member,
    Primitive,
    StructType,
    show_type,
)

# Infer the type of a column of texts: the narrowest that reads all of them as ingest would.

_INTEGER = r"^(0|-?[1-9][0-9]*)$"
"""A whole number whose digits say nothing more: 007 and +41 are codes, and stay text."""
_REAL = (
    r"^-?(0|[1-9][0-9]*|)([.][0-9]*)?$|^-?[0-9]([.][0-9]+([eE][+-]?|e)|[eE][+-]|e)[0-9]+$"
    r"|(?i)^-?inf(inity)?$|(?i)^nan$"
)
"""A number as programs write floats. Codes such as 12E3 and 4E7 are none."""
_LONG_OR_TINY = r"[0-9]([.]?[0-9]){15}|[eE]-[0-9]{3}|[.]0{290}"
"""The numbers that a double may not return: all others have at most 15 digits."""
_BEYOND_DECIMALS = r"^-?[0-9]{39,}$"
"""A whole number that no decimal holds: a double might, but hardly the next one."""
_ENDS_IN_ZERO = r"[.][0-9]+0$"
_DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
_ZONED = r"[0-9] ?(Z|UTC|[+-][0-9]{2}(:?[0-9]{2})?)$"
_CLOCK = r"[T ][0-9]{2}"

_CANDIDATES: tuple[tuple[FieldType, str, str], ...] = (
    (Primitive.BOOLEAN, r"(?i)^(true|false)$", "true and false"),
    (Primitive.LONG, _INTEGER, "whole numbers"),
    (DecimalType(20, 0), _INTEGER, "whole numbers beyond 64 bits"),
    (DecimalType(38, 0), _INTEGER, "whole numbers beyond 64 bits"),
    (Primitive.DOUBLE, _REAL, "numbers"),
    (Primitive.DATE, f"{_DAY}$", "dates"),
    (Primitive.TIMESTAMP, rf"{_CLOCK}.*{_ZONED}", "times with a zone"),
    (Primitive.TIMESTAMP_NS, rf"{_CLOCK}.*{_ZONED}", "times with a zone, of nanoseconds"),
    (Primitive.TIMESTAMP_NTZ, _DAY, "times without a zone"),
    (Primitive.TIMESTAMP_NTZ_NS, _DAY, "times without a zone, of nanoseconds"),
    (Primitive.TIME, r"^[0-9]{2}:[0-9]{2}", "times of day"),
    (Primitive.UUID, r"^[0-9a-fA-F]{8}-", "UUIDs"),
)
"""The types that a text may have, narrowest first: each with the form that its texts have."""


class TextColumn:
    """The types that all cells of a column, seen so far, can have."""

    def __init__(self) -> None:
        self._candidates = list(_CANDIDATES)
        self._values = 0
        self._has_finite = False
        self._decimals: set[int] = set()
        self._ends_in_zero = False

    def see(self, cells: Array) -> None:
        """Drop the types that cannot read some of these cells."""
        values = cells.drop_null()
        if not len(values):
            return
        self._values += len(values)
        self._candidates = [each for each in self._candidates if _reads(values, *each[:2])]
        if any(kind is Primitive.DOUBLE for kind, *_ in self._candidates):
            self._see_digits(values)

    def _see_digits(self, values: Array) -> None:
        """Learn of numbers what a double does not keep: 1.10 and 1.100 may be two versions."""
        self._has_finite |= _any(values, "[0-9]")
        self._ends_in_zero |= _any(values, _ENDS_IN_ZERO)
        fractions = values.filter(pc.match_substring(values, "."))
        decimals: Array = pc.replace_substring_regex(fractions, "^[^.]*[.]", "")
        lengths = pc.call_function("utf8_length", [decimals])
        self._decimals.update(pc.unique(lengths).to_pylist())

    def _is_kept(self, kind: FieldType) -> bool:
        """Return whether a type keeps what the texts say: a double does if zeros at their ends only
        fill them up to one number of decimals, and if there are numbers at all.
        """
        if kind is not Primitive.DOUBLE:
            return True
        return self._has_finite and not (self._ends_in_zero and len(self._decimals) > 1)

    def found(self, name: str) -> FoundColumn:
        """Return the column with the narrowest type that is left."""
        if not self._values:
            return FoundColumn(name, "nothing", None, problem="is empty in every row")
        for kind, _, words in self._candidates:
            if self._is_kept(kind):
                return FoundColumn(name, words, kind)
        return FoundColumn(name, "text", Primitive.STRING)


def _any(values: Array, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(values, pattern)).as_py())


def _reads(values: Array, kind: FieldType, pattern: str) -> bool:
    if not pc.all(pc.match_substring_regex(values, pattern)).as_py():
        return False
    if kind is Primitive.DOUBLE:
        doubtful = values.filter(pc.match_substring_regex(values, _LONG_OR_TINY))
        if not all(isinstance(exact_number(str(text)), float) for text in doubtful.to_pylist()):
            return False
        if _any(values, _BEYOND_DECIMALS):
            return False
    parse = text_parser(kind)
    assert parse is not None, f"{kind} is not read from text"
    try:
        parse(values)
    except (pa.ArrowException, ValueError, OverflowError):
        return False
    return True


NULL = "__HIVE_DEFAULT_PARTITION__"
"""What Hive and Spark write for null."""


def named_folders(key: str) -> list[tuple[str, str]]:
    """Return the names and values of the folders of a path that are written ``name=value``, but for
    those that are row tags. Raises RefusedSourceError: one is not UTF-8.
    """
    key = without_tags(f"/{key}")
    pairs = (folder.partition("=") for folder in key.split("/")[:-1])
    try:
        return [(_decoded(name), _decoded(text)) for name, equals, text in pairs if name and equals]
    except UnicodeError as error:
        raise RefusedSourceError(
            "a folder of the file is not UTF-8", hint="rename it, or give its columns to the file"
        ) from error


def _decoded(text: str) -> str:
    return unquote_to_bytes(text).decode()


def folder_prefix(path: Path) -> str:
    """Return those of a folder's own names that are written ``name=value``, as a key has them."""
    return "".join(f"{part}/" for part in path.parts if part.find("=") > 0)


def path_values(key: str, schema: Schema) -> dict[str, Array]:
    """Return the value, as a column of one row, that each column of the table gets from a key.
    Raises RefusedSourceError: it is no value of the column's type, or not UTF-8, or folders
    contradict each other.
    """
    fields = {field.name: field for field in schema.fields}
    texts: dict[str, str] = {}
    for name, text in named_folders(key):
        if name in fields and texts.setdefault(name, text) != text:
            raise RefusedSourceError(f"two folders of the file give column {name!r} other values")
    return {name: _value(fields[name], text) for name, text in texts.items()}


def _value(field: Field, text: str) -> Array:
    parse = text_parser(field.type, field.unit)
    if parse is None:
        raise RefusedSourceError(
            f"the folder of column {field.name!r} gives it a value, and it is a "
            f"{show_type(field.type)}",
            hint="only columns of single values can be in the names of folders",
        )
    if text == NULL:
        if not field.nullable:
            raise RefusedSourceError(
                f"the folder of column {field.name!r} says null, and the column cannot be null"
            )
        return nulls(1, field.type)
    try:
        return parse(pa.array([text]))
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise RefusedSourceError(
            f"the folder of column {field.name!r} gives no {show_type(field.type)}",
            hint=describe_without_values(error, field.type),
        ) from error


def with_path_values(
    batches: Iterator[pa.RecordBatch], schema: Schema, values: Mapping[str, Array]
) -> Iterator[pa.RecordBatch]:
    """Yield batches with the values of the path. Raises RefusedSourceError: a row has another."""
    whole, before = arrow_schema(schema), 0
    for batch in batches:
        columns = list(batch.columns)
        for name, value in values.items():
            at = whole.get_field_index(name)
            _check_same(columns[at], value, before, name)
            columns[at] = pc.take(value, pa.array([0] * batch.num_rows, pa.int64()))
        yield pa.RecordBatch.from_arrays(columns, schema=whole)
        before += batch.num_rows


def _check_same(column: Array, value: Array, before: int, name: str) -> None:
    """Check that a column has no other value than that of a path; nulls are filled by it."""
    if column.null_count == len(column):
        return
    other: Any = column.is_valid() if value.null_count else pc.not_equal(column, value[0])
    refuse_rows(
        pc.indices_nonzero(other).to_pylist(),
        lambda row: RefusedSourceError(
            f"row {before + row + 1}, column {name!r}: the value is not that of the file's folder",
            hint=f"rename the folder, or drop the column {name!r} from the file",
        ),
    )


def infer_path_columns(local: Path, names: set[str]) -> Iterator[FoundColumn]:
    """Yield the columns that the names of a file's folders add to those that it has.

    Their types read the names of all folders beside them. Raises RefusedSourceError: a folder is
    not UTF-8.
    """
    for folder in reversed(local.parents):
        for name, _ in named_folders(f"{folder.name}/"):
            if name in names:
                continue
            names.add(name)
            beside = (path.name for path in folder.parent.iterdir() if path.is_dir())
            texts = [
                text for each in beside for own, text in named_folders(f"{each}/") if own == name
            ]
            column = TextColumn()
            column.see(pa.array([None if text == NULL else text for text in texts], pa.string()))
            inferred = column.found(name)
            yield replace(inferred, found=f"{inferred.found}, of folders")


# Infer the types of columns from the values of JSON objects.
#
# Values of one column must be alike: numbers, texts, truth values, arrays or objects. Texts that
# are all dates or all times are these. An array has one type of element, an object any of the names
# that some object there has.

_MOST_PENDING = 1024
_KINDS: dict[type, str] = {
    bool: "truth values",
    **dict.fromkeys((int, float, Decimal), "numbers"),
    str: "texts",
    list: "arrays",
    dict: "objects",
}
_DIGITS, _UNSIGNED_DIGITS = 38, 20
"""The digits of the widest decimal, and of unsigned numbers of 64 bits."""
_SPECIAL = TIMESTAMPS | {Primitive.DATE, Primitive.TIME, Primitive.UUID}
"""The types whose values are texts in JSON, and which a text in JSON may therefore be."""


class JsonColumns:
    """The columns of the objects seen so far, in the order in which their names came."""

    def __init__(self) -> None:
        self._shapes: defaultdict[str, _Shape] = defaultdict(_Shape)

    def see(self, line: int, values: Mapping[str, object]) -> None:
        """Add the values of one object, which is on `line`."""
        for name, value in values.items():
            self._shapes[name].see(value, line, 1)

    def found(self) -> Iterator[FoundColumn]:
        """Yield the columns with their types."""
        for name, shape in self._shapes.items():
            try:
                kind, problem = shape.type(), ""
            except InvalidRequestError as error:
                kind, problem = None, str(error)
            yield FoundColumn(name, shape.words, kind, problem=problem)


@dataclass(slots=True)
class _Shape:
    """What the values at one place of the objects are; `lines` has the first line of each kind."""

    lines: dict[str, int] = field(default_factory=dict)
    numbers: "_Numbers" = field(default_factory=lambda: _Numbers())
    texts: TextColumn = field(default_factory=TextColumn)
    pending: list[str] = field(default_factory=list)
    elements: "_Shape | None" = None
    members: "defaultdict[str, _Shape]" = field(default_factory=lambda: defaultdict(_Shape))

    def see(self, value: Any, line: int, depth: int) -> None:
        if value is None:
            return
        kind = _KINDS[type(value)] if depth <= MAX_TYPE_DEPTH else "values nested too deep"
        self.lines.setdefault(kind, line)
        match kind:
            case "numbers":
                self.numbers.see(value)
            case "texts":
                self.pending.append(value)
                if len(self.pending) >= _MOST_PENDING:
                    self._look()
            case "arrays":
                self.elements = self.elements or _Shape()
                for item in value:
                    self.elements.see(item, line, depth + 1)
            case "objects":
                for name, item in value.items():
                    self.members[name].see(item, line, depth + 1)

    @property
    def words(self) -> str:
        """What the values are, for people."""
        return " and ".join(self.lines) or "nothing"

    def type(self) -> FieldType:
        """Return the type of all values. Raises InvalidRequestError: they have none in common."""
        if not self.lines:
            raise InvalidRequestError("is null in every row")
        if len(self.lines) > 1:
            mixed = " and ".join(f"{kind} (line {line})" for kind, line in self.lines.items())
            raise InvalidRequestError(f"mixes {mixed}")
        (kind,) = self.lines
        match kind:
            case "truth values":
                return Primitive.BOOLEAN
            case "numbers":
                return self.numbers.type()
            case "texts":
                self._look()
                special = self.texts.found("").type
                return special if special in _SPECIAL else Primitive.STRING
            case "arrays":
                assert self.elements is not None
                return ListType(self.elements.part_type("has arrays, and what is in them"))
            case "objects" if self.members:
                whats = ((name, f"has objects whose {name!r}") for name in self.members)
                members = (Member(n, self.members[n].part_type(what), True) for n, what in whats)
                return StructType(tuple(members))
        raise InvalidRequestError(
            "has values that are nested too deep"
            if kind != "objects"
            else "has objects without names"
        )

    def part_type(self, what: str) -> FieldType:
        """Return `type`; `what` says in errors which values these are."""
        try:
            return self.type()
        except InvalidRequestError as error:
            raise InvalidRequestError(f"{what} {error}") from error

    def _look(self) -> None:
        self.texts.see(pa.array(self.pending, pa.string()))
        self.pending.clear()


@dataclass(slots=True)
class _Numbers:
    """What the numbers at one place are: how many digits they have before and after the point, and
    which types hold each of them.
    """

    is_long: bool = True
    is_whole: bool = True
    is_double: bool = True
    before: int = 0
    after: int = 0

    def see(self, value: float | Decimal) -> None:
        if isinstance(value, int):
            is_large = not -(10**_DIGITS) < value < 10**_DIGITS
            self.before = max(self.before, _DIGITS + 1 if is_large else len(str(abs(value))))
            self.is_long = self.is_long and INT64_MIN <= value <= INT64_MAX
            self.is_double = self.is_double and not is_large and int(float(value)) == value
            return
        self.is_long = self.is_whole = False
        self.is_double = self.is_double and isinstance(value, float)
        number = Decimal(repr(value)) if isinstance(value, float) else value
        exponent = number.as_tuple().exponent
        assert isinstance(exponent, int)  # it is finite
        self.before = max(self.before, number.adjusted() + 1)
        self.after = max(self.after, -exponent)

    def type(self) -> FieldType:
        """Return the first type that holds all numbers. Raises InvalidRequestError if none does."""
        if self.is_long:
            return Primitive.LONG
        if self.is_double and not self.is_whole:
            return Primitive.DOUBLE
        if self.before + self.after > _DIGITS:
            raise InvalidRequestError(
                f"has numbers that no double and no decimal of {_DIGITS} digits holds exactly"
            )
        is_unsigned = self.is_whole and self.before <= _UNSIGNED_DIGITS
        return DecimalType(_UNSIGNED_DIGITS if is_unsigned else _DIGITS, self.after)
