"""The properties of a table: declared, checked, found by name, and put together from settings.

A table's own value takes precedence, then the instance's, then the default. docs/properties.md is
generated from `Properties`: name, type, bounds, default, unit and meaning of each.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from dormouse.errors import InvalidRequestError, did_you_mean
from dormouse.keys import INT64_MAX
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import KEY_TYPES, Primitive, is_key_type, show_type

Natural = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Switch = Literal["off", "on"]
FIXED = object()
"""Marks a property that is set when a table is created, and never changes."""


class Properties(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The properties of one table. Units are part of the names. Defaults are those of GCHQ's
    Sleeper where it has the property.
    """

    compaction_strategy: Annotated[
        Literal["size_ratio", "batch"],
        "Which shards of a partition are merged: those of similar size (size_ratio), or every "
        "compaction_files of them (batch).",
    ] = "size_ratio"
    compaction_files: Annotated[
        int,
        Meta(ge=2),
        "The most shards that one compaction merges; with size_ratio, more if all are small.",
    ] = 12
    compaction_size_ratio: Annotated[
        Positive,
        "With size_ratio: shards are merged if the rows of the largest, times this number, are "
        "at most those of the others together.",
    ] = 3
    compaction_jobs_per_partition: Annotated[
        Positive, "The most compactions of a partition at a time."
    ] = 2**31 - 1
    compaction_jobs_limit: Annotated[
        Positive, "The most compactions of the table at a time; planning waits until some are done."
    ] = 10_000
    split_threshold_rows: Annotated[
        int, Meta(ge=2), "A leaf partition with this many rows is split."
    ] = 1_000_000_000
    gc_delay_seconds: Annotated[
        Natural,
        "How long a shard is kept after its last reference is gone, and so how long earlier "
        "versions can be read. Must be longer than the longest query.",
    ] = 15 * 60
    deletion_age_seconds: Annotated[
        Natural,
        "How old a deletion is when shards whose rows it may hide are rewritten; 0 leaves that "
        "to other compactions.",
    ] = 24 * 60 * 60
    orphan_age_seconds: Annotated[
        Natural,
        "At this age a shard that no commit ever referenced is deleted as the rest of a failed "
        "job. Must be longer than any job runs.",
    ] = 7 * 24 * 60 * 60
    job_retry_seconds: Annotated[
        Natural,
        "How long after its assignment an unfinished job is retried; the interval then doubles, "
        "up to 24 times this value.",
    ] = 60 * 60
    state_store: Annotated[
        Literal["s3", "dynamodb"],
        FIXED,
        "Where the state is stored: in objects of the data bucket (s3), or in DynamoDB items "
        "(dynamodb).",
    ] = "s3"
    shard_target_bytes: Annotated[
        Positive, "A writer starts a new shard when the current one has this size."
    ] = 512 * 1024 * 1024
    ingest_file_strategy: Annotated[
        Literal["auto", "one_file_per_leaf", "one_reference_per_leaf"],
        "What an ingest writes: a shard for each leaf partition, one shard that every leaf "
        "references, or (auto) the first if a leaf's rows take 8 MiB in memory on average, else "
        "the second.",
    ] = "auto"
    ingest_job_max_files: Annotated[Positive, "The most files of one ingest job."] = 100
    ingest_job_max_bytes: Annotated[
        Positive,
        "The most bytes of files of one ingest job; a larger file gets a job of its own. "
        "Functions unpack files to a disk of 10 GiB.",
    ] = 1024**3
    ingest_batch_min_files: Annotated[Positive, "Dropped files wait until there are this many."] = 1
    ingest_batch_min_bytes: Annotated[
        Natural, "Dropped files wait until they have this many bytes."
    ] = 1
    ingest_batch_max_age_seconds: Annotated[
        Natural, "The longest time that dropped files wait for others."
    ] = 5 * 60
    ingest_on_error: Annotated[
        Literal["refuse", "skip"],
        "What becomes of a CSV or JSON file with rows that cannot be read: it is refused, or "
        "ingested without them (skip); see ingest.md.",
    ] = "refuse"
    row_origin: Annotated[
        Literal["off", "on", "ids"],
        "Whether rows keep where they come from (_file, _row, _version, …), and with ids also "
        "their row ids; see origin.md.",
    ] = "off"
    csv_separator: Annotated[
        str,
        Meta(pattern=r"^(\\t|[\t !-/:-@\[-`{-~])\Z"),
        "The separator of fields: one ASCII character other than a letter or digit; \\t is a tab.",
    ] = ","
    csv_quote: Annotated[
        str,
        Meta(pattern=r"^[!-/:-@\[-`{-~]?\Z"),
        "The quote around fields that contain separators, quotes or line ends; inside a field it "
        "is doubled. Empty: nothing is quoted.",
    ] = '"'
    csv_header: Annotated[
        Literal["yes", "no"],
        "Whether the first record names the columns; if not, its fields are all columns of the "
        "schema, in order.",
    ] = "yes"
    csv_null: Annotated[
        str,
        Meta(pattern=r"^[^\r\n]{0,100}\Z"),
        "The unquoted text that means null, such as NULL; an empty field is then empty text. "
        "Empty: an empty field is null.",
    ] = ""
    csv_encoding: Annotated[
        Literal["utf-8", "utf-16", "latin-1", "windows-1252"], "The encoding of CSV files."
    ] = "utf-8"
    csv_dates: Annotated[
        Literal["ymd", "dmy", "mdy"],
        "The order of year, month and day: dmy reads 31/01/2026, 31.1.2026 and 31-01-2026. ISO "
        "8601 is read with each.",
    ] = "ymd"
    change_data: Annotated[
        str,
        Meta(pattern=r"^(debezium|dms)?\Z"),
        "What each line of a JSON file is: a row, or a message of Debezium (debezium) or AWS DMS "
        "(dms); see change-data.md.",
    ] = ""
    bulk_import_min_leaf_partitions: Annotated[
        Positive,
        "A bulk import first splits leaf partitions until there are this many, if it has enough "
        "rows.",
    ] = 256
    ingest_spark_bytes: Annotated[
        Natural,
        "An ingest of at least this many bytes of dropped files is done by Spark, as a bulk "
        "import; 0 means never.",
    ] = 1024**3
    compaction_spark_bytes: Annotated[
        Natural,
        "A compaction that reads at least this many bytes of shards is done by Spark or, without "
        "it, in steps of this size; 0 means neither.",
    ] = 4 * 1024**3
    export_spark_bytes: Annotated[
        Natural,
        "An export that reads at least this many bytes of shards is done by Spark; 0 means never.",
    ] = 4 * 1024**3
    query_cut_bytes: Annotated[
        Natural,
        "A query over messages that may read more bytes of shards than this is cut into "
        "sub-queries.",
    ] = 512 * 1024**2
    query_task_bytes: Annotated[
        Positive,
        "About how many bytes of shards one sub-query reads; a leaf partition is never divided.",
    ] = 256 * 1024**2
    query_limit_seconds: Annotated[Positive, "A query over messages fails after this time."] = (
        60 * 60
    )
    query_limit_rows: Annotated[Positive, "A query over messages fails if it has more rows."] = (
        1_000_000_000
    )
    query_limit_result_bytes: Annotated[
        Positive, "A query over messages fails if its result has more bytes."
    ] = 64 * 1024**3
    query_limit_read_bytes: Annotated[
        Positive, "A query over messages fails if it reads more bytes of shards."
    ] = 256 * 1024**3
    spark_attempts: Annotated[
        Positive, "How often Spark attempts a job before it becomes a dead letter."
    ] = 3
    spark_executors: Annotated[Positive, "The most executors of a Spark job."] = 50
    spark_executor_input_bytes: Annotated[
        Positive, "A Spark job gets one executor for each this many bytes of input."
    ] = 4 * 1024**3
    spark_executor_cores: Annotated[
        Positive, "The cores of an executor: EMR Serverless has 1, 2, 4, 8 and 16."
    ] = 4
    spark_executor_memory_bytes: Annotated[
        int,
        Meta(ge=2 * 1024**3),
        "The memory of an executor, half of it for Python; EMR Serverless has 2 to 7.5 GiB for "
        "each core.",
    ] = 16 * 1024**3
    filters: Annotated[str, "Which rows are kept; see filters-and-aggregations.md."] = ""
    aggregations: Annotated[
        str, "How rows with equal keys are combined; see filters-and-aggregations.md."
    ] = ""
    keep: Annotated[
        Literal["all", "latest"],
        FIXED,
        "Which rows of a row key are kept: all, or the latest; see changing-rows.md.",
    ] = "all"
    latest_by: Annotated[
        str,
        FIXED,
        "With keep=latest: the column whose greatest value is the latest row. Without it, and of "
        "equal values, the row that came last is.",
    ] = ""
    tombstone_age_seconds: Annotated[
        Natural,
        "With latest_by: how long a deleted row is remembered, so that older rows which come "
        "later do not bring it back.",
    ] = 365 * 24 * 60 * 60
    bloom_columns: Annotated[
        str,
        "Columns with Bloom filters, separated by commas: a query for `column = value` reads few "
        "row groups. Each takes one to three bytes a row.",
    ] = ""
    term_index: Annotated[
        str,
        "Columns of text with a term index, separated by commas, as `message` or, with IPv4 "
        "addresses, `message:log`: has(), LIKE, ILIKE and contains() read few blocks. It takes "
        "about a fifth of a shard; see term-index.md.",
    ] = ""
    shredded_paths: Annotated[
        str,
        "Paths in dynamic columns that shards have columns of, such as `payload.user.id:long, "
        "payload.kind:string`: conditions on them read little else. `auto` takes the commonest, "
        "`off` none.",
    ] = "auto"
    storage_class: Annotated[
        Literal["STANDARD", "STANDARD_IA", "INTELLIGENT_TIERING", "ONEZONE_IA", "GLACIER_IR"],
        "The storage class of S3 that shards of at least 128 KiB move to after "
        "storage_class_days; see storage-classes.md.",
    ] = "STANDARD"
    storage_class_days: Annotated[
        Natural,
        "After how many days without being replaced a shard moves to the storage_class; at least "
        "30 for STANDARD_IA and ONEZONE_IA.",
    ] = 30
    index_objects: Annotated[
        Switch,
        "Whether the index, footer and Bloom filters of each shard are an object of their own "
        "too, which stays in STANDARD; see storage-classes.md.",
    ] = "off"
    encrypted_columns: Annotated[
        str,
        FIXED,
        "Columns whose values are encrypted before they are stored, as `ssn, name:KEY`, where "
        "KEY names a key; `*` are all columns that are no keys; see encryption.md.",
    ] = ""
    subject_column: Annotated[
        str,
        FIXED,
        "With encrypted_columns: the column that says whose the values of a row are. Each "
        "subject has a key, and once that is forgotten, they are null; see encryption.md. Set "
        "when the table is created, never after.",
    ] = ""
    data_key: Annotated[
        int,
        Meta(ge=1, le=2**31 - 1),
        "With encrypted_columns: the number of the data keys for values that are written from "
        "then on. A greater one makes new data keys, and compactions encrypt with them again.",
    ] = 1
    iceberg: Annotated[
        Switch, "Whether the table is published for readers of Iceberg; see iceberg.md."
    ] = "off"
    iceberg_format: Annotated[
        Literal["2", "3"], "The version of Iceberg's format. All engines read 2; 3 has nanoseconds."
    ] = "2"
    iceberg_parts: Annotated[
        Literal["no", "yes"],
        "Whether readers of Iceberg may see stored rows, before filters and aggregations.",
    ] = "no"
    iceberg_glue: Annotated[
        Switch, "Whether a published table has an entry in Glue too, on AWS."
    ] = "off"
    max_fields: Annotated[
        Positive,
        "The most columns, members of structs and sides of maps of the schema, up to 10,000.",
    ] = 1_000

    def __post_init__(self) -> None:
        """Refuse values that a property cannot have, however the properties were made."""
        for name, declared in KNOWN.items():
            if (value := getattr(self, name)) is not declared.default:
                declared.check(value)


