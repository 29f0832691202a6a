"""The failure of a task is reported without any value of a row."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator

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
