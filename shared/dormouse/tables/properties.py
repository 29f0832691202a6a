"""The properties of a table: declared, checked, found by name, and put together from settings.

A table's own value takes precedence, then the instance's, then the default. docs/properties.md is
generated from `Properties`: name, type, bounds, default, unit and meaning of each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from dormouse.errors import InvalidRequestError, did_you_mean
from dormouse.keys import INT64_MAX
from dormouse.schema.schema import Schema
from dormouse.schema.types import KEY_TYPES, Primitive, is_key_type, show_type
from dormouse.stored.decoding import convert_plain


class Properties(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The properties of one table. Units are part of the names. Defaults are those of GCHQ's
    Sleeper where it has the property.
    """

    compaction_strategy: Annotated[
        Literal["size_ratio", "batch"],
        Meta(
            description="Which shards of a partition are merged: those whose largest is small "
            "against the rest together (size_ratio), or every compaction_files of them (batch)."
        ),
    ] = "size_ratio"
    compaction_files: Annotated[
        int, Meta(ge=2, description="The most shards one compaction merges.")
    ] = 12
    compaction_size_ratio: Annotated[
        int,
        Meta(
            ge=1,
            description="With size_ratio: shards are merged if the rows of the largest, times "
            "this number, are at most those of the others together.",
        ),
    ] = 3
    compaction_jobs_per_partition: Annotated[
        int, Meta(ge=1, description="The most compactions of one partition at a time.")
    ] = 2**31 - 1
    compaction_jobs_limit: Annotated[
        int,
        Meta(
            ge=1,
            description="The most compactions of the table at a time. When this many are assigned, "
            "planning waits until some are done.",
        ),
    ] = 10_000
    split_threshold_rows: Annotated[
        int, Meta(ge=2, description="A leaf partition with this many rows is split.")
    ] = 1_000_000_000
    gc_delay_seconds: Annotated[
        int,
        Meta(
            ge=0,
            description="How long a shard is kept after its last reference is gone. Must be longer "
            "than the longest query. Older versions can be read for this long.",
        ),
    ] = 15 * 60
    deletion_age_seconds: Annotated[
        int,
        Meta(
            ge=0,
            description="Age after which shards are rewritten of which a deletion may hide rows. "
            "0 leaves that to other compactions.",
        ),
    ] = 24 * 60 * 60
    orphan_age_seconds: Annotated[
        int,
        Meta(
            ge=0,
            description="Age after which a shard that no commit ever referenced is deleted as the "
            "rest of a failed job. Must be longer than any job runs.",
        ),
    ] = 7 * 24 * 60 * 60
    job_retry_seconds: Annotated[
        int,
        Meta(
            ge=0,
            description="How long after its assignment an unfinished job is retried; the interval "
            "then doubles (backoff), up to 24 times this value.",
        ),
    ] = 60 * 60
    state_store: Annotated[
        Literal["s3", "dynamodb"],
        Meta(
            description="Where the state is stored: in objects of the data bucket (s3), or in "
            "DynamoDB items (dynamodb). Set when the table is created, never after.",
            extra={"fixed": True},
        ),
    ] = "s3"
    shard_target_bytes: Annotated[
        int,
        Meta(
            ge=1,
            description="A writer starts a new shard when the current one has reached this size.",
        ),
    ] = 512 * 1024 * 1024
    ingest_file_strategy: Annotated[
        Literal["auto", "one_file_per_leaf", "one_reference_per_leaf"],
        Meta(
            description="What an ingest writes: a shard for each leaf partition, one shard to "
            "which every leaf has a reference, or what suits the size of the pieces."
        ),
    ] = "auto"
    ingest_job_max_files: Annotated[
        int, Meta(ge=1, description="The most files that one ingest job reads.")
    ] = 100
    ingest_job_max_bytes: Annotated[
        int,
        Meta(
            ge=1,
            description="The most bytes of files that one ingest job reads; a larger file gets a "
            "job of its own. Files are unpacked to a function's disk of 10 GiB.",
        ),
    ] = 1024**3
    ingest_batch_min_files: Annotated[
        int,
        Meta(ge=1, description="Dropped files wait until there are this many, then are ingested."),
    ] = 1
    ingest_batch_min_bytes: Annotated[
        int,
        Meta(
            ge=0,
            description="Dropped files wait until they have this many bytes, then are ingested.",
        ),
    ] = 1
    ingest_batch_max_age_seconds: Annotated[
        int,
        Meta(
            ge=0,
            description="The longest time that dropped files wait for more files; then they are "
            "ingested, however few there are.",
        ),
    ] = 5 * 60
    ingest_on_error: Annotated[
        Literal["refuse", "skip"],
        Meta(
            description="What becomes of a CSV or JSON file with rows that cannot be read: it is "
            "refused, or they are left out (skip) and written to a file; see ingest.md."
        ),
    ] = "refuse"
    row_origin: Annotated[
        Literal["off", "on"],
        Meta(
            description="Whether shards keep where each row comes from (_file, _etag, _row, "
            "_version, _ingested_at), for rows that are ingested from then on; see origin.md."
        ),
    ] = "off"
    csv_separator: Annotated[
        str,
        Meta(
            pattern=r"^(\\t|[\t !-/:-@\[-`{-~])\Z",
            description="The separator of fields in a CSV file: one ASCII character other than a "
            "letter or digit; \\t is a tab.",
        ),
    ] = ","
    csv_quote: Annotated[
        str,
        Meta(
            pattern=r"^[!-/:-@\[-`{-~]?\Z",
            description="The quote around fields of a CSV file that contain separators, quotes or "
            "line ends; inside a field it is doubled. Empty: nothing is quoted.",
        ),
    ] = '"'
    csv_header: Annotated[
        Literal["yes", "no"],
        Meta(
            description="Whether the first record of a CSV file names the columns; if not, its "
            "fields are all columns of the schema, in order."
        ),
    ] = "yes"
    csv_null: Annotated[
        str,
        Meta(
            pattern=r"^[^\r\n]{0,100}\Z",
            description="The unquoted text that means null in CSV. Empty: an empty field is null.",
        ),
    ] = ""
    csv_encoding: Annotated[
        Literal["utf-8", "utf-16", "latin-1", "windows-1252"],
        Meta(description="The encoding of CSV files."),
    ] = "utf-8"
    csv_dates: Annotated[
        Literal["ymd", "dmy", "mdy"],
        Meta(
            description="The order of year, month and day in CSV files: dmy reads 31/01/2026, "
            "31.1.2026 and 31-01-2026, also before a time. What is written as ISO 8601 is read "
            "with each."
        ),
    ] = "ymd"
    change_data: Annotated[
        str,
        Meta(
            pattern=r"^(debezium|dms)?\Z",
            description="What each line of a JSON file is: a row, or a message of Debezium "
            "(debezium) or AWS DMS (dms); see change-data.md.",
        ),
    ] = ""
    bulk_import_min_leaf_partitions: Annotated[
        int,
        Meta(
            ge=1,
            description="A bulk import first splits leaf partitions until there are this many, if "
            "it has enough rows.",
        ),
    ] = 256
    ingest_spark_bytes: Annotated[
        int,
        Meta(
            ge=0,
            description="An ingest of at least this many bytes of dropped files is done by Spark, "
            "as a bulk import; 0 means never. ingest_job_max_bytes and _files limit how large an "
            "ingest becomes.",
        ),
    ] = 1024**3
    compaction_spark_bytes: Annotated[
        int,
        Meta(
            ge=0,
            description="A compaction that reads at least this many bytes of shards is done by "
            "Spark or, without Spark, cut by key into steps of this size; 0 means neither.",
        ),
    ] = 4 * 1024**3
    export_spark_bytes: Annotated[
        int,
        Meta(
            ge=0,
            description="An export that reads at least this many bytes of shards is done by Spark; "
            "0 means never.",
        ),
    ] = 4 * 1024**3
    query_cut_bytes: Annotated[
        int,
        Meta(
            ge=0,
            description="A query over messages that may read more bytes of shards than this is cut "
            "into sub-queries, each of some leaf partitions.",
        ),
    ] = 512 * 1024**2
    query_task_bytes: Annotated[
        int,
        Meta(
            ge=1,
            description="About how many bytes of shards one sub-query reads; a leaf partition is "
            "never divided.",
        ),
    ] = 256 * 1024**2
    query_limit_seconds: Annotated[
        int, Meta(ge=1, description="After how long a query over messages fails.")
    ] = 60 * 60
    query_limit_rows: Annotated[
        int, Meta(ge=1, description="A query over messages with more rows than this fails.")
    ] = 1_000_000_000
    query_limit_result_bytes: Annotated[
        int,
        Meta(ge=1, description="A query over messages fails if its result has more bytes."),
    ] = 64 * 1024**3
    query_limit_read_bytes: Annotated[
        int,
        Meta(ge=1, description="A query over messages fails if it reads more bytes of shards."),
    ] = 256 * 1024**3
    spark_attempts: Annotated[
        int,
        Meta(
            ge=1,
            description="How many attempts Spark makes at a job before it becomes a dead letter.",
        ),
    ] = 3
    spark_executors: Annotated[
        int, Meta(ge=1, description="The most executors of a Spark job.")
    ] = 50
    spark_executor_input_bytes: Annotated[
        int,
        Meta(ge=1, description="A Spark job gets one executor for each this many bytes of input."),
    ] = 4 * 1024**3
    spark_executor_cores: Annotated[
        int,
        Meta(ge=1, description="The cores of an executor: EMR Serverless has 1, 2, 4, 8 and 16."),
    ] = 4
    spark_executor_memory_bytes: Annotated[
        int,
        Meta(
            ge=2 * 1024**3,
            description="The memory of an executor, half of it for Python; EMR Serverless has "
            "2 to 7.5 GiB for each core.",
        ),
    ] = 16 * 1024**3
    filters: Annotated[
        str, Meta(description="Which rows are kept; see filters-and-aggregations.md.")
    ] = ""
    aggregations: Annotated[
        str,
        Meta(description="How rows with equal keys are combined; see filters-and-aggregations.md."),
    ] = ""
    keep: Annotated[
        Literal["all", "latest"],
        Meta(
            description="Which rows of one row key a table keeps: all, or the latest; see "
            "changing-rows.md. Set when the table is created, never after.",
            extra={"fixed": True},
        ),
    ] = "all"
    latest_by: Annotated[
        str,
        Meta(
            description="With keep=latest: the column whose greatest value is the latest row, and "
            "of equal ones the one that came last. Without it, the row that came last is. Set when "
            "the table is created, never after.",
            extra={"fixed": True},
        ),
    ] = ""
    tombstone_age_seconds: Annotated[
        int,
        Meta(
            ge=0,
            description="With latest_by: how long it is remembered that a row was deleted, so that "
            "older rows which come later do not bring it back.",
        ),
    ] = 365 * 24 * 60 * 60
    bloom_columns: Annotated[
        str,
        Meta(
            description="Columns with Bloom filters, separated by commas: a query for `column = "
            "value` reads few row groups. Each takes one to three bytes a row. Shards written from "
            "then on have them."
        ),
    ] = ""
    term_index: Annotated[
        str,
        Meta(
            description="Columns of text with a term index, separated by commas, such as `message` "
            "or `message:log`: conditions with has(), LIKE, ILIKE or contains() read few blocks. "
            "`:log` lists IPv4 addresses, too. It takes about a fifth of a shard. Shards written "
            "from then on have it; see term-index.md."
        ),
    ] = ""
    shredded_paths: Annotated[
        str,
        Meta(
            description="Paths in dynamic columns that shards have columns of, such as "
            "`payload.user.id:long, payload.kind:string`: conditions on them read these alone, and "
            "few row groups. `auto` takes the commonest, `off` none. Shards written from then on "
            "have them."
        ),
    ] = "auto"
    storage_class: Annotated[
        Literal["STANDARD", "STANDARD_IA", "INTELLIGENT_TIERING", "ONEZONE_IA", "GLACIER_IR"],
        Meta(
            description="The storage class of S3 that shards move to once they are "
            "storage_class_days old; those of less than 128 KiB stay. See storage-classes.md."
        ),
    ] = "STANDARD"
    storage_class_days: Annotated[
        int,
        Meta(
            ge=0,
            description="After how many days without being replaced a shard moves to the "
            "storage_class; of STANDARD_IA and ONEZONE_IA at least 30.",
        ),
    ] = 30
    index_objects: Annotated[
        Literal["off", "on"],
        Meta(
            description="Whether the index, footer and Bloom filters of each shard are an object "
            "of their own too, which stays in STANDARD: look-ups read it in place of the end of "
            "the shard. Shards written from then on have it; see storage-classes.md."
        ),
    ] = "off"
    encrypted_columns: Annotated[
        str,
        Meta(
            description="Columns whose values are encrypted before they are stored, as `ssn, "
            "name:KEY`, where KEY names a key; `*` are all that are no keys; see encryption.md. "
            "Set when the table is created, never after.",
            extra={"fixed": True},
        ),
    ] = ""
    data_key: Annotated[
        int,
        Meta(
            ge=1,
            description="With encrypted_columns: the number of the data keys that values are "
            "encrypted by from then on. A greater one makes new data keys, with which compactions "
            "encrypt what they merge.",
        ),
    ] = 1
    iceberg: Annotated[
        Literal["off", "on"],
        Meta(
            description="Whether readers of Iceberg find the table; see iceberg.md. They can use a "
            "version for gc_delay_seconds after it was replaced: set a day if they are slow."
        ),
    ] = "off"
    iceberg_format: Annotated[
        Literal["2", "3"],
        Meta(description="The version of Iceberg's format. All read 2; 3 has nanoseconds."),
    ] = "2"
    iceberg_parts: Annotated[
        Literal["no", "yes"],
        Meta(description="Whether they may read stored rows, before filters and aggregations."),
    ] = "no"
    iceberg_glue: Annotated[
        Literal["off", "on"],
        Meta(description="Whether the published table has an entry in Glue too, on AWS."),
    ] = "off"
    max_fields: Annotated[int, Meta(ge=1, description="The most columns of the schema.")] = 1_000

    def __post_init__(self) -> None:
        """Refuse values that a property cannot have, however the properties were made."""
        for name, known in KNOWN.items():
            if (value := getattr(self, name)) is not known.default:
                known.check(value)


