"""Files: those that are ingested, in each format, and shards as look-ups and scans read them."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tempfile
from decimal import Decimal
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from dormouse.arrow.types import arrow_schema
from dormouse.errors import CorruptDataError, InvalidRequestError, RefusedSourceError
from dormouse.files.change_data import FileChanges
from dormouse.files.formats import read_source
from dormouse.rows.predicates import parse_predicate
from dormouse.schema.schema import Schema
from dormouse.shards.footer import read_footer
from dormouse.storage import FolderStorage
from dormouse.stored.paths import shard_path
from tests.fuzz.mutations import mangled, mangled_json, mangled_text
from tests.fuzz.samples import CONDITIONS
from tests.fuzz.targets import Target, refusing
from tests.support.every_type import EVERY_TYPE, row_of_every_type
from tests.support.tables import ShardTable

_ROWS = [row_of_every_type(n) for n in range(30)]
_KEY = {"t": "2024-02-29T12:00:00Z", "b": "AP8=", "i": -1}
_CELLS: list[dict[str, Any]] = [
    {
        **_KEY,
        "l": 12,
        "f": 0.5,
        "d": -1e300,
        "o": True,
        "s": 'a "ü"\n,',
        "day": "2024-02-29",
        "n": "12345.67",
        "ls": ["a", None],
        "m": {"AP8=": 1},
        "st": {"x": 0.5, "y": "z"},
    },
    _KEY,
    {**_KEY, "t": "2024-02-29 13:00:00.5+0100", "day": "2024-02-29T00:00:00", "n": 3},
]


def _csv() -> bytes:
    def cell(value: Any) -> str:
        text = value if isinstance(value, str) else json.dumps(value)
        return '"' + text.replace('"', '""') + '"'

    names = [field.name for field in EVERY_TYPE.fields]
    lines = [",".join(cell(row[n]) if n in row else "" for n in names) for row in _CELLS]
    return "\n".join([",".join(names), *lines, ""]).encode()


def _parquet(**how: Any) -> bytes:
    sink = io.BytesIO()
    table = pa.Table.from_pylist(_ROWS, arrow_schema(EVERY_TYPE))
    pq.write_table(table, sink, row_group_size=12, **how)
    return sink.getvalue()


_LINES = b"".join(json.dumps(row).encode() + b"\n" for row in _CELLS)
_GOOD: dict[str, list[bytes]] = {
    "x.csv": [_csv(), b"t,b,i\n1,AP8=,2\n"],
    "x.json": [_LINES],
    "x.parquet": [_parquet(), _parquet(compression="zstd", data_page_version="2.0")],
    "x.csv.gz": [gzip.compress(_csv())],
    "x.json.gz": [gzip.compress(_LINES)],
    "x.parquet.gz": [gzip.compress(_parquet(compression="none"))],
}


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="dormouse-fuzz-"))


def _ingested(name: str, body: bytes, schema: Schema = EVERY_TYPE) -> None:
    local = _folder() / "dropped"
    local.write_bytes(body)
    with refusing(RefusedSourceError):
        for batch in read_source(local, name, schema):
            batch.validate(full=True)
            assert batch.schema.equals(arrow_schema(schema))


def _line(body: bytes) -> None:
    _ingested("x.json", body.replace(b"\n", b" "))


_MESSAGES = [
    {"op": op, "source": {"sequence": '["1","2"]', "file": "b.1", "pos": 4, "row": 0}, **sides}
    for row in _CELLS[:2]
    for op, sides in (("u", {"before": row, "after": row}), ("d", {"before": row}))
] + [
    {"schema": {"fields": [{"field": "after", "fields": [{"field": "t", "name": "x"}]}]},
     "payload": {"op": "c", "source": {}, "after": _CELLS[0]}},
    _CELLS[0] | {"__deleted": "false", "__op": "u", "__source_sequence": '["1","2"]'},
    {"data": _CELLS[0], "metadata": {"record-type": "data", "operation": "update"}},
]  # fmt: skip
_CHANGED = Schema(EVERY_TYPE.row_keys, (), EVERY_TYPE.values)


def _message(form: str, body: bytes) -> None:
    local = _folder() / "dropped"
    local.write_bytes(body.replace(b"\n", b" "))
    with refusing(RefusedSourceError):
        changes = FileChanges(_CHANGED, "", form)
        for batch in read_source(local, "x.json", _CHANGED, changes=changes):
            batch.validate(full=True)


def _foreign_columns() -> list[pa.Array[Any]]:
    """Return columns of three cells of all sorts of types, with cells at the ends of what they
    hold.

    Not all of them can be written to Parquet.
    """
    most = 2**63 - 1
    numbers = [0, most, None]
    columns: list[Any] = [
        pa.nulls(3),
        pa.array([0, 2**64 - 1, None], pa.uint64()),
        pa.array([0, -1, 127], pa.int8()),
        pa.array([0.5, float("nan"), float("-inf")], pa.float16()),
        pa.array([0.5, float("nan"), 1e308]),
        pa.array([Decimal("1e-30"), None, Decimal(9) * 10**40], pa.decimal256(76, 30)),
        pa.array(["", "\0", "ü" * 5000]),
        pa.array(["a", None, "b"], pa.large_string()),
        pa.array([b"\xff", b"", None]),
        pa.array([b"\xff", b"\0", b"a"]).cast(pa.string(), safe=False),
        pa.array([b"ab", b"cd", None], pa.binary(2)),
        pa.array(["a", "b", "a"]).dictionary_encode(),
        pa.array([[1], None, []]),
        pa.array([[None, "a"], [], ["b"]], pa.list_(pa.string(), -1)),
        pa.array([["a"], ["b"], None], pa.list_(pa.string(), 1)),
        pa.array([["a"], [], None], pa.large_list(pa.string())),
        pa.array([[("a", 1)], [("a", 1), ("a", 2)], None], pa.map_(pa.string(), pa.int64())),
        pa.array([[(b"a", None)], [], None], pa.map_(pa.binary(), pa.int64())),
        pa.array([{"x": 1.5, "y": "a"}, None, {"x": None, "y": None}]),
        pa.array([{"x": 1.5, "z": "a"}, None, {}]),
        pa.array([{"y": ["a"]}, None, {}]),
        pa.array([True, False, None]),
        pa.array(numbers, pa.date64()),
        pa.array([-(2**31), 2**31 - 1, 0], pa.date32()),
        pa.array([0, 1, 2], pa.time32("s")),
        pa.array(numbers, pa.duration("ns")),
    ]
    for unit in ("s", "ms", "us", "ns"):
        columns += [pa.array([-most, most, 0], pa.timestamp(unit, z)) for z in (None, "Asia/Tokyo")]
    return columns


@st.composite
def _foreign(draw: st.DrawFn) -> bytes:
    """Return a Parquet file whose columns have the names of the table's, and any types."""
    names = [field.name for field in EVERY_TYPE.fields]
    if draw(st.booleans()):
        names = draw(st.lists(st.sampled_from([*names, "other"]), min_size=1, max_size=12))
    good = pa.Table.from_pylist(_ROWS[:3], arrow_schema(EVERY_TYPE))
    own = {name: good.column(name).combine_chunks() for name in good.column_names}
    columns = [
        own[name] if name in own and draw(st.integers(0, 3)) else draw(st.sampled_from(_COLUMNS))
        for name in names
    ]
    sink = io.BytesIO()
    try:
        pq.write_table(pa.table(columns, names=names), sink, store_schema=draw(st.booleans()))
    except (pa.ArrowException, ValueError):
        return b""
    return sink.getvalue()