@dataclass(frozen=True, slots=True)
class KnownProperty:
    """One property as the documentation and errors describe it. `choices` lists all values of a
    property that has only a few.
    """

    name: str
    default: int | str
    least: int | None
    most: int
    choices: tuple[str, ...]
    description: str
    is_fixed: bool
    pattern: str = ""

    def check(self, value: object) -> int | str:
        """Return `value` if the property can have it. Raises InvalidRequestError."""
        if isinstance(self.default, int):
            if not isinstance(value, int) or isinstance(value, bool):
                raise InvalidRequestError(f"{self.name} must be a whole number, not {value!r}")
            if self.least is not None and value < self.least:
                raise InvalidRequestError(f"{self.name} must be at least {self.least}, not {value}")
            if value > self.most:
                raise InvalidRequestError(f"{self.name} must be at most {self.most}, not {value}")
            return value
        if not isinstance(value, str):
            raise InvalidRequestError(f"{self.name} must be text, not {value!r}")
        if not re.search(self.pattern, value):
            raise InvalidRequestError(f"{self.name} cannot be {value!r}", hint=self.description)
        if self.choices and value not in self.choices:
            either = f"it is {', '.join(self.choices[:-1])} or {self.choices[-1]}"
            raise InvalidRequestError(
                f"{self.name} cannot be {value!r}", hint=did_you_mean(value, self.choices, either)
            )
        return value


