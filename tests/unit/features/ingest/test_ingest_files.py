"""What lies in the ingest bucket is ingested on request: once, or refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from dormouse.errors import InvalidRequestError, NotFoundError
from dormouse.features import batch_files as ingest_files
from dormouse.features.administration import administer
from dormouse.messages.requests import IngestFiles, ReinitialiseTable
from dormouse.messages.stages import IngestJob
from tests.support.world import World, letters, letters_file


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    for key, text in {
        "archive/2023/a.parquet": "ab",
        "archive/2024/b.parquet": "cd",
        "archive/2024/deep/c.parquet": "ef",
        "archive/20240.parquet": "x",
        "single.parquet": "g",
    }.items():
        world.sources.drop(key, letters_file(letters(text)))
    return world


def request(*keys: str, request_id: str = "r") -> IngestFiles:
    return IngestFiles(request_id, "letters", keys)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (("archive",), "abcdefx"),
        (("archive/2024",), "cdef"),
        (("archive/2024/",), "cdef"),
        (("archive/2024/b.parquet", "single.parquet"), "cdg"),
        (("archive/2024", "archive/2024/deep"), "cdef"),
    ],
)
def test_objects_and_folders_anywhere_in_the_bucket_are_ingested(
    world: World, keys: tuple[str, ...], expected: str
) -> None:
    table = world.create()
    world.administer(request(*keys))
    world.settle(twice=True)
    assert world.names(table) == expected


def test_a_folder_is_cut_into_jobs_and_what_is_ingested_already_is_left_out(world: World) -> None:
    table = world.create(ingest_job_max_files=2)
    world.administer(request("archive/2024"))
    world.settle()
    world.administer(request("archive", request_id="again"))
    jobs = [m.message for m in world.queue if isinstance(m.message, IngestJob)]
    assert [source.key for job in jobs for source in job.sources] == [
        "archive/2023/a.parquet",
        "archive/20240.parquet",
    ]
    world.settle()
    assert world.names(table) == "abcdefx"


def test_keys_under_which_there_is_nothing_are_refused_by_name_and_nothing_is_ingested(
    world: World,
) -> None:
    world.create()
    with pytest.raises(NotFoundError, match="has no 'arch', 'archive/2025'"):
        administer(world.services, request("arch", "archive/2024", "archive/2025"))
    record = world.job_record("r")
    assert record is not None
    assert (record.state, "'archive/2025'" in record.reason) == ("refused", True)
    assert not world.queue


@pytest.mark.parametrize("keys", [(), ("",), ("/",), ("single.parquet", "")])
def test_a_request_must_say_which_files(world: World, keys: tuple[str, ...]) -> None:
    world.create()
    with pytest.raises(InvalidRequestError, match="names no files"):
        administer(world.services, request(*keys))


def test_more_files_than_fit_a_request_are_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.create()
    monkeypatch.setattr(ingest_files, "MAX_FILES", 3)
    with pytest.raises(InvalidRequestError, match="more than 3 files"):
        administer(world.services, request("archive"))


def test_messages_lost_after_the_request_was_remembered_are_sent_by_its_redelivery(
    world: World,
) -> None:
    table = world.create()
    world.administer(request("single.parquet"))
    world.queue.clear()
    world.administer(request("single.parquet"))
    world.settle()
    assert world.names(table) == "g"


def test_a_reset_table_ingests_the_same_files_again_when_asked(world: World) -> None:
    table = world.create()
    world.administer(request("single.parquet"))
    world.settle()
    world.administer(ReinitialiseTable("empty", "letters"))
    world.administer(request("single.parquet", request_id="again"))
    world.settle()
    assert world.names(table) == "g"
