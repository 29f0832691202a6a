"""Rows that cannot be read are left out one by one; the others are those of a file without them."""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dormouse.errors import RefusedSourceError
from dormouse.files import rejects as rejects_module
from dormouse.files import text_files
from dormouse.files.formats import read_source
from dormouse.files.rejects import Rejects
from dormouse.schema.schema import parse_schema
from dormouse.tables.properties import CsvDialect

SCHEMA = parse_schema("id:long, name:string?, at:date?", ["id"], [])
ONE = parse_schema("id:long?, k:string", ["k"], [])
GOOD = (b'1,"a, b",2026-01-31', b'2,"two\nlines",', b"3,,2026-02-28", b'4,"q""q",', b"5,\xc3\xbc,")
BAD = (
    b"x,name,2026-01-31",  # no number
    b",name,2026-01-31",  # no key
    b"6,name",  # too few fields
    b"7,a,2026-01-31,more",  # too many
    b"8,\xff,",  # no UTF-8
    b'9,"quoted\nin two lines",2026-02-30',  # no date
    b"99999999999999999999,,",  # beyond 64 bits
)
GOOD_LINES = (b'{"id": 1, "name": "a"}', b'{"id": 2}', b' {"at": "2026-01-31", "id": 3}')
BAD_LINES = (
    b'{"id": "x"}',
    b'{"name": "no key"}',
    b'{"id": 1, "id": 2}',
    b'{"id": 1, "other": 2}',
    b'{"id": 1',
    b"[1]",
    b"null",
    b'{"id": 1, "name": "\xff"}',
    b'{"id": 1, "at": "2026-02-30"}',
)


def read(path: Path, key: str, rejects: Rejects | None) -> list[dict[str, object]]:
    batches = read_source(path, key, SCHEMA, None, None, rejects)
    return [row for batch in batches for row in batch.to_pylist()]


def alone(folder: Path, head: bytes, record: bytes, key: str) -> list[dict[str, object]] | None:
    """Return the rows of a file with one record, None if it is refused."""
    path = folder / "alone"
    path.write_bytes(head + record + b"\n")
    try:
        return read(path, key, None)
    except RefusedSourceError:
        return None


@pytest.mark.parametrize(
    ("key", "head", "good", "bad"),
    [("t/a.csv", b"id,name,at\r\n", GOOD, BAD), ("t/a.jsonl", b"", GOOD_LINES, BAD_LINES)],
)
def test_each_record_is_kept_as_if_alone_or_rejected_with_its_line(
    tmp_path_factory: pytest.TempPathFactory,
    key: str,
    head: bytes,
    good: Sequence[bytes],
    bad: Sequence[bytes],
) -> None:
    folder = tmp_path_factory.mktemp("files")
    oracle = {record: alone(folder, head, record, key) for record in (*good, *bad)}
    assert {record for record, rows in oracle.items() if rows is None} == set(bad)

    @settings(max_examples=12, deadline=None)
    @given(st.lists(st.sampled_from([*good, *good, b"", *bad]), max_size=30))
    def check(records: list[bytes]) -> None:
        path, left_out = folder / "file", folder / "left-out"
        left_out.unlink(missing_ok=True)
        path.write_bytes(head + b"".join(record + b"\n" for record in records))
        rejects = Rejects(key, left_out)
        found = read(path, key, rejects)
        kept = [oracle[record] for record in records if record]
        assert found == [row for rows in kept if rows is not None for row in rows]
        wrong = [record for record in records if record in bad]
        assert len(found) + rejects.rows == sum(map(bool, records))
        lines = left_out.read_bytes().splitlines() if wrong else []
        for line, record in zip(map(json.loads, lines), wrong, strict=True):
            as_written = line.get("text", "").encode() or base64.b64decode(line["base64"])
            assert as_written == record
            start = (head + b"".join(each + b"\n" for each in records)).split(b"\n")
            assert start[line["line"] - 1].rstrip() == record.split(b"\n")[0].rstrip()
            assert line["reason"]
            assert not line["reason"].startswith("line")

    check()