@dataclass(frozen=True, slots=True)
class KnownProperty:
    """One property as the documentation and errors describe it. `choices` lists all values of a
    property that has only a few.
    """

    name: str
    default: int | str
    least: int | None
    choices: tuple[str, ...]
    description: str
    is_fixed: bool
    pattern: str = ""

    @property
    def unit(self) -> str:
        """The unit of a number, which is the last word of the property's name; empty if it has
        none.
        """
        end = self.name.rpartition("_")[2]
        return end if end in ("seconds", "days", "bytes", "rows", "files", "fields") else ""

    def check(self, value: object) -> int | str:
        """Return `value` if the property can have it.

        Raises:
            InvalidRequestError: it cannot; the message says what is allowed.
        """
        if isinstance(self.default, int):
            if not isinstance(value, int) or isinstance(value, bool):
                raise InvalidRequestError(f"{self.name} must be a whole number, not {value!r}")
            if self.least is not None and value < self.least:
                raise InvalidRequestError(f"{self.name} must be at least {self.least}, not {value}")
            if value > INT64_MAX:
                raise InvalidRequestError(f"{self.name} must be a number of 64 bits")
            return value
        if not isinstance(value, str):
            raise InvalidRequestError(f"{self.name} must be text, not {value!r}")
        if not re.search(self.pattern, value):
            raise InvalidRequestError(f"{self.name} cannot be {value!r}", hint=self.description)
        if self.choices and value not in self.choices:
            raise InvalidRequestError(
                f"{self.name} cannot be {value!r}",
                hint=did_you_mean(value, self.choices, "it is " + _either(self.choices)),
            )
        return value


