"""While a dropped file is loaded, the next are downloaded; what is refused is refused alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dormouse.errors import RefusedSourceError, UnavailableError
from dormouse.files import loader as loader_module
from dormouse.files.loader import DOWNLOADS_AT_ONCE, SourceLoader, load_sources
from dormouse.ports import Arrived
from dormouse.schema.schema import Schema
from dormouse.state.sources import Source

PATIENCE_SECONDS = 20
"""How long a download waits for others before the test fails; no test waits for it otherwise."""
SCHEMA = Schema.from_json({"rowKeyFields": [{"name": "k", "type": "LongType"}]})
MEMORY_BYTES = 1 << 24


class Bucket:
    """Files of one row each, which is the number in the file's name."""

    def __init__(self, before: Callable[[int], object] = lambda number: None) -> None:
        self.before = before

    def download(self, source: Source, local: Path, arrived: Arrived | None = None) -> None:
        number = int(source.key.partition("/")[2].partition(".")[0])
        self.before(number)
        local.write_text(f"k\n{number}\n")

    def list(self, prefix: str, *, since_ms: int) -> Iterator[Source]:
        raise AssertionError("the sources are named")


def files(count: int, size_bytes: int = 10) -> list[Source]:
    return [Source("ingest", f"t/{n}.csv", f"etag{n}", size_bytes) for n in range(count)]


class Loading:
    """What is loaded of some files."""

    def __init__(self, scratch: Path, bucket: Bucket) -> None:
        self.loader = SourceLoader(SCHEMA, scratch, memory_bytes=MEMORY_BYTES)
        self.scratch, self.bucket = scratch, bucket
        self.refused: dict[str, str] = {}
        self.most_files = 0

    def load(self, wanted: list[Source]) -> list[int]:
        """Load the files; return the keys of all rows."""
        with closing(load_sources(self.bucket, self.loader, wanted, self.scratch)) as loaded:
            for source, refusal in loaded:
                self.most_files = max(self.most_files, len(list(self.scratch.glob("*"))))
                if refusal is not None:
                    self.refused[source.key] = str(refusal)
        return [key for batch in self.loader.sorter.sorted_rows() for key in batch["k"].to_pylist()]


def test_small_files_are_downloaded_together(tmp_path: Path) -> None:
    """Fifty files take four rounds, not fifty."""
    rounds = [threading.Barrier(DOWNLOADS_AT_ONCE) for _ in range(3)]

    def wait(number: int) -> None:
        if number < len(rounds) * DOWNLOADS_AT_ONCE:
            rounds[number // DOWNLOADS_AT_ONCE].wait(PATIENCE_SECONDS)

    assert Loading(tmp_path, Bucket(wait)).load(files(50)) == list(range(50))
    assert not list(tmp_path.iterdir())


def test_the_next_file_is_downloaded_while_one_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = threading.Event()
    add = SourceLoader.add

    def patient(loader: SourceLoader, local: Path, key: str, *rest: Any) -> None:
        assert key != "t/0.csv" or second.wait(PATIENCE_SECONDS), "it waits for its turn"
        add(loader, local, key, *rest)

    monkeypatch.setattr(SourceLoader, "add", patient)
    bucket = Bucket(lambda number: second.set() if number else None)
    assert Loading(tmp_path, bucket).load(files(2)) == [0, 1]


def test_files_ahead_have_a_bounded_part_of_the_scratch_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader_module, "AHEAD_BYTES", 30)
    loading = Loading(tmp_path, Bucket())
    assert loading.load(files(20, size_bytes=10)) == list(range(20))
    assert loading.most_files <= 3, "one is loaded and gone, three are ahead of the next"


def test_a_file_that_exceeds_what_may_be_ahead_is_downloaded_when_its_turn_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader_module, "AHEAD_BYTES", 5)
    loading = Loading(tmp_path, Bucket())
    assert loading.load(files(4, size_bytes=10)) == [0, 1, 2, 3]
    assert loading.most_files == 0


def test_a_refused_file_is_refused_alone_and_in_its_place(tmp_path: Path) -> None:
    def refuse(number: int) -> None:
        if number == 2:
            raise RefusedSourceError("'t/2.csv' was overwritten")

    loading = Loading(tmp_path, Bucket(refuse))
    assert loading.load(files(5)) == [0, 1, 3, 4]
    assert loading.refused == {"t/2.csv": "'t/2.csv' was overwritten"}
    assert not list(tmp_path.iterdir())


def test_a_failed_download_is_raised_when_its_turn_comes_and_leaves_no_file(tmp_path: Path) -> None:
    def fail(number: int) -> None:
        if number == 3:
            raise UnavailableError("no answer")

    loading = Loading(tmp_path, Bucket(fail))
    with pytest.raises(UnavailableError, match="no answer"):
        loading.load(files(40))
    assert loading.loader.sorter.rows == 3
    assert not list(tmp_path.iterdir())
