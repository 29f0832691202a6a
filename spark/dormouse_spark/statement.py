"""Compute a statement in Spark's dialect: one query over views of tables, as who asked sees them.

A view is one version of a table, with the columns that its reader may see, after the table's
filters and aggregations. Nothing else can be reached: the text has to be a query by Spark's own
grammar, and its analysed plan has to consist of these views and of the operators in `OPERATORS`.

The statement is planned twice: its optimised plan says which columns of each view it uses, and its
second plan reads these alone. What is in the place of others is looked at by nothing.

Each task of the last step writes files of its own, so attempts side by side do not disturb each
other. The driver returns those of the attempts that Spark counts, in the order of the rows.
"""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import AnalysisException, PySparkException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType, VariantType, _has_type

from dormouse.arrow.sealing import ColumnKeys
from dormouse.arrow.types import arrow_schema, conform
from dormouse.encryption import FILES
from dormouse.errors import InvalidRequestError, NotFoundError, UnavailableError, error_named
from dormouse.features.answer_query import FileSink
from dormouse.features.long_jobs import ReadTable
from dormouse.features.queries import (
    EndedError,
    Query,
    Spent,
    TaskEnd,
    check_spent,
    check_time,
    load_end,
)
from dormouse.features.query_plans import quoted
from dormouse.features.requests import ResultFile
from dormouse.features.versions import read_version
from dormouse.files.results import ResultFormat, RowFile
from dormouse.messages.stages import QueryLimits
from dormouse.ports import Services
from dormouse.query.selection import bytes_to_read, selected_ranges
from dormouse.stored.paths import query_file, query_prefix
from dormouse_spark.access import AccessFactory, FilesAccess
from dormouse_spark.datasource import DormouseSource, TableReader, TableSnapshot, snapshot_of
from dormouse_spark.types import spark_arrow_schema

SETTINGS = {
    "spark.sql.runSQLOnFiles": "false",  # a path is no table
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.variable.substitute": "false",  # else '${env:HOME}' is read before it is parsed
}
REFUSED_FUNCTIONS = ("from_protobuf", "java_method", "reflect", "to_protobuf", "try_reflect")
"""Functions that call any code of the JVM, or read files."""
OPERATORS = frozenset(
    {
        "Aggregate",
        "CTERelationDef",
        "CTERelationRef",
        "Distinct",
        "Except",
        "Expand",
        "Filter",
        "Generate",
        "GlobalLimit",
        "Intersect",
        "Join",
        "LateralJoin",
        "LocalLimit",
        "LocalRelation",
        "Offset",
        "OneRowRelation",
        "PipeOperator",
        "Project",
        "Range",
        "RebalancePartitions",
        "Repartition",
        "RepartitionByExpression",
        "ResolvedHint",
        "ResolvedInlineTable",
        "Sample",
        "Sort",
        "SubqueryAlias",
        "Union",
        "Window",
        "WithCTE",
    }
)
"""The operators of a plan that only compute. One that is missing here runs a script, as TRANSFORM
does, reads something else, or is yet unknown."""
_BY_NAME = frozenset(
    {
        "Aggregate",
        "Expand",
        "Filter",
        "Generate",
        "GlobalLimit",
        "Join",
        "LateralJoin",
        "LocalLimit",
        "Offset",
        "Project",
        "RebalancePartitions",
        "Repartition",
        "RepartitionByExpression",
        "Sample",
        "Sort",
        "Window",
    }
)
"""The operators that use just those columns of their input that their expressions name; others are
taken to use all."""
LOOK_SECONDS = 2.0
"""How often the driver looks whether the query has ended, or its time is over."""
_TOLD = re.compile(r"^dormouse\.errors\.(\w+): (.*)(?:\nhint: (.*))?", re.MULTILINE)
"""An error of ours at the end of a traceback."""
_COLUMNS: dict[str, pa.DataType] = {
    "name": pa.string(),
    "rows": pa.int64(),
    "size_bytes": pa.int64(),
}
_FILES = pa.schema(_COLUMNS)


