"""Folders named column=value give their files that value, and never contradict them silently."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.client.inferring import infer_schema
from dormouse.client.ingesting import files_to_drop, local_copies
from dormouse.errors import InvalidRequestError, NotFoundError, RefusedSourceError
from dormouse.files.formats import read_source
from dormouse.schema.schema import Schema, parse_schema

SCHEMA = parse_schema(
    "carrier:string, day:date, n:long, year:int?, tags:list<long>?", ["carrier"], ["day"]
)
Read = Callable[..., list[dict[str, object]]]
FOLDERS = "flights/carrier=AA/day=2024-02-29"


def written(folder: Path, key: str, rows: dict[str, list[object]]) -> Path:
    """Write rows to a file of the format that its name says."""
    local = folder / Path(key).name
    local.parent.mkdir(parents=True, exist_ok=True)
    names, lines = list(rows), list(zip(*rows.values(), strict=True))
    if key.endswith(".parquet"):
        pq.write_table(pa.table(rows), local)
    elif key.endswith(".arrow"):
        table = pa.table(rows)
        with pa.ipc.new_file(local, table.schema) as file:
            file.write_table(table)
    elif key.endswith(".csv"):
        cells = [["" if v is None else str(v) for v in line] for line in lines]
        local.write_text("\n".join(",".join(line) for line in [names, *cells]) + "\n")
    else:
        table = pa.table(rows)
        table.to_pandas().to_json(local, orient="records", lines=True)
    return local


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read_rows(
        key: str, rows: dict[str, list[object]], schema: Schema = SCHEMA
    ) -> list[dict[str, object]]:
        local = written(tmp_path, key, rows)
        batches = list(read_source(local, key, schema))
        return [row for batch in batches for row in batch.to_pylist()]

    return read_rows


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".csv", ".jsonl"])
def test_columns_that_a_file_lacks_come_from_its_folders_keys_too(read: Read, ending: str) -> None:
    rows = read(f"{FOLDERS}/year=2024/part-0{ending}", {"n": [1, 2]})
    assert [(r["carrier"], str(r["day"]), r["year"], r["n"]) for r in rows] == [
        ("AA", "2024-02-29", 2024, 1),
        ("AA", "2024-02-29", 2024, 2),
    ]


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl"])
def test_a_file_that_has_the_column_too_agrees_or_is_refused(read: Read, ending: str) -> None:
    key = f"{FOLDERS}/part-0{ending}"
    assert len(read(key, {"n": [1, 2], "carrier": ["AA", "AA"]})) == 2
    with pytest.raises(RefusedSourceError, match="row 2, column 'carrier': the value is not that"):
        read(key, {"n": [1, 2], "carrier": ["AA", "secret"]})


def test_a_row_in_a_later_batch_is_found_and_no_value_is_shown(read: Read) -> None:
    rows: dict[str, list[object]] = {"n": list(range(40_000)), "carrier": ["AA"] * 40_000}
    rows["carrier"][39_999] = "secret"
    with pytest.raises(RefusedSourceError, match="row 40000") as refused:
        read(f"{FOLDERS}/part-0.parquet", rows)
    assert "secret" not in refused.value.hint + str(refused.value)


def test_null_and_escapes_are_those_of_spark(read: Read) -> None:
    key = "flights/carrier=A%2F%C3%BC%3D/day=2024-02-29/year=__HIVE_DEFAULT_PARTITION__/1.parquet"
    (row,) = read(key, {"n": [1]})
    assert (row["carrier"], row["year"]) == ("A/ü=", None)
    (row,) = read(key, {"n": [1], "year": [None]})
    assert row["year"] is None
    with pytest.raises(RefusedSourceError, match="'year': the value is not that"):
        read(key, {"n": [1], "year": [2024]})


@pytest.mark.parametrize(
    ("folders", "why"),
    [
        ("carrier=AA/day=soon", "the folder of column 'day' gives no "),
        ("carrier=AA/day=2024-02-29/year=2024.5", "the folder of column 'year' gives no "),
        ("carrier=__HIVE_DEFAULT_PARTITION__/day=2024-02-29", "'carrier' says null"),
        ("carrier=AA/day=2024-02-29/carrier=UA", "give column 'carrier' other values"),
        ("carrier=AA/day=2024-02-29/tags=1", "only columns of single values"),
        ("carrier=AA", "the file has no column 'day'"),
        ("carrier=%E9/day=2024-02-29", "a folder of the file is not UTF-8"),
    ],
)
def test_what_a_folder_cannot_mean_is_refused(read: Read, folders: str, why: str) -> None:
    with pytest.raises(RefusedSourceError) as refused:
        read(f"flights/{folders}/1.parquet", {"n": [1]})
    assert why in f"{refused.value}; {refused.value.hint}"


def test_folders_of_other_names_mean_nothing(read: Read) -> None:
    (row,) = read(f"{FOLDERS}/region=eu/=x/2024/1.csv", {"n": [1]})
    assert row["year"] is None


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    for carrier, number in (("9", 1), ("AA", 2)):
        written(tmp_path / "lake" / f"carrier={carrier}", "part-0.parquet", {"n": [number]})
    return tmp_path / "lake"


def test_files_are_dropped_under_names_that_keep_such_folders(lake: Path) -> None:
    both = ["t/carrier=9/part-0.parquet", "t/carrier=AA/part-0.parquet"]
    one = lake / "carrier=AA" / "part-0.parquet"
    for given, keys in (
        ([lake], both),
        ([one], both[1:]),
        ([one.parent], both[1:]),
        ([one.parent / "*.parquet"], both[1:]),
        ([lake / "*" / "*.parquet"], both),
    ):
        assert [key for key, _ in files_to_drop("t", given)] == keys


def test_names_that_are_not_utf_8_are_refused_before_anything_is_dropped(tmp_path: Path) -> None:
    for name in (b"\xe9.parquet", b"carrier=\xe9/1.parquet"):
        file = Path(os.fsdecode(bytes(tmp_path) + b"/" + name))
        file.parent.mkdir(exist_ok=True)
        file.touch()
        with pytest.raises(RefusedSourceError, match="is not UTF-8"):
            files_to_drop("t", [file])
    escaped = written(tmp_path / "carrier=%E9", "1.parquet", {"n": [1]})
    with pytest.raises(RefusedSourceError, match="is not UTF-8"):
        infer_schema(escaped, ["n"])


def test_a_schema_like_such_a_file_has_their_columns_of_all_folders_beside(lake: Path) -> None:
    inferred = infer_schema(lake / "carrier=9" / "part-0.parquet", ["carrier"])
    assert [f"{f.name}:{f.type.name}" for f in inferred.schema.fields] == [
        "carrier:STRING",
        "n:LONG",
    ]
    assert "folders" in inferred.columns[-1].found


def test_files_at_urls_have_the_same_keys_however_often_they_are_copied(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "day=7"
    folder.mkdir(parents=True)
    for name in ("a.csv", "_SUCCESS"):
        (folder / name).write_text("id\n1\n")
    url = tmp_path.as_uri()
    for given, keys in (
        ([f"{url}/data/day=7/a.csv"], ["t/day=7/a.csv"]),
        ([f"{url}/data"], ["t/day=7/a.csv"]),
        ([f"{url}/data", str(folder / "a.csv")], None),
    ):
        found = []
        for _ in range(2):
            with local_copies(given, tmp_path) as paths:
                files = files_to_drop("t", paths)
                assert all(path.read_text() == "id\n1\n" for _, path in files)
            found.append([key for key, _ in files])
        assert found[0] == found[1] and keys in (None, found[0])
    for wrong, error in ((f"{url}/none.csv", NotFoundError), ("x:y://z", InvalidRequestError)):
        with pytest.raises(error), local_copies([wrong], tmp_path):
            pass
    assert not list(tmp_path.glob(".copies-*"))