def _either(choices: tuple[str, ...]) -> str:
    return f"{', '.join(choices[:-1])} or {choices[-1]}"


def _known() -> dict[str, KnownProperty]:
    hints = get_type_hints(Properties, include_extras=True)
    known = {}
    for field in msgspec.structs.fields(Properties):
        kind, meta = get_args(hints[field.name])
        known[field.name] = KnownProperty(
            name=field.name,
            default=field.default,
            least=meta.ge,
            choices=get_args(kind) if get_origin(kind) is Literal else (),
            description=meta.description,
            is_fixed=bool((meta.extra or {}).get("fixed")),
            pattern=meta.pattern or "",
        )
    return known


KNOWN: Mapping[str, KnownProperty] = _known()
"""All properties by name, in the order of their declarations."""


def property_named(name: str) -> KnownProperty:
    """Return the property of that name.

    Raises:
        InvalidRequestError: there is none; the hint names the nearest.
    """
    if name not in KNOWN:
        raise InvalidRequestError(
            f"there is no property {name!r}",
            hint=did_you_mean(name, KNOWN, "`dormouse instance show` lists them"),
        )
    return KNOWN[name]


def parse_settings(body: object) -> dict[str, int | str]:
    """Return the values set in parsed JSON, each checked against its property.

    Raises:
        InvalidRequestError: an unknown name or a bad value; the message says which.
    """
    if not isinstance(body, Mapping):
        raise InvalidRequestError("properties must be a JSON object of names and values")
    return {name: property_named(str(name)).check(value) for name, value in body.items()}


