"""Good examples of all that is read from outside, for the strategies to damage."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from dormouse.access import AccessRule
from dormouse.features.export import (
    EXPORT,
    FILES,
    ExportRequest,
    TaskFiles,
    build_manifest,
    load_manifest,
    manifest_path,
)
from dormouse.features.long_jobs import ReadTable
from dormouse.features.purge import MATCHES, REQUEST, ShardMatches
from dormouse.features.queries import END, QUERY, TASK_END, Query, QueryEnd, Spent, TaskEnd
from dormouse.features.requests import Kind, ResultFile
from dormouse.keys import KeyRange
from dormouse.messages import requests as r
from dormouse.messages import stages as m
from dormouse.messages.stages import AnswerQuery, CancelQuery, QueryLimits, QueryTask
from dormouse.query.selection import Selection, decode_pieces, encode_pieces
from dormouse.schema.schema import Schema
from dormouse.schema.types import KEY_TYPES, DecimalType
from dormouse.shards.footer import ShardFooter, decode_footer, encode_footer
from dormouse.shards.run_markers import RunMarker, put_run_marker, read_run_markers
from dormouse.sql.conditions import parse_condition
from dormouse.state.partitions import Shard
from dormouse.state.sources import Source
from dormouse.state.state import Piece
from dormouse.state.versions import Lineage, Provenance
from dormouse.stored.paths import RUN_MARKERS
from dormouse.tables.table import Table
from tests.support.every_type import EVERY_TYPE
from tests.support.memory_storage import MemoryStorage
from tests.support.purges import purge_request

EVENTS = Path(__file__).parents[2] / "events"
BUCKET = "dormouse-local-ingest-123456789012"
KEY_KINDS = [*sorted(KEY_TYPES, key=lambda kind: kind.value), DecimalType(38, 10)]
COUNTS = Schema.from_json(
    {
        "rowKeyFields": [{"name": "k", "type": "StringType"}, {"name": "n", "type": "LongType"}],
        "sortKeyFields": [{"name": "at", "type": "TimestampType"}],
        "valueFields": [
            {"name": "c", "type": "LongType"},
            {"name": "m", "type": {"MapType": {"keyType": "StringType", "valueType": "LongType"}}},
        ],
    }
)

_SOURCE = Source(BUCKET, "letters/1.csv", "e", 10, "v")
MESSAGES: list[m.Message] = [
    m.IngestJob("t", 0, "j", (_SOURCE,)),
    m.FilesWaiting("t", 0, 1_700_000_000_000, (_SOURCE,)),
    m.TableChanged("t", True),
    m.CompactionJob("t", 0, "j"),
    m.PartitionSplits("t", 0, ("root", "01"), True),
    m.GarbageCandidates("t", 0, ("s-0",)),
    m.PurgeStep("t", "p"),
    m.ExportTask("t", "e", 0),
    m.SparkRunChanged("run1"),
    AnswerQuery(
        query_id="q",
        table="letters",
        selection=m.SelectionMessage(where="at > 1", columns=("letter",), limit=2),
        limits=QueryLimits(rows=10, seconds=60, dollars=0.5),
        format="csv",
        to="answers",
    ),
    AnswerQuery(query_id="q-2", sql="SELECT :n", parameters={"n": 1}),
    CancelQuery(query_id="q"),
    QueryTask(query_id="q", task=1),
]
STATEMENTS = (
    "SELECT carrier, count(*) FROM flights WHERE carrier >= 'B' GROUP BY 1 ORDER BY 2 DESC LIMIT 3",
    'WITH late AS (SELECT * FROM "a.b" FOR VERSION AS OF 33 AS x) SELECT max(d) FROM late',
    "SELECT a.n FROM f a JOIN g FOR TIMESTAMP AS OF '2026-01-31' b ON a.k = b.k WHERE f > $1",
    "EXPLAIN SELECT place['city'], INTERVAL '1 day' FROM t UNION ALL VALUES (1, :n)",
)
RULES = (
    AccessRule("aws-id:A*", "let*", ("read",), ("note",)),
    AccessRule("local", "letters", ("read", "write", "administer")),
)
_CREATE: dict[str, Any] = COUNTS.to_json()
REQUESTS: list[Any] = [
    r.CreateTable("1", "made", _CREATE, {"gc_delay_seconds": 1}, (("a",), ("b", 1))),
    r.DeleteTable("2", "letters"),
    r.SetOnline("3", "letters", False),
    r.RenameTable("4", "letters", "others"),
    r.ReinitialiseTable("5", "letters", False, (("m",),)),
    r.ReinitialiseTable("5a", "letters", True, schema=_CREATE),
    r.SetProperties("6", "letters", {"compaction_files": 3}, ("gc_delay_seconds",)),
    r.SetDefaults("7", {"compaction_files": 3}, ("filters",)),
    r.GrantAccess("7a", "aws-id:A*", "let*", ("read",), ("note",)),
    r.RevokeAccess("7b", "local", "letters"),
    r.ClearAccess("7c"),
    r.AlterSchema("8", "letters", ({"name": "x", "type": "LongType", "nullable": True},)),
    r.AlterSchema("9", "letters", drop=("note",), rename={"note": "text"}),
    r.PurgeRows("10", "letters", m.SelectionMessage(where="note = 'x'")),
    r.PurgeRows("11", "letters", m.SelectionMessage(keys=(("a",),))),
    r.ForgetSubjects("11a", "letters", ("a", 7)),
    r.CompactTable("12", "letters", True),
    r.SplitPartitions("13", "letters", "root", True),
    r.CollectGarbage("14", "letters"),
    r.PublishIceberg("14a", "letters", all=True),
    r.ExportRows(
        "15",
        "letters",
        "out",
        m.SelectionMessage(
            ranges=((("a",), None),), keys=(("b",),), where="at > 1", columns=("letter",), as_of=1
        ),
    ),
    r.ExportRows("16", "letters", selection=m.SelectionMessage(as_of="2026-01-31T12:00:00Z")),
    r.IngestFiles("17", "letters", ("letters/1.csv", "letters")),
    r.Redrive("18", "files", ("a",)),
]
NOTIFICATIONS: list[Any] = [
    json.loads(record["body"])
    for stage in ("batch_files", "track_spark")
    for record in json.loads((EVENTS / stage / "good.json").read_text())["Records"]
]

TYPES = ["long", "decimal(10,2)", "list<string>", "map<string,list<long>>", "struct<a:int,b?:date>"]
CONDITIONS = [
    "s = 'a' AND NOT (l > 3 OR d IS NULL)",
    "t BETWEEN TIMESTAMP '2026-01-31 12:00:00' AND TIMESTAMP '2026-02-01'",
    "i IN (1, 2, -3) AND b = X'00ff'",
    "n >= 12.50 AND f / 2 < 1e3 AND l % 7 = 1",
    "lower(trim(s)) LIKE 'a%' OR length(s) > 3 OR starts_with(s, 'x')",
    "EXTRACT(YEAR FROM day) = 2024 AND coalesce(o, TRUE) IS TRUE",
    "nullif(s, '') IS DISTINCT FROM 'x' AND \"st\" IS NOT NULL",
    "day = DATE '2024-02-29' OR m IS NULL OR -l + 3 <> 0",
]
FILTERS = ["ageOff(at, 86400000)", "where(n > 3 AND k <> 'x,)(')", 'ageOff("at", 1), where(n = 1)']
AGGREGATIONS = ["sum(c), map_sum(m)", "min(c), map_max(m)", "first(c), first(m)", "", 'max("c")']
KEYS = [
    "abc",
    "12",
    "-3",
    "AP8=",
    "2024-02-29",
    "2024-02-29T12:00:00Z",
    "t=2024-02-29T12:00:00Z,b=AP8=",
    "t=1..t=2,b=AP8=",
    "gc_delay_seconds=12",
    "x:list<long>",
    '{"name": "x", "type": "LongType"}',
]
SPLITS = [
    b'2024-01-01T00:00:00Z\n["2024-02-01T00:00:00Z", "AP8="]\n',
    b'a\nb\n["c", 1]\n',
    b"YQ==\r\nYg==\r\n",
]
DECLARED: dict[str, Any] = {
    "tables": [
        {
            "name": "new",
            "schema": COUNTS.to_json(),
            "properties": {"compaction_files": 3, "filters": None},
            "online": False,
            "splits": ["a", ["b", 1]],
        },
        {"name": "there", "properties": {"gc_delay_seconds": 5}, "splits": []},
    ]
}
DECLARATIONS = [
    b"tables:\n- name: new\n  schema:\n    rowKeyFields: [{name: k, type: StringType}]\n"
    b"  splits: [2024-01-31, b]\n- name: there\n  online: yes\n  properties: {filters: null}\n",
    b"tables: &a\n- {name: there, properties: {compaction_files: 0x10, filters: !!str 1}}\n- *a\n",
    b"a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"
    b"c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n"
    b"e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n"
    b"g: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\nh: &h [*g,*g,*g,*g,*g,*g,*g,*g,*g]\n"
    b"tables: [*h,*h,*h,*h,*h,*h,*h,*h,*h]\n",
]

_SELECTION = Selection(
    1, ("k",), (KeyRange(("a",), ("b", 1)),), parse_condition("c > 1", COUNTS), time_ms=2
)
_EXPORT = ExportRequest("e", "out", ReadTable.of(Table("t", "letters", COUNTS), _SELECTION))
_UNDER = (("u", KeyRange((), ("m",))), ("v", KeyRange((), ("c",))))
_ORIGIN = Provenance(KeyRange((), ("m",)), "j", 1, lineage=Lineage(("s",), ("i",), _UNDER, ("c",)))
_SHARD = Shard.of("s-0", 3, 100, ("a", 1), ("z", 2))
_FOOTER = ShardFooter("t", "s-0", EVERY_TYPE, _ORIGIN, 3, ("a",), ("z",), ((("a",), 0),))
_PATH = "the/path"
_PURGE = purge_request(COUNTS, "c > 1", time_ms=1)


def _ending(body: bytes) -> list[RunMarker]:
    storage = MemoryStorage()
    storage.put(RUN_MARKERS.path("t", "run"), body)
    return read_run_markers(storage, "t")


def _stored_ending() -> bytes:
    storage = MemoryStorage()
    put_run_marker(storage, "t", RunMarker("run", _ORIGIN, (1,)))
    return storage.get(RUN_MARKERS.path("t", "run"))


def _manifest(body: bytes) -> object:
    storage = MemoryStorage()
    storage.put(manifest_path("out"), body)
    return load_manifest(storage, "out")


_QUERY = Query(AnswerQuery(query_id="q", table="letters"), "x", 1, "1", 1)
_FILES = TaskFiles((ResultFile("part-00000-000.parquet", 3, 100),))
Decode = Callable[[bytes], object]


def _note(kind: Kind[Any], body: msgspec.Struct) -> tuple[bytes, Decode, str]:
    return kind.encode(body, _PATH), lambda stored: kind.decode(stored, _PATH), _PATH


NOTES: dict[str, tuple[bytes, Decode, str]] = {
    "an export": _note(EXPORT, _EXPORT),
    "a task": (
        encode_pieces([Piece(KeyRange(("a",), None), (_SHARD,))], "a task", _PATH),
        lambda b: decode_pieces(b, "a task", _PATH),
        _PATH,
    ),
    "files": _note(FILES, _FILES),
    "a manifest": (
        msgspec.json.encode(build_manifest(_EXPORT, [_FILES])),
        _manifest,
        manifest_path("out"),
    ),
    "a purge": _note(REQUEST, _PURGE),
    "verdicts": _note(MATCHES, ShardMatches(frozenset("a"), frozenset("b"))),
    "a query": _note(QUERY, _QUERY),
    "the end of a sub-query": _note(
        TASK_END, TaskEnd((), "", Spent(1), columns={"t": ("at",)}, versions={"x": (1,)})
    ),
    "the manifest of a query": (
        END.encode(QueryEnd(query="q", state="finished", question="x", ended_ms=1), _PATH),
        lambda b: END.decode(b, _PATH),
        _PATH,
    ),
    "a footer": (encode_footer(_FOOTER), lambda b: decode_footer(b, _PATH), _PATH),
    "an ending": (_stored_ending(), _ending, RUN_MARKERS.path("t", "run")),
}
"""Notes beside tables: a good one, what reads it, and the path that errors are to name."""
