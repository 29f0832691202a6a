"""The way in: a file counts as a whole or not at all, however much of it was read or spilled."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from dormouse.arrow.types import arrow_schema
from dormouse.errors import RefusedSourceError
from dormouse.files import loader as intake_module
from dormouse.files.loader import SourceLoader
from dormouse.rows.sorting import Sorter
from dormouse.schema.schema import Schema

SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "k", "type": "LongType"}],
        "valueFields": [{"name": "v", "type": "StringType"}],
    }
)
LITTLE = 1 << 20
PLENTY = 1 << 30


def csv_file(local: Path, keys: Iterable[object], width: int = 10) -> Path:
    local.write_text("k,v\n" + "".join(f"{key},{'x' * width}\n" for key in keys))
    return local


def shuffled(start: int, end: int) -> list[int]:
    keys = list(range(start, end))
    random.Random(start).shuffle(keys)
    return keys


def keys_of(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return [key for batch in batches for key in batch.column("k").to_pylist()]


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("memory_bytes", [LITTLE, PLENTY])
def test_rows_of_all_files_come_out_sorted(
    tmp_path: Path, scratch: Path, memory_bytes: int
) -> None:
    intake = SourceLoader(SCHEMA, scratch, memory_bytes=memory_bytes)
    for n in range(4):
        keys = shuffled(20_000 * n, 20_000 * n + 30_000)
        intake.add(csv_file(tmp_path / "file", keys), "letters/1.csv")
    assert intake.sorter.rows == 120_000
    assert intake.sorter.size_bytes > 120_000 * 18
    assert bool(list(scratch.iterdir())) == (memory_bytes == LITTLE)
    expected = sorted(key for n in range(4) for key in shuffled(20_000 * n, 20_000 * n + 30_000))
    assert keys_of(intake.sorter.sorted_rows()) == expected
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("memory_bytes", [LITTLE, PLENTY])
def test_a_file_bad_at_its_last_row_is_dropped_as_a_whole_and_leaves_the_others(
    tmp_path: Path, scratch: Path, memory_bytes: int
) -> None:
    intake = SourceLoader(SCHEMA, scratch, memory_bytes=memory_bytes)
    intake.add(csv_file(tmp_path / "good", shuffled(0, 30_000)), "letters/1.csv")
    bad = csv_file(tmp_path / "bad", [*shuffled(30_000, 150_000), "no number"])
    with pytest.raises(RefusedSourceError, match="line 120002"):
        intake.add(bad, "letters/2.csv")
    intake.add(csv_file(tmp_path / "next", shuffled(30_000, 40_000)), "letters/3.csv")
    assert intake.sorter.rows == 40_000
    assert keys_of(intake.sorter.sorted_rows()) == list(range(40_000))
    assert not list(scratch.iterdir())


def test_a_loader_without_files_returns_no_rows(tmp_path: Path, scratch: Path) -> None:
    intake = SourceLoader(SCHEMA, scratch, memory_bytes=LITTLE)
    intake.add(csv_file(tmp_path / "empty", []), "letters/1.csv")
    assert keys_of(intake.sorter.sorted_rows()) == []


def test_a_scratch_space_that_is_full_says_so_and_the_files_before_keep_their_rows(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    intake = SourceLoader(SCHEMA, scratch, memory_bytes=LITTLE)
    intake.add(csv_file(tmp_path / "good", range(100)), "letters/1.csv")

    def full(_: Sorter) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Sorter, "spill", full)
        with pytest.raises(OSError, match="no space left"):
            intake.add(csv_file(tmp_path / "large", range(100_000)), "letters/2.csv")
    assert keys_of(intake.sorter.sorted_rows()) == list(range(100))


def test_rows_that_were_read_before_a_file_turned_out_bad_are_dropped(
    scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def halting(*_: object) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([{"k": 1, "v": "x"}], arrow_schema(SCHEMA))
        raise RefusedSourceError("bad at its second row")

    intake = SourceLoader(SCHEMA, scratch, memory_bytes=PLENTY)
    with monkeypatch.context() as patched:
        patched.setattr(intake_module, "read_source", halting)
        with pytest.raises(RefusedSourceError, match="second row"):
            intake.add(tmp_path / "bad", "letters/1.csv")
    assert intake.sorter.rows == 0
    assert keys_of(intake.sorter.sorted_rows()) == []