def properties_of(*settings: Mapping[str, int | str]) -> Properties:
    """Return the properties with these settings. Later settings override earlier ones; the rest are
    defaults.
    """
    values: dict[str, int | str] = {}
    for each in settings:
        values.update(each)
    return _made(tuple(values.items()), tuple(map(type, values.values())))


@lru_cache(maxsize=256)
def _made(settings: tuple[tuple[str, int | str], ...], _: tuple[type, ...]) -> Properties:
    """Return the properties with some settings, which are checked once: each query asks for them.

    The types are there because 1 and True are equal, but only one of them is a number of files.
    """
    return convert_plain(dict(settings), Properties)


def parse_properties(body: object) -> Properties:
    """Build properties from parsed JSON, with defaults for what it does not set.

    Raises:
        InvalidRequestError: an unknown name or a bad value; the message says which.
    """
    return properties_of(parse_settings(body))


# The columns of a table whose shards have Bloom filters, as the property `bloom_columns` says.


def bloom_columns(schema: Schema, properties: Properties) -> tuple[str, ...]:
    """Parse and check the property `bloom_columns`; return the names, each once.

    Raises:
        InvalidRequestError: a column is unknown, or its type can have no filter.
    """
    texts = [name.strip() for name in properties.bloom_columns.split(",")]
    distinct = tuple(dict.fromkeys(name for name in texts if name))
    names = [field.name for field in schema.fields]
    for name in distinct:
        field = next((field for field in schema.fields if field.name == name), None)
        if field is None:
            raise InvalidRequestError(
                f"bloom_columns: the table has no column {name!r}",
                hint=did_you_mean(name, names, "its columns are " + ", ".join(names)),
            )
        if not is_key_type(field.type):
            raise InvalidRequestError(
                f"bloom_columns: {name} is {show_type(field.type)}, which can have no Bloom filter",
                hint="these types can: decimal, " + ", ".join(sorted(map(show_type, KEY_TYPES))),
            )
    return distinct


# Change data, as the property `change_data` says.


def check_change_data(schema: Schema, properties: Properties) -> None:
    """Check that a table can read change data, if its property says that files are that.

    Raises:
        InvalidRequestError: rows may be skipped, or the table cannot have changes.
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


# The CSV dialect of a table's files: separator, quote, header, and the text of a null.


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """What RFC 4180 leaves open. If `quote` is empty, nothing is quoted. A null is never quoted."""

    separator: str = ","
    quote: str = '"'
    has_header: bool = True
    null: str = ""
    encoding: str = "utf-8"
    dates: str = "ymd"

    def of_ending(self, ending: str) -> CsvDialect:
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
    """Return the dialect that the properties of a table describe.

    Raises:
        InvalidRequestError: the properties contradict each other.
    """
    return CsvDialect(
        separator=properties.csv_separator.replace("\\t", "\t"),
        quote=properties.csv_quote,
        has_header=properties.csv_header == "yes",
        null=properties.csv_null,
        encoding=properties.csv_encoding,
        dates=properties.csv_dates,
    )


# What a request asks of Spark for one job, in place of the properties of its table.


class SparkOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
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