def test_what_leaves_the_records_uncertain_refuses_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for key, content, reason in [
        ("t/a.csv", b'id,name,at\n1,"open,\n2,b,\n', "not closed"),
        ("t/a.csv", b'id,name,at\n1,a"b,\n2,b,\n', "a quote inside a field"),
        ("t/a.csv", b"id,nome,at\n1,a,\n", "no column 'nome'"),
        ("t/a.csv", b"name,at\na,\n", "no column 'id'"),
        ("t/a.csv", b"", "empty"),
        ("t/a.json", b'[{"id": 1}, {"id": 2}', "the JSON array"),
        ("t/a.jsonl", b'{"id": 1, "name": "' + b"a" * (1 << 24) + b'"}', "longer than"),
        ("t/id=x/a.csv", b"name,at\na,\n", "the folder of column 'id'"),
    ]:
        path.write_bytes(content)
        with pytest.raises(RefusedSourceError, match=reason):
            read(path, key, Rejects(key))


def test_a_refusal_gets_to_other_processes_with_its_hint(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"id\nx1\n")
    with pytest.raises(RefusedSourceError) as refusal:
        read(path, "t/a.csv", None)
    there = pickle.loads(pickle.dumps(refusal.value))  # noqa: S301  # as Spark does
    assert isinstance(there, RefusedSourceError)
    assert there.explanation == refusal.value.explanation


def test_rows_are_also_judged_by_their_folder_and_the_size_of_their_key(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"id,k\n1,a\n2," + b"k" * 20_000 + b"\n3,b\n4,c\n")
    rejects = Rejects("t/id=3/a.csv")
    found = read_source(path, "t/id=3/a.csv", ONE, CsvDialect(), rejects=rejects)
    assert [row["k"] for batch in found for row in batch.to_pylist()] == ["b"]
    assert [reason.partition(":")[0] for reason in rejects.reasons] == [
        "line 2",
        "line 3",
        "line 5",
    ]


def test_an_array_of_json_is_read_without_its_bad_items(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b'[{"id": 1},\n {"id": "x"}, 7,\n {"id": 2}]')
    rejects = Rejects("t/a.json")
    assert [row["id"] for row in read(path, "t/a.json", rejects)] == [1, 2]
    assert [reason.partition(":")[0] for reason in rejects.reasons] == ["line 2", "line 2"]


def test_many_bad_rows_take_a_few_conversions_of_the_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversions: list[str] = []

    def count(name: str, convert: Callable[..., Any]) -> None:
        monkeypatch.setattr(
            text_files, name, lambda *given: conversions.append(name) or convert(*given)
        )

    count("convert_batch", text_files.convert_batch)
    count("_batch", text_files._batch)
    path, long_key = tmp_path / "file", "k" * 20_000
    for ending, head, good, bad in [
        ("csv", "id,k\n", "{},a", ["x{},a", "{},", f"1{{}},{long_key}", "9{},a"]),
        (
            "jsonl",
            "",
            '{{"id": {}, "k": "a"}}',
            ['{{"id": "x{}", "k": "a"}}', '{{"id": {}}}', "{}", '{{"id": {}, "k": "a", "x": 1}}'],
        ),
    ]:
        conversions.clear()
        lines = [bad[i % 4] if i % 3 == 0 else good for i in range(600)]
        path.write_text(head + "".join(f"{line.format(i % 50)}\n" for i, line in enumerate(lines)))
        rejects = Rejects("t/a")
        read = read_source(path, f"t/a.{ending}", ONE, rejects=rejects)
        kept = [row["k"] for batch in read for row in batch.to_pylist()]
        assert (len(kept), rejects.rows) == ((450, 150) if ending == "csv" else (400, 200))
        assert len(conversions) <= 5


def test_a_file_with_too_many_bad_rows_is_refused_and_so_is_one_without_a_good_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rejects_module, "MOST_REJECTED", 3)
    path = tmp_path / "file"
    path.write_bytes(b"id\n1\n" + b"x\n" * 4)
    with pytest.raises(RefusedSourceError, match="more than 3 rows cannot be read, such as l"):
        read(path, "t/a.csv", Rejects("t/a.csv"))
    rejects = Rejects("t/a.csv")
    path.write_bytes(b"id\nx\n")
    assert not read(path, "t/a.csv", rejects)
    with pytest.raises(RefusedSourceError, match="none of the 1 rows can be read"):
        rejects.check(0)
