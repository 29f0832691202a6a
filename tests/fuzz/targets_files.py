"""Files: those that are ingested, in each format, and shards as look-ups and scans read them."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tempfile
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.errors import CorruptDataError, InvalidRequestError, RefusedSourceError
from dormouse.model.names import shard_path
from dormouse.model.schema import Schema
from dormouse.shards.arrow import arrow_schema
from dormouse.shards.footer import read_footer
from dormouse.shards.formats import read_source
from dormouse.shards.predicates import parse_predicate
from dormouse.storage import FolderStorage
from tests.fuzz.mutations import mangled, mangled_json, mangled_text
from tests.fuzz.samples import CONDITIONS
from tests.fuzz.targets import Target, told
from tests.support.every_type import EVERY_TYPE, row_of_every_type
from tests.unit.shards.tables import ShardTable

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
    {**_KEY, "t": 1_700_000_000_000_000, "day": 19_000, "n": 3},
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
    with told(RefusedSourceError):
        for batch in read_source(local, name, schema):
            batch.validate(full=True)
            assert batch.schema.equals(arrow_schema(schema))


def _line(body: bytes) -> None:
    _ingested("x.json", body.replace(b"\n", b" "))


@cache
def _shard() -> tuple[ShardTable, str, bytes, list[dict[str, object]]]:
    (_folder() / "scratch").mkdir(exist_ok=True)
    table = ShardTable(FolderStorage(_folder() / "data"), EVERY_TYPE, _folder() / "scratch")
    (new,) = table.add([row_of_every_type(n) for n in range(300)])
    path = shard_path("table", new.shard.id)
    return table, path, table.storage.get(path), table.rows()


def _covered(body: bytes, damaged: bytes) -> bool:
    """Tell whether what differs lies in the footer or the values of a page, which have checksums.

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
    with told(CorruptDataError):
        try:
            found = table.rows(look_up_bytes=look_up_bytes)
        except CorruptDataError as error:
            assert path in str(error), error
            raise
        assert found == rows or not _covered(body, damaged) or not look_up_bytes
    with told(CorruptDataError):
        read_footer(table.storage, path, len(damaged))


def _asked(text: str) -> None:
    """What the parser lets through the engine can do, on any row."""
    with told(InvalidRequestError):
        predicate = parse_predicate(text, EVERY_TYPE)
        wanted = arrow_schema(EVERY_TYPE)
        list(predicate.apply([pa.RecordBatch.from_pylist(_ROWS, wanted)]))


TARGETS: dict[str, Target] = {
    **{
        f"ingested {name}": Target(mangled(good), partial(_ingested, name), native=True, quick=150)
        for name, good in _GOOD.items()
    },
    "lines of JSON": Target(mangled_json(_CELLS), _line, native=True, quick=200),
    "looked up shards": Target(
        mangled([_shard()[2]]), partial(_stored, 10**9), native=True, quick=150
    ),
    "scanned shards": Target(mangled([_shard()[2]]), partial(_stored, 0), native=True, quick=100),
    "conditions on rows": Target(mangled_text(CONDITIONS), _asked, native=True, quick=150),
}