def _known() -> dict[str, KnownProperty]:
    hints = get_type_hints(Properties, include_extras=True)
    by_name = {}
    for field in msgspec.structs.fields(Properties):
        kind, *notes = get_args(hints[field.name])
        metas: list[Any] = [note for note in notes if isinstance(note, Meta)]
        by_name[field.name] = KnownProperty(
            name=field.name,
            default=field.default,
            least=next((each.ge for each in metas if each.ge is not None), None),
            most=next((each.le for each in metas if each.le is not None), INT64_MAX),
            choices=get_args(kind) if get_origin(kind) is Literal else (),
            description=notes[-1],
            is_fixed=FIXED in notes,
            pattern=next((each.pattern for each in metas if each.pattern), ""),
        )
    return by_name


KNOWN: Mapping[str, KnownProperty] = _known()
"""All properties by name, in the order of their declarations."""


def property_named(name: str) -> KnownProperty:
    """Return the property of that name. Raises InvalidRequestError with the nearest one."""
    if name not in KNOWN:
        raise InvalidRequestError(
            f"there is no property {name!r}",
            hint=did_you_mean(name, KNOWN, "`dormouse instance show` lists them"),
        )
    return KNOWN[name]


def parse_settings(body: object) -> dict[str, int | str]:
    """Return the values set in parsed JSON, each checked against its property.
    Raises InvalidRequestError: an unknown name or a bad value; the message says which.
    """
    if not isinstance(body, Mapping):
        raise InvalidRequestError("properties must be a JSON object of names and values")
    return {name: property_named(str(name)).check(value) for name, value in body.items()}


