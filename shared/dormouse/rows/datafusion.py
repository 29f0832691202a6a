"""DataFusion as Dormouse uses it: sessions, sorted local files as frames, merge plans.

DataFusion trusts the sort order that it is given for a file. The order of what it merges is
therefore checked by the writer of the rows (`shards.writer`). A plan that would sort instead of
merge is refused here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cache, reduce
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from datafusion import (
    DataFrame,
    Expr,
    ScalarUDF,
    SessionConfig,
    SessionContext,
    col,
    functions,
    lit,
    udf,
)
from datafusion.expr import SortExpr
from datafusion.plan import ExecutionPlan
from datafusion.record_batch import RecordBatchStream

from dormouse.arrow.documents import ABSENT, holds, kind_of, matching, typed, values_at
from dormouse.arrow.documents import Path as DocumentPath
from dormouse.arrow.order import fit_range, key_scalar
from dormouse.arrow.types import Array, arrow_schema, arrow_type, unfit_time
from dormouse.errors import CorruptDataError, InvariantError
from dormouse.keys import Key, KeyRange
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import Primitive
from dormouse.shards.thrift import read_varint, varint
from dormouse.sql.conditions import MIRRORED, Call, Expression, Literal, text_literal

_OPTIONS = {
    # with view types, batches and the files written from them would have view types, too
    "datafusion.execution.parquet.schema_force_view_types": "false",
    # no plan here uses statistics of whole files, and collecting them reads each footer once more
    "datafusion.execution.collect_statistics": "false",
    # only small batches are sorted here: sort each at once, without merging sorted batches
    "datafusion.execution.sort_in_place_threshold_bytes": str(2**40),
    # what they exclude is not even fetched, and nor are they
    "datafusion.execution.parquet.bloom_filter_on_read": "false",
    "datafusion.execution.parquet.metadata_size_hint": str(64 * 1024),
}
MIN_BATCH_ROWS, MAX_BATCH_ROWS = 1, 16_384
MAX_BATCH_BYTES = 1024 * 1024
"""The most rows of a batch, and about how large it may become in memory: each batch costs time of
its own, but longer ones save nothing more."""
MAX_JOINED_ROWS = 32_768
"""The most rows of a batch that few inputs are merged to if it is known that all will be read: what
Python does with a batch takes 0.2 ms, and waits for its other threads."""
MERGE_BYTES = 40 * 1024 * 1024
"""What the batches of a merge may take in all, however many inputs there are. More would make no
merge faster."""
FALSE = lit(False)
BATCHES_PER_INPUT = 11
"""What a merge holds for each input, in batches, as measured: one that is decoded, two that wait,
the current one and the one before it, the sort keys of both, and the room that buffers have beyond
their values."""
MOST_IN_ONE_MERGE = 32
"""A merge of more inputs than these is a merge of merges, which run on threads of their own: one
thread that compares the rows of so many inputs takes longer than the one that writes them."""
GROUP_INPUTS = 12
"""The most inputs of one of these merges. With this many, comparing rows twice takes no more CPU
time than comparing them once with all others."""
_UNFIT_TIME = "converted value exceeds the representable i64 range"
"""What DataFusion says, beside the value, of a time that nanoseconds cannot hold."""
MOST_ROWS = 2**32
"""The serialized form of a plan counts rows in 32 bits."""


def session(batch_rows: int = MAX_BATCH_ROWS, *, page_index: bool = True) -> SessionContext:
    """Open a session whose batches have up to `batch_rows` rows. Without `page_index`, those of
    files are not read.

    It has one partition: more would cost memory and CPU time, and a merge ends in one stream
    anyway. Its memory pool is unbounded, because a merge cannot spill: with a bound it could only
    fail.
    """
    options = _OPTIONS | {"datafusion.execution.parquet.enable_page_index": str(page_index).lower()}
    config = SessionConfig(options).with_target_partitions(1).with_batch_size(batch_rows)
    return SessionContext(config)


def batch_rows(memory_bytes: int, inputs: int, row_bytes: float, most: int = MAX_BATCH_ROWS) -> int:
    """Return the batch length, `most` at most, with which merging that many inputs holds
    `MERGE_BYTES` of batches, or less if there is less memory.

    `row_bytes` is the average size of a row in memory. Without inputs, it is the length of batches
    that were merged already.
    """
    held_bytes = min(memory_bytes, MERGE_BYTES)
    batch_bytes = min(MAX_BATCH_BYTES, held_bytes / (BATCHES_PER_INPUT * (inputs + 1)))
    return max(MIN_BATCH_ROWS, min(most, int(batch_bytes / max(row_bytes, 1))))


def column(name: str) -> Expr:
    """Return an expression for the column called exactly `name`."""
    return col('"' + name.replace('"', '""') + '"')


def key_order(schema: Schema) -> list[SortExpr]:
    """Return the sort order of rows: by the keys, ascending."""
    return [column(f.name).sort(ascending=True, nulls_first=True) for f in schema.keys]


def sorted_file(
    context: SessionContext,
    local: Path,
    stored: Mapping[str, Field],
    schema: Schema,
    span: KeyRange,
    constants: Mapping[str, int | str | None] = MappingProxyType({}),
) -> DataFrame:
    """Return the rows in `span` of a Parquet file sorted by the keys, with the columns of `schema`.

    `stored` has how fields are stored in the file, by their names in the schema. A column that the
    file lacks is one of its `constants`, or null. Requires: nested ones are stored as they are now.
    """
    target, keys = arrow_schema(schema), {field.name for field in schema.keys}
    columns = [(column, stored.get(column.name)) for column in target]
    in_file = pa.schema([_in_file(c, then, keys) for c, then in columns if then is not None])
    frame = sorted_columns(context, local, in_file, schema)
    if not in_file.equals(target):
        frame = frame.select(*(_evolved(*each, in_file, constants) for each in columns))
    term = range_predicate(fit_range(span, schema), schema.keys)
    return frame if term is None else frame.filter(term)


def range_predicate(span: KeyRange, fields: Sequence[Field]) -> Expr | None:
    """Return the term that is true of exactly the rows in `span`; None if that is all rows.

    `span` is a range of values of `fields`; it must fit them (`fit_range`) and not be empty. The
    term is a conjunction that bounds single columns wherever the range does: from this form,
    DataFusion sees which row groups and pages it can skip.

    For example, the range from (a, 5) to (a, 9) becomes

        k1 >= a AND k1 <= a AND k2 >= 5 AND k2 < 9

    and the range from (a, 5) to (c, 2), whose bounds differ in the first part,

        k1 >= a AND (k1 > a OR k2 >= 5) AND k1 <= c AND (k1 < c OR k2 < 2)

    The conjuncts `k1 >= a` and `k1 <= c` are redundant, but are what statistics of a single column
    can be compared with.
    """
    columns = [column(f.name) for f in fields]
    low = _literals(span.min, fields)
    if span.max is None:
        return _from(columns, low) if low else None
    high = _literals(span.max, fields)
    pairs = zip(span.min, span.max, strict=False)
    same = len([*takewhile(lambda ends: ends[0] == ends[1], pairs)])
    terms = []
    for item, value in zip(columns[:same], low, strict=False):
        terms += [item >= value, item <= value]
    if same < len(low):
        terms.append(_from(columns[same:], low[same:]))
    terms.append(_below(columns[same:], high[same:]))
    return reduce(lambda before, term: before & term, terms)


def _from(columns: Sequence[Expr], bound: Sequence[Expr]) -> Expr:
    """Return the term for keys at or above a bound, part by part."""
    first, value = columns[0], bound[0]
    if len(bound) == 1:
        return first >= value
    return (first >= value) & ((first > value) | _from(columns[1:], bound[1:]))


def _below(columns: Sequence[Expr], bound: Sequence[Expr]) -> Expr:
    """Return the term for keys below a bound, part by part."""
    first, value = columns[0], bound[0]
    if len(bound) == 1:
        return first < value
    return (first <= value) & ((first < value) | _below(columns[1:], bound[1:]))


def _literals(bound: Key, fields: Sequence[Field]) -> list[Expr]:
    return [lit(key_scalar(p, f.type)) for p, f in zip(bound, fields, strict=False)]


def sorted_columns(
    context: SessionContext, local: Path, columns: pa.Schema, schema: Schema
) -> DataFrame:
    """Return all rows of a Parquet file sorted by the keys of `schema`, with columns of the file,
    all keys among them.
    """
    return context.read_parquet(
        local.as_uri(),  # escaped: a folder's name may look like a pattern
        schema=columns,
        file_sort_order=[key_order(schema)],
    )


def _in_file(target: pa.Field[Any], stored: Field, keys: Container[str]) -> pa.Field[Any]:
    """Return a column as it is to be read. Keys become what they are now while they are read: a
    calculation with them would have no known order.
    """
    is_read_so = target.name in keys or pa.types.is_nested(target.type)
    kind = target.type if is_read_so else arrow_type(stored.type)
    return target.with_name(stored.name).with_type(kind)


def _evolved(
    target: pa.Field[Any],
    stored: Field | None,
    in_file: pa.Schema,
    constants: Mapping[str, int | str | None],
) -> Expr:
    """Return a column as it is now. A function stands around a cast, since DataFusion would cast
    what it is compared with to the type in the file, also where that loses nanoseconds.
    """
    if stored is None:
        return lit(constants.get(target.name)).cast(target.type).alias(target.name)
    term = column(stored.name)
    if in_file.field(stored.name).type != target.type:
        term = functions.greatest(term.cast(target.type))
    return term.alias(target.name)


_ROWS = "rows"


def frame_from_batches(context: SessionContext, batches: Sequence[pa.RecordBatch]) -> DataFrame:
    """Return a frame of batches in memory. Requires: at least one; all have the same schema; no
    other thread makes one in this session meanwhile.
    """
    importable = [_importable(batch) for batch in batches]
    frame = context.create_dataframe([importable], name=_ROWS, schema=batches[0].schema)
    context.deregister_table(_ROWS)  # else the session holds them until it ends, not the frame
    return frame


def _importable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch in which no struct in a struct is a slice: DataFusion aborts on those."""
    columns = [
        pa.concat_arrays([c.slice(0, 0), c]) if _nests_struct(c.type) else c for c in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _nests_struct(kind: pa.DataType) -> bool:
    inner = [kind.field(i).type for i in range(kind.num_fields)]
    if pa.types.is_struct(kind) and any(pa.types.is_struct(item) for item in inner):
        return True
    return any(_nests_struct(item) for item in inner)


def has_no_rows(frame: DataFrame) -> bool:
    """Return whether the filters of a frame contradict each other, so that no file need be read."""
    return frame.optimized_logical_plan().display_indent().startswith("EmptyRelation")


def merge_groups(inputs: int) -> int:
    """Return in how many groups inputs are merged before these are merged; 0 for all at once."""
    return 0 if inputs <= MOST_IN_ONE_MERGE else -(-inputs // GROUP_INPUTS)


def plan_merge(
    frames: Sequence[DataFrame], schema: Schema, columns: Sequence[str], *, most_rows: int
) -> ExecutionPlan:
    """Return a plan that merges frames, each one file sorted by the keys of
    `schema`, into one sorted stream.

    Requires: they have at most `most_rows` rows in all; and none of the frames `has_no_rows`,
    because DataFusion also takes a missing file for no rows.
    Raises InvariantError: a file is missing, or the plan would sort rows that are sorted already.
    """
    frame = _merged(_merged_in_groups(frames, schema, most_rows), schema)
    plan = frame.select(*(column(name) for name in columns)).execution_plan()
    # only the names of the steps: the text of a filter quotes values
    steps = [line.strip().partition(":")[0] for line in plan.display_indent().splitlines()]
    if steps.count("DataSourceExec") != len(frames):
        raise InvariantError("a local file that was to be merged is missing")
    if "SortExec" in steps:
        raise InvariantError(
            f"the merge would sort rows that are sorted already: {', '.join(steps)}"
        )
    return plan


def _merged_in_groups(
    frames: Sequence[DataFrame], schema: Schema, most_rows: int
) -> Sequence[DataFrame]:
    """Return the frames, or a merge of each group of them.

    DataFusion would leave out a merge within a merge, but for its limit: which is `most_rows`, so
    that it leaves out no row.
    """
    groups = merge_groups(len(frames))
    if not groups or most_rows >= MOST_ROWS:
        return frames
    return [_merged(frames[i::groups], schema).limit(most_rows) for i in range(groups)]


def _merged(frames: Sequence[DataFrame], schema: Schema) -> DataFrame:
    return reduce(DataFrame.union, frames).sort(*key_order(schema))


def batches_of(stream: RecordBatchStream) -> Iterator[pa.RecordBatch]:
    """Yield batches as they come. Raises CorruptDataError: of a file."""
    while True:
        try:
            batch = next(stream, None)
        except BaseException as error:  # DataFusion panics on damaged data: that is no Exception
            if _UNFIT_TIME in str(error):
                raise unfit_time() from None
            raise _translated(error) from error
        if batch is None:
            return
        yield batch.to_pyarrow()


def _translated(error: BaseException) -> BaseException:
    """Return an error of DataFusion as ours; it has one type for errors, and one for panics."""
    text = str(error)
    if type(error).__name__ == "PanicException":
        return CorruptDataError(f"a shard is damaged, and reading it broke off: {text}")
    if type(error) is not Exception:
        return error
    if "Parquet error" in text or "Arrow error" in text:
        return CorruptDataError(f"a shard is damaged: {text}")
    return error


# Change a plan in its serialized form, where DataFusion's Python interface has no argument for
# what it can do: read only some row groups of a file, and join the batches of the result.
#
# The form is Protocol Buffers (``datafusion.proto``). So the plan is serialized, changed, and read
# again.
#
# - Each file is a message ``PartitionedFile``, with a ``path`` and an optional ``range`` of bytes,
#   in which the row groups begin that are read. A filter on the key would read the same ones. But
#   DataFusion would then compare every row with the bounds, and copy those that pass.
# - A step of a plan is a ``PhysicalPlanNode``. One that joins batches becomes the last: the more
#   inputs a merge has, the shorter its batches are, and each costs Python 0.2 ms.

_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5
"""How a field of Protocol Buffers is encoded: its wire type."""
_RANGE, _START, _END = 5, 1, 2
"""The numbers of ``PartitionedFile.range``, ``FileRange.start`` and ``FileRange.end``."""
_COALESCE, _INPUT, _TARGET = 11, 1, 2
"""The numbers of ``PhysicalPlanNode.coalesce_batches``, and in it of ``input`` and
``target_batch_size``."""


def changed(
    context: SessionContext, plan: ExecutionPlan, ranges: Mapping[str, range], *, joined: int
) -> ExecutionPlan:
    """Return `plan`, reading of each file the row groups whose first byte is in its range, and
    returning batches of `joined` rows. Those that have more than half of that are not joined.

    `ranges` are keyed by the ends of the files' paths, which occur nowhere else in the plan.
    Raises InvariantError: DataFusion does not take the changes as it is expected to.
    """
    body = plan.to_bytes()
    for name, groups in ranges.items():
        body = with_range(body, name.encode(), groups)
    target = varint(_TARGET << 3 | _VARINT) + varint(joined)
    body = _field(_COALESCE, _field(_INPUT, body) + target)
    read_again = ExecutionPlan.from_bytes(context, body)
    shown = read_again.display_indent()
    for name, groups in ranges.items():
        if f"{name}:{groups.start}..{groups.stop}" not in shown:
            raise InvariantError(f"DataFusion would not read {name} as it was asked to")
    if not shown.startswith(f"CoalesceBatchesExec: target_batch_size={joined}"):
        raise InvariantError(f"DataFusion would not join batches to {joined} rows")
    return read_again


def with_range(message: bytes, name: bytes, span: range) -> bytes:
    """Return a message in which the file whose path ends with `name` has a range.
    Raises InvariantError: there is no such file.
    """
    for start, body, end in _fields(message):
        if message.endswith(name, body, end):
            return message + _field(_RANGE, _range(span))
        inner = message[body:end]
        if name in inner:
            tag, _ = read_varint(message, start)
            field = _field(tag >> 3, with_range(inner, name, span))
            return message[:start] + field + message[end:]
    raise InvariantError(f"a plan does not read {name.decode()}")


def _range(span: range) -> bytes:
    ends = ((_START, span.start), (_END, span.stop))
    return b"".join(varint(number << 3 | _VARINT) + varint(value) for number, value in ends)


def _field(number: int, body: bytes) -> bytes:
    return varint(number << 3 | _BYTES) + varint(len(body)) + body


def _fields(message: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield where each field that consists of bytes begins, where its bytes begin, and its end."""
    at = 0
    while at < len(message):
        start = at
        tag, at = read_varint(message, at)
        kind = tag & 7
        if kind == _BYTES:
            length, body = read_varint(message, at)
            at = body + length
            yield start, body, at
        elif kind == _VARINT:
            _, at = read_varint(message, at)
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            at += 8 if kind == _EIGHT_BYTES else 4
        else:
            raise InvariantError(f"a plan has a field of the unknown wire type {kind}")


# Functions that DataFusion calls: tests of what is in JSON documents, and of words.
#
# It has none of its own for JSON. These read documents with Python, exactly: numbers are compared
# as decimals of any length.


TEST = "json_test"
_CASTS = {
    Primitive.STRING: "json_text",
    Primitive.LONG: "json_long",
    Primitive.DOUBLE: "json_double",
    Primitive.BOOLEAN: "json_boolean",
}


def document_sql(call: Call, parts: list[str]) -> str | None:
    """Return a call that reads a document as SQL with these functions; None if it reads none.
    `parts` are its rendered arguments: that of a document or a part of one is its column.
    """
    if call.op == "PATH":
        return parts[0]
    operands = [*zip(call.arguments, parts, strict=True)]
    documents = [(e, part) for e, part in operands if e.type is Primitive.DYNAMIC]
    if not documents or (call.op == "IS NULL" and not isinstance(call.arguments[0], Call)):
        return None
    document, column = documents[0]
    path = text_literal(json.dumps(path_of(document)))
    if call.op in ("CAST", "TRY_CAST"):
        return f"{_CASTS[Primitive(call.type)]}({column}, {path})"
    if call.op == "json_kind":
        return f"json_kind({column}, {path})"
    is_mirrored = isinstance(call.arguments[0], Literal)
    op = MIRRORED.get(call.op, call.op) if is_mirrored else call.op
    constants = [e.value for e in call.arguments if isinstance(e, Literal)]
    texts = json.dumps([_shown(each) for each in constants])
    return f"{TEST}({column}, {path}, {text_literal(op)}, {text_literal(texts)})"


def path_of(document: Expression) -> DocumentPath:
    """Return the path of a part of a document; an empty one of a whole document."""
    if not isinstance(document, Call):
        return ()
    steps = (e.value for e in document.arguments[1:] if isinstance(e, Literal))
    return tuple(step for step in steps if isinstance(step, str | int))


def _shown(constant: object) -> object:
    """Return a constant as JSON keeps it: numbers of any length as texts in a list."""
    is_number = isinstance(constant, int | Decimal) and not isinstance(constant, bool)
    return [str(constant)] if is_number else constant


def _constant(shown: Any) -> object:
    return Decimal(shown[0]) if isinstance(shown, list) else shown


def register(context: SessionContext) -> None:
    """Make these functions known to a session."""
    for function in _functions():
        context.register_udf(function)


@cache
def _functions() -> list[ScalarUDF]:
    document, text, truth = pa.large_string(), pa.string(), pa.bool_()
    functions = [udf(_test, [document, text, text, text], truth, "immutable", TEST)]
    functions.append(udf(_kinds, [document, text], text, "immutable", "json_kind"))
    functions.append(udf(_has, [text, text], truth, "immutable", "has"))
    for kind, name in _CASTS.items():
        functions.append(udf(_cast(kind), [document, text], arrow_type(kind), "immutable", name))
    return functions


def _test(texts: Array, paths: Array, ops: Array, constants: Array) -> Array:
    if not len(texts):
        return pa.array([], pa.bool_())
    op = str(ops[0].as_py())
    alternatives = [_constant(each) for each in json.loads(str(constants[0].as_py()))]
    values = _values(texts, paths)
    if op == "IS NULL":
        return pa.array([value is ABSENT for value in values], pa.bool_())
    return pa.array([holds(op, value, alternatives) for value in values], pa.bool_())


def _kinds(texts: Array, paths: Array) -> Array:
    kinds = (None if value is ABSENT else kind_of(value) for value in _values(texts, paths))
    return pa.array(list(kinds), pa.string())


def _cast(kind: Primitive) -> Callable[[Array, Array], Array]:
    return lambda texts, paths: typed(_values(texts, paths), kind)


def _has(texts: Array, words: Array) -> Array:
    return matching(texts, str(words[0].as_py())) if len(texts) else pa.array([], pa.bool_())


def _values(texts: Array, paths: Array) -> list[object]:
    path: DocumentPath = tuple(json.loads(str(paths[0].as_py()))) if len(paths) else ()
    return values_at(texts.to_pylist(), [path])[0]
