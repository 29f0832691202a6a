"""Statements in SQL as files: every row once, complete with the manifest and not before."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.client.instance import Instance
from dormouse.client.requested import export_result, free_prefix
from dormouse.errors import AlreadyExistsError, InvalidRequestError, LimitExceededError
from dormouse.features import answer_query
from dormouse.files.results import ResultFormat
from dormouse.statements import running
from dormouse.stored import checksums

LIMIT_SECONDS = 0.5
BOMB = "SELECT count(*) FROM n a, n b, n c WHERE a.x + b.x < c.x"


@pytest.fixture(scope="module")
def mice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    folder: Path = tmp_path_factory.mktemp("export") / "mice"
    with Instance.open(folder, background=False) as instance:
        table = instance.create_table("n", "x:long, s:string?", row_keys=["x"])
        table.ingest(pa.table({"x": range(2000), "s": [str(n % 7) for n in range(2000)]}))
        yield instance


def objects(mice: Instance, prefix: str) -> list[str]:
    return [each.path.removeprefix(prefix) for each in mice.services.results.list(prefix)]


def test_the_rows_of_a_statement_are_in_files_that_the_manifest_counts(mice: Instance) -> None:
    done = mice.export_sql("SELECT s, count(*) AS c FROM n GROUP BY s ORDER BY s", to="a/b/")
    assert objects(mice, "a/b/") == ["_manifest.json", "rows-00000.parquet"]
    body = mice.services.results.get("a/b/_manifest.json")
    checksums.verify(body)
    stored = json.loads(body)
    assert (stored["rows"], stored["format"]) == (7, "parquet")
    assert stored["versions"] == {"n": [done.manifest.versions["n"][0]]}
    file = mice.services.results.get(f"a/b/{done.manifest.files[0].name}")
    assert len(file) == done.manifest.size_bytes
    rows = pq.read_table(io.BytesIO(file))
    assert rows.column("s").to_pylist() == list("0123456")
    assert sum(rows.column("c").to_pylist()) == 2000
    assert done.uri.endswith("/a/b")


def test_many_rows_are_divided_between_files_in_their_order(
    mice: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "BATCH_ROWS", 4096)
    monkeypatch.setattr(answer_query, "FILE_BYTES", 1)
    prefix, form = free_prefix(mice.services, "", "csv")
    text = "SELECT n.x + m.x * 2000 AS x FROM n, n m WHERE m.x < 10 ORDER BY 1"
    done = export_result(mice.services, text, mice.sql(text), prefix, form)
    names = [file.name for file in done.manifest.files]
    assert len(names) > 1 and names == sorted(names)
    found = []
    for name in names:
        lines = mice.services.results.get(f"{prefix}/{name}").decode().split()
        assert lines[0].strip('"') == "x"
        found += [int(line) for line in lines[1:]]
    assert found == list(range(20_000))


def test_a_prefix_to_which_another_export_writes_gets_no_manifest(mice: Instance) -> None:
    prefix, form = free_prefix(mice.services, "", "csv")
    result = mice.sql("SELECT x FROM n")
    mice.services.results.put(f"{prefix}/rows-00000.csv", b"x\n")
    with pytest.raises(AlreadyExistsError, match="there are files below"):
        export_result(mice.services, "", result, prefix, form)
    assert objects(mice, prefix) == ["/rows-00000.csv"]


def test_an_export_ends_with_the_first_file_that_another_has_written(
    mice: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_query, "FILE_BYTES", 1)
    prefix, form = free_prefix(mice.services, "", "csv")
    result = mice.sql("SELECT range AS x FROM range(2000000)")
    mice.services.results.put(f"{prefix}/rows-00000.csv", b"x\n")
    with pytest.raises(AlreadyExistsError, match="there are files below"):
        export_result(mice.services, "", result, prefix, form)
    assert objects(mice, prefix) == ["/rows-00000.csv"]


@pytest.mark.parametrize("form", list(ResultFormat))
def test_a_statement_without_rows_has_a_file_with_its_columns(
    mice: Instance, form: ResultFormat
) -> None:
    done = mice.export_sql("SELECT x, s FROM n WHERE x < 0", form=form.value)
    (file,) = done.manifest.files
    assert (file.rows, done.manifest.rows) == (0, 0)
    assert file.name == f"rows-00000{form.suffix}"


def test_a_statement_that_ends_early_has_no_manifest(mice: Instance) -> None:
    with pytest.raises(LimitExceededError):
        mice.export_sql(BOMB, to="bomb", timeout_seconds=LIMIT_SECONDS)
    assert "_manifest.json" not in objects(mice, "bomb/")


def test_a_prefix_with_files_is_refused_before_anything_is_read(mice: Instance) -> None:
    mice.export_sql("SELECT 1 AS one", to="taken")
    with pytest.raises(AlreadyExistsError, match="there are files below 'taken'"):
        mice.export_sql("no statement at all", to="taken")


@pytest.mark.parametrize(
    ("text", "to", "form", "reason"),
    [
        ("SELECT 1", "../up", "parquet", "is no prefix of the results bucket"),
        ("SELECT 1", "x", "xlsx", "there is no format 'xlsx'; formats: parquet"),
        ("DELETE FROM n", "x", "csv", "only queries can"),
        ("SELECT y FROM n", "x", "csv", "there is no column y"),
    ],
)
def test_what_cannot_be_exported_is_refused_and_leaves_nothing(
    mice: Instance, text: str, to: str, form: str, reason: str
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        mice.export_sql(text, to=to, form=form)
    assert reason in refused.value.explanation
    assert objects(mice, "x/") == []