def properties_of(*settings: Mapping[str, int | str]) -> Properties:
    """Return the properties with these settings, of which later ones win, and defaults."""
    values: dict[str, int | str] = {}
    for each in settings:
        values.update(each)
    return _made(tuple(values.items()), tuple(map(type, values.values())))


@lru_cache(maxsize=256)
def _made(settings: tuple[tuple[str, Any], ...], _: tuple[type, ...]) -> Properties:
    """Return the properties with some settings, which are checked once: each query asks for them.

    The types are there because 1 and True are equal, but only one of them is a number of files.
    """
    return Properties(**dict(settings))


def parse_properties(body: object) -> Properties:
    """Build properties from parsed JSON, with defaults for what it does not set.
    Raises InvalidRequestError: an unknown name or a bad value; the message says which.
    """
    return properties_of(parse_settings(body))


def column_named(name: str, fields: Sequence[Field], property_name: str) -> Field:
    """Return the field that a property names. Raises InvalidRequestError: there is none."""
    by_name = {field.name: field for field in fields}
    if name in by_name:
        return by_name[name]
    raise InvalidRequestError(
        f"{property_name}: the table has no column {name!r}",
        hint=did_you_mean(name, by_name, "its columns are " + ", ".join(by_name)),
    )


def bloom_columns(schema: Schema, properties: Properties) -> tuple[str, ...]:
    """Parse and check the property `bloom_columns`; return the names, each once.
    Raises InvalidRequestError: a column is unknown, or its type can have no filter.
    """
    texts = [name.strip() for name in properties.bloom_columns.split(",")]
    distinct = tuple(dict.fromkeys(name for name in texts if name))
    for name in distinct:
        field = column_named(name, schema.fields, "bloom_columns")
        if not is_key_type(field.type):
            raise InvalidRequestError(
                f"bloom_columns: {name} is {show_type(field.type)}, which can have no Bloom filter",
                hint="these types can: decimal, " + ", ".join(sorted(map(show_type, KEY_TYPES))),
            )
    return distinct


