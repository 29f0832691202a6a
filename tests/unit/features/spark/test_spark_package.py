"""The package of Spark jobs: brought once, whole, and of the very version of the functions."""

from __future__ import annotations

from pathlib import Path

import pytest

from dormouse.errors import CorruptDataError, InvalidRequestError, UnavailableError
from dormouse.features.spark import ARCHIVE, DESCRIPTION
from dormouse.settings import library_version
from dormouse.stored.paths import SPARK_CODE, spark_package_path
from tests.support.spark_package import VERSION, package_in
from tests.support.world import World
from tests.unit.features.heavy import Heavy, heavy_compaction, heavy_ingest

FILES = {ARCHIVE, DESCRIPTION, "bulk_import.py", "compact.py", "export_rows.py", "statement.py"}


def brought(world: World, version: str = VERSION) -> set[str]:
    """Return the files of a package that lie in the data bucket."""
    prefix = f"{SPARK_CODE}/{version}/"
    return {stored.path.removeprefix(prefix) for stored in world.storage.list(prefix)}


def test_a_run_finds_its_package_in_the_data_bucket(heavy: Heavy) -> None:
    assert heavy.dispatch() == []
    (run,) = heavy.world.spark.runs.values()
    assert run.package == VERSION
    assert brought(heavy.world) == FILES


def test_a_package_that_is_there_is_not_put_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heavy = heavy_ingest(World(tmp_path))
    heavy.dispatch()
    heavy.end("failed")
    with monkeypatch.context() as patch:
        patch.setattr(heavy.world.storage, "upload", lambda *_: World.crash())
        assert heavy.dispatch() == []
    assert len(heavy.world.spark.runs) == 2


@pytest.mark.parametrize("landed", range(len(FILES)))
def test_a_package_put_in_part_is_made_whole_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, landed: int
) -> None:
    heavy = heavy_ingest(World(tmp_path))
    upload, left = heavy.world.storage.upload, list(range(landed))

    def breaking(path: str, local: Path) -> bool:
        if not left:
            raise UnavailableError("S3 did not answer")
        left.pop()
        return upload(path, local)

    with monkeypatch.context() as patch:
        patch.setattr(heavy.world.storage, "upload", breaking)
        (again,) = heavy.dispatch()
    assert (again.queue, again.message) == ("spark-jobs", heavy.again)
    assert heavy.world.spark.runs == {}
    assert DESCRIPTION not in brought(heavy.world), "it is put last"
    assert heavy.world.deliver(again) == []
    assert brought(heavy.world) == FILES
    assert len(heavy.world.spark.runs) == 1


def test_jobs_of_another_deployment_run_by_its_package_and_leave_the_first_alone(
    tmp_path: Path,
) -> None:
    heavy = heavy_ingest(World(tmp_path))
    heavy.dispatch()
    heavy.end("failed")
    other = "fedcba9876543210"
    heavy.world.spark.package = package_in(tmp_path / "other", version=other)
    heavy.dispatch()
    first, second = heavy.world.spark.runs.values()
    assert (first.package, second.package) == (VERSION, other)
    assert brought(heavy.world) == brought(heavy.world, other) == FILES


def test_a_deployment_between_the_start_of_a_run_and_its_note_does_not_use_its_token_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heavy = heavy_ingest(World(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr("dormouse.features.spark.save_spark_run", lambda *_: None)
        heavy.dispatch()
    heavy.world.spark.package = package_in(tmp_path / "other", version="fedcba9876543210")
    assert heavy.dispatch() == []
    assert len({run.token for run in heavy.world.spark.runs.values()}) == 2


@pytest.mark.parametrize("make", [heavy_ingest, heavy_compaction])
@pytest.mark.parametrize("library", ["0000000000000000", ""])
def test_no_run_is_started_by_a_package_that_is_missing_or_of_another_version(
    tmp_path: Path, make: type[Heavy], library: str
) -> None:
    heavy = make(World(tmp_path))  # type: ignore[arg-type, call-arg]
    world, fitting = heavy.world, heavy.world.spark.package
    world.spark.package = (
        package_in(tmp_path / "old", library=library) if library else tmp_path / "none"
    )
    (dead,) = heavy.dispatch()
    assert (dead.queue, dead.message) == ("spark-jobs-dead", heavy.job)
    assert "make build" in dead.reason
    wrong = f"of version {library}" if library else "is missing"
    assert wrong in dead.reason and (not library or library_version() in dead.reason)
    assert (heavy.record().state, heavy.record().reason) == ("failed", dead.reason)
    assert world.spark.runs == {} and brought(world) == set()
    world.spark.package = fitting
    heavy.dispatch()  # sent back once it is repaired
    heavy.work()
    assert heavy.end("succeeded") == heavy.follows


def test_a_missing_application_is_reported_once_and_its_jobs_run_when_it_is_back(
    tmp_path: Path,
) -> None:
    heavy = heavy_compaction(World(tmp_path))
    gone = InvalidRequestError("EMR Serverless refuses the run: Application a does not exist")
    heavy.dispatch()
    heavy.world.spark.runs.clear()  # with their application
    heavy.world.spark.refusals = [gone]
    (dead,) = heavy.dispatch()
    assert (dead.queue, dead.reason) == ("spark-jobs-dead", str(gone))
    assert heavy.record().state == "failed"
    assert set(heavy.world.state(heavy.table).jobs) == {"heavy"}, "it is not lost"
    assert heavy.dispatch() == []
    heavy.work()
    assert heavy.end("succeeded") == heavy.follows


def test_a_damaged_description_of_a_package_is_no_package(tmp_path: Path) -> None:
    heavy = heavy_ingest(World(tmp_path))
    (heavy.world.spark.package / DESCRIPTION).write_bytes(b'{"v": 2}')
    with pytest.raises(CorruptDataError, match=r"package\.json does not describe a package"):
        heavy.dispatch()
    assert heavy.world.spark.runs == {}


def test_a_package_is_no_table_to_an_audit(tmp_path: Path) -> None:
    heavy = heavy_ingest(World(tmp_path))
    heavy.dispatch()
    heavy.world.clock.advance(seconds=400 * 24 * 60 * 60)
    heavy.world.age_objects(seconds=400 * 24 * 60 * 60)
    heavy.world.sweep(audit=True)
    assert heavy.world.storage.get(spark_package_path(VERSION, ARCHIVE)) == b"{}"