_COLUMNS = _foreign_columns()


@cache
def _shard() -> tuple[ShardTable, str, bytes, list[dict[str, object]]]:
    (_folder() / "scratch").mkdir(exist_ok=True)
    table = ShardTable(FolderStorage(_folder() / "data"), EVERY_TYPE, _folder() / "scratch")
    (new,) = table.add([row_of_every_type(n) for n in range(300)])
    path = shard_path("table", new.shard.id)
    return table, path, table.storage.get(path), table.rows()


def _covered(body: bytes, damaged: bytes) -> bool:
    """Return whether what differs lies in the footer or the values of a page, which have checksums.

    Headers of pages have none, and neither have the page indexes.
    """
    if len(body) != len(damaged):
        return False
    (length,) = struct.unpack("<I", body[-8:-4])
    changed = {at for at, (a, b) in enumerate(zip(body, damaged, strict=True)) if a != b}
    metadata = pq.read_metadata(pa.BufferReader(body))
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    chunks = [group.column(i) for group in groups for i in range(metadata.num_columns)]
    ends = [
        (c.dictionary_page_offset or c.data_page_offset) + c.total_compressed_size for c in chunks
    ]
    values = {at for end in ends for at in range(end - 4, end)}
    return changed <= values | set(range(len(body) - 8 - length, len(body)))


def _stored(look_up_bytes: int, damaged: bytes) -> None:
    table, path, body, rows = _shard()
    (_folder() / "data" / path).write_bytes(damaged)
    with refusing(CorruptDataError):
        try:
            found = table.rows(look_up_bytes=look_up_bytes)
        except CorruptDataError as error:
            assert path in str(error), error
            raise
        assert found == rows or not _covered(body, damaged) or not look_up_bytes
    with refusing(CorruptDataError):
        read_footer(table.storage, path, len(damaged))


def _asked(text: str) -> None:
    """What the parser lets through the engine can do, on any row."""
    with refusing(InvalidRequestError):
        predicate = parse_predicate(text, EVERY_TYPE)
        wanted = arrow_schema(EVERY_TYPE)
        list(predicate.apply([pa.RecordBatch.from_pylist(_ROWS, wanted)]))


_SHARDS = st.deferred(lambda: mangled([_shard()[2]]))  # written where examples are drawn
TARGETS: dict[str, Target] = {
    **{
        f"ingested {name}": Target(mangled(good), partial(_ingested, name), native=True, quick=150)
        for name, good in _GOOD.items()
    },
    "foreign Parquet": Target(_foreign(), partial(_ingested, "x.parquet"), native=True),
    "lines of JSON": Target(mangled_json(_CELLS), _line, native=True, quick=200),
    **{
        f"messages of {form}": Target(mangled_json(_MESSAGES), partial(_message, form), native=True)
        for form in ("debezium", "dms")
    },
    "looked up shards": Target(_SHARDS, partial(_stored, 10**9), native=True, quick=150),
    "scanned shards": Target(_SHARDS, partial(_stored, 0), native=True, quick=100),
    "conditions on rows": Target(mangled_text(CONDITIONS), _asked, native=True, quick=150),
}