def check_change_data(schema: Schema, properties: Properties) -> None:
    """Check that a table can read change data, if its property says that files are that.
    Raises InvalidRequestError: rows may be skipped, or the table cannot have changes.
    """
    if not properties.change_data:
        return
    if properties.ingest_on_error == "skip":
        raise InvalidRequestError(
            "change_data: no change may be left out, and ingest_on_error is skip",
            hint="set ingest_on_error=refuse",
        )
    if properties.keep != "latest" or schema.sort_keys:
        raise InvalidRequestError(
            "change_data is for tables with keep=latest, whose keys are all row keys",
            hint="create a table for it; messages that delete say the row keys",
        )
    by = properties.latest_by
    if by and schema.field_named(by).type is not Primitive.STRING:
        raise InvalidRequestError(
            f"change_data: the column {by!r} is for positions, and is not of type string",
            hint="name another one in latest_by, or none: then the order of commits counts",
        )


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """What RFC 4180 leaves open. If `quote` is empty, nothing is quoted. A null is never quoted."""

    separator: str = ","
    quote: str = '"'
    has_header: bool = True
    null: str = ""
    encoding: str = "utf-8"
    dates: str = "ymd"

    def of_ending(self, ending: str) -> "CsvDialect":
        """Return the dialect of files that end so: fields of ``.tsv`` are separated by tabs."""
        return replace(self, separator="\t") if ending == ".tsv" else self

    def __post_init__(self) -> None:
        """Refuse characters that would have two meanings."""
        if self.separator == self.quote:
            raise InvalidRequestError("csv_separator and csv_quote are the same character")
        if {self.separator, self.quote} & set(self.null):
            raise InvalidRequestError(
                "csv_null holds the separator or the quote",
                hint="it is compared with a whole field that is not quoted, such as NULL or \\N",
            )


def csv_dialect(properties: Properties) -> CsvDialect:
    """Return the CSV dialect of a table. Raises InvalidRequestError: its properties clash."""
    return CsvDialect(
        separator=properties.csv_separator.replace("\\t", "\t"),
        quote=properties.csv_quote,
        has_header=properties.csv_header == "yes",
        null=properties.csv_null,
        encoding=properties.csv_encoding,
        dates=properties.csv_dates,
    )


class SparkOptions(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    repr_omit_defaults=True,
):
    """Options of a job that Spark does, whatever its size. Each field overrides the property of the
    same name for this job; null keeps the table's value. A number of `spark_executors` is used as
    it is, whatever the job reads.
    """

    spark_executors: int | None = None
    spark_executor_cores: int | None = None
    spark_executor_memory_bytes: int | None = None

    def __post_init__(self) -> None:
        """Refuse values that the properties cannot have, however the options were made."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None:
                property_named(name).check(value)
