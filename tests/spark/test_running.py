"""The failure of a task is reported without any value of a row."""

from __future__ import annotations

import sys
import traceback
import zipfile
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from zipimport import zipimporter

import pytest
from pyspark import SparkContext

from dormouse.errors import DormouseError, UnavailableError
from dormouse_spark.running import collect_results, run_task

SECRET = "hazel@example.com"


def test_an_unexpected_error_of_a_task_is_reported_by_its_type_and_place(
    spark: SparkContext,
) -> None:
    """What is raised here has all that Spark writes into its own log."""

    def task(_: Iterable[int]) -> Iterator[None | DormouseError]:
        return run_task(broken)

    def broken() -> list[None]:
        raise ValueError(f"{SECRET} is no value")

    with pytest.raises(UnavailableError) as raised:
        collect_results(spark.parallelize([1], 1).mapPartitions(task))
    text = "".join(traceback.format_exception(raised.value))
    assert "a task ended with ValueError" in text
    assert "in broken" in text
    assert SECRET not in text


def test_finders_of_archives_are_forgotten_after_a_task_and_made_again_by_an_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark has each of them read its archive again at the start of each task."""
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("first_in_archive.py", "")
        archive.writestr("second_in_archive.py", "")
    monkeypatch.syspath_prepend(tmp_path / "archive.zip")

    def is_known() -> bool:
        return any(isinstance(one, zipimporter) for one in sys.path_importer_cache.values())

    import_module("first_in_archive")
    assert is_known()
    assert list(run_task(lambda: [1])) == [1]
    assert not is_known()
    import_module("second_in_archive")
    assert is_known()