def write_statement(
    spark: SparkContext, open_access: AccessFactory, services: Services, query: Query
) -> TaskEnd:
    """Compute the statement of a query, and write its rows.

    Raises:
        InvalidRequestError: it is no query, or does not fit the tables.
        NotFoundError: it names a table that is not there for the caller, or is gone.
        LimitExceededError: it took more than it may.
        ForbiddenError: it reads encrypted columns.
        EndedError: the query has ended meanwhile.
        UnavailableError: Spark failed; run it again.
    """
    session, _ = open_views(spark, open_access, services, query)
    with naming_errors():
        _, views = parsed(session, query)
    session, sizes = open_views(spark, open_access, services, query, views)
    with naming_errors():
        frame, _ = parsed(session, query)
        schema = pa.schema([_column(each) for each in frame.schema])
    _check_columns(query.asked.format, schema)
    read_bytes = sum(sizes[view] for view in views)
    limits = query.asked.limits
    check_spent(limits, Spent(read_bytes=read_bytes), services.memory_bytes)
    write = _writer(open_access, query.id, query.asked.format, schema, limits)
    with _watched(spark, services, query), naming_errors():
        written = frame.mapInArrow(write, "name string, rows long, size_bytes long").collect()
    files = tuple(ResultFile(row["name"], row["rows"], row["size_bytes"]) for row in written)
    rows, size_bytes = sum(f.rows for f in files), sum(f.size_bytes for f in files)
    spent = Spent(rows, size_bytes, read_bytes=read_bytes)
    check_spent(limits, spent, services.memory_bytes)
    encoded = base64.b64encode(schema.serialize().to_pybytes()).decode()
    columns: dict[str, set[str]] = {}
    versions: dict[str, set[int]] = {}
    for view, used in views.items():
        read = query.views[view]
        columns.setdefault(read.id, set()).update(used)
        versions.setdefault(read.name, set()).add(read.selection.version)
    return TaskEnd(
        files,
        encoded,
        spent,
        columns={table_id: tuple(sorted(names)) for table_id, names in columns.items()},
        versions={name: tuple(sorted(numbers)) for name, numbers in versions.items()},
    )


def open_views(
    spark: SparkContext,
    open_access: AccessFactory,
    services: Services,
    query: Query,
    used: Mapping[str, Collection[str]] | None = None,
) -> tuple[SparkSession, dict[str, int]]:
    """Return a session of its own with the views of a query, and about how many bytes each reads:
    all columns, or those `used` of each view.

    Raises:
        NotFoundError: a table is gone.
        ForbiddenError: a column that is used is encrypted.
    """
    session = SparkSession(spark).newSession()
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    functions = session._jsparkSession.sessionState().functionRegistry()
    catalyst: Any = spark._jvm.org.apache.spark.sql.catalyst  # type: ignore[union-attr]
    for function in REFUSED_FUNCTIONS:
        functions.dropFunction(catalyst.FunctionIdentifier(function))
    sizes = {}
    for number, (view, read) in enumerate(query.views.items()):
        snapshot, whole_bytes = _snapshot(services, open_access, read)
        every = read.selection.columns
        needed = every if used is None else used.get(view, ())
        columns = tuple(each for each in every if each in needed) or every[:1]
        if used is not None:
            ColumnKeys(FILES, read.table.schema, read.id).check(columns)
        sizes[view] = whole_bytes * len(columns) // len(read.table.schema.fields)
        source = source_of(f"dormouse_{number}", snapshot, columns)
        session.dataSource.register(source)
        session.read.format(source.name()).load().createOrReplaceTempView(quoted(view))
    return session, sizes


def _snapshot(
    services: Services, open_access: AccessFactory, read: ReadTable
) -> tuple[TableSnapshot, int]:
    """Return what a view reads, and about how many bytes these are."""
    table = services.table(read.id)
    if table is None:
        raise NotFoundError(f"the table {read.name!r} was deleted")
    _, state = read_version(services, table, version=read.selection.version)
    ranges = selected_ranges(read.table, read.selection)
    snapshot = snapshot_of(read.table, state, read.selection, FilesAccess(open_access))
    return snapshot, bytes_to_read(state, ranges)


def source_of(name: str, snapshot: TableSnapshot, columns: Sequence[str]) -> type[DataSource]:
    """Return a data source of one snapshot, which reads some of its `columns`, and has nothing in
    the place of the others; it is sent to Spark's workers as it is.
    """
    columns_of_table = arrow_schema(snapshot.table.schema.opened)
    schema = spark_arrow_schema(pa.schema(map(columns_of_table.field, snapshot.selection.columns)))
    narrow = replace(snapshot, selection=replace(snapshot.selection, columns=tuple(columns)))

    class StatementReader(TableReader):
        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            for batch in TableReader.read(self, partition):
                arrays = [
                    batch[each.name] if each.name in columns else _filling(each, batch.num_rows)
                    for each in schema
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    class StatementSource(DormouseSource):
        def __init__(self, options: dict[str, str]) -> None:
            DataSource.__init__(self, options)
            self.snapshot = snapshot

        @classmethod
        def name(cls) -> str:
            return name

        def reader(self, schema: StructType) -> TableReader:
            return StatementReader(narrow)

    return StatementSource


def _filling(field: pa.Field[Any], rows: int) -> pa.Array[Any]:
    """Return values for a column that nothing looks at: null, or what its type calls nothing."""
    kind = field.type
    values: pa.Array[Any]
    if field.nullable:
        values = pa.nulls(rows, kind)
        return values
    if pa.types.is_nested(kind):
        nothing: object = {} if pa.types.is_struct(kind) else []
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        nothing = "" if pa.types.is_string(kind) else b""
    else:
        nothing = False if pa.types.is_boolean(kind) else 0
    values = pa.repeat(pa.scalar(nothing, kind), rows)
    return values


def parsed(session: SparkSession, query: Query) -> tuple[DataFrame, dict[str, set[str]]]:
    """Return the rows of a statement, not yet computed, and the columns that it uses of each view
    that it reads.
    Raises InvalidRequestError: it does more than to compute.
    """
    text = query.text.strip().removesuffix(";")
    session._jsparkSession.sessionState().sqlParser().parseQuery(text)  # no command is a query
    frame = session.sql(text, args=dict(query.asked.parameters))
    views: dict[str, set[str]] = {}
    columns: dict[int, tuple[str, str]] = {}
    plans = [frame._jdf.queryExecution().analyzed()]
    while plans:
        plan = plans.pop()
        kind = plan.getClass().getSimpleName()
        if kind == "View":
            view = _view(plan, query)
            views.setdefault(view, set())
            for leaf in _each(plan.collectLeaves()):
                columns |= {a.exprId().id(): (view, a.name()) for a in _each(leaf.output())}
            continue
        if kind not in OPERATORS:
            raise InvalidRequestError(
                f"the statement does what no query over tables does ({kind})",
                hint="read tables of this instance, and compute with functions and operators",
            )
        plans += [*_each(plan.children()), *_each(plan.subqueries())]
    used, read = _used(frame._jdf.queryExecution().optimizedPlan())
    if read <= columns.keys():
        for view, name in map(columns.__getitem__, used & columns.keys()):
            views[view].add(name)
    else:  # the optimiser has made relations of its own
        views = {view: set(query.views[view].selection.columns) for view in views}
    return frame, views


def _used(plan: Any) -> tuple[set[int], set[int]]:
    """Return the ids of all columns in an optimised plan that may have an effect: those that an
    expression names, and those of rows that are used as a whole, as the result is. Also, those of
    all relations that are read.
    """

    def ids(attributes: Any) -> set[int]:
        return {attribute.exprId().id() for attribute in _each(attributes)}

    used, read, plans = ids(plan.output()), set(), [plan]
    while plans:
        plan = plans.pop()
        kind = plan.getClass().getSimpleName()
        children, queries = list(_each(plan.children())), list(_each(plan.subqueries()))
        whole = queries if kind in _BY_NAME else children + queries
        used |= ids(plan.references().toSeq()).union(*(ids(each.output()) for each in whole))
        if not children and kind not in OPERATORS:
            read |= ids(plan.output())
        plans += children + queries
    return used, read


def _view(plan: Any, query: Query) -> str:
    """Return the name of one of our views, as it is in the query."""
    view = plan.desc().identifier().table().lower() if plan.isTempView() else ""
    for name in query.views:
        if name.lower() == view:
            return name
    raise InvalidRequestError("the statement reads a view that is no table of this instance")


def _each(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(number) for number in range(sequence.size()))


def _column(field: StructField) -> pa.Field[Any]:
    """Return a column of a result. Raises InvalidRequestError: no file can have it."""
    try:
        if _has_type(field.dataType, VariantType):
            raise ValueError("its form in files is of use to Spark alone")
        return to_arrow_schema(StructType([field])).field(0)
    except (PySparkException, ValueError) as error:
        kind = field.dataType.simpleString()
        raise InvalidRequestError(
            f"the column {field.name!r} of the result is {kind}, which its files cannot have",
            hint="CAST it to text in the statement; to_json(v) does so with a VARIANT",
        ) from error


def _check_columns(form: str, schema: pa.Schema) -> None:
    """Refuse columns that the files of a result cannot have."""
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise InvalidRequestError(
                f"two columns of the result are called {name!r}", hint="give one an alias"
            )
    with TemporaryDirectory() as folder:
        RowFile(Path(folder) / "rows", ResultFormat(form), schema).end()


def _writer(
    open_access: AccessFactory, query_id: str, form: str, schema: pa.Schema, limits: QueryLimits
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what writes the rows of a task, and returns its files in their order. It stops where
    the limits are exceeded, which the driver sees by what it has.
    """

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        access = open_access()
        prefix, name = query_prefix(query_id), partial(query_file, 0, uuid4().hex)
        sink = FileSink(access.results, access.scratch, prefix, name, form)
        rows = 0
        try:
            sink.begin(schema)
            for batch in batches:
                rows += batch.num_rows
                sink.write(conform(batch, schema))
                if rows > (limits.rows or rows) or sink.size_bytes > (
                    limits.result_bytes or sink.size_bytes
                ):
                    break
            files = sink.end()
        finally:
            sink.abort()
        written = [{"name": f.name, "rows": f.rows, "size_bytes": f.size_bytes} for f in files]
        yield pa.RecordBatch.from_pylist(written, schema=_FILES)

    return write


@contextmanager
def _watched(spark: SparkContext, services: Services, query: Query) -> Iterator[None]:
    """Stop what Spark does for a query that ends meanwhile, or whose time is over.
    Raises EndedError, LimitExceededError: it was stopped.
    """
    is_over, has_ended = threading.Event(), threading.Event()

    def watch() -> None:
        while not is_over.wait(LOOK_SECONDS):
            with suppress(UnavailableError):  # it looks again
                if load_end(services.results, query.id) is not None:
                    has_ended.set()
            if has_ended.is_set() or services.clock.now_ms() >= query.deadline_ms:
                spark.cancelAllJobs()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    except UnavailableError as error:
        if has_ended.is_set():
            raise EndedError from error
        check_time(query.asked.limits, query.begun_ms, services.clock.now_ms())
        raise
    finally:
        is_over.set()
        watcher.join()


@contextmanager
def naming_errors() -> Iterator[None]:
    """Raise Spark's errors as ours. Those of values are told by their kind alone: their messages
    quote rows. Errors of ours in tasks are what they are; others that Spark has no kind for may be
    gone when the job is run again.
    """
    try:
        yield
    except AnalysisException as error:
        message = str(error).strip().splitlines()[0]
        if error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
            raise NotFoundError(message, hint="names of tables are case-sensitive") from error
        raise InvalidRequestError(message) from error
    except (Py4JJavaError, PythonException) as error:
        stopped = "UnavailableError", f"Spark stopped the statement: {type(error).__name__}", ""
        name, message, hint = [stopped, *_TOLD.findall(str(error))][-1]
        raise error_named(name, message, hint) from error
    except PySparkException as error:
        kind = error.getCondition() or type(error).__name__
        raise InvalidRequestError(f"Spark ended the statement: {kind}") from error
