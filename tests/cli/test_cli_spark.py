"""Spark asked for on the command line, for one job."""

from __future__ import annotations

from pathlib import Path

import pytest

from dormouse.messages import Message
from dormouse.model.spark import SparkOptions
from tests.cli.conftest import ROWS, Dormouse
from tests.support.instances import InMemory

ASKED = ("--property", "spark_executors=3")
WANTED = SparkOptions(spark_executors=3)


def for_spark(memory: InMemory) -> list[Message]:
    return [message.message for message in memory.world.queue if message.queue == "spark-jobs"]


def test_each_verb_that_makes_heavy_jobs_gives_them_to_spark(
    flights: Dormouse, memory: InMemory
) -> None:
    Path("more.csv").write_text(ROWS)
    assert flights("ingest", "flights", "more.csv", "--wait").exit_code == 0
    memory.world.sources.drop("there/1.csv", ROWS.encode())
    memory.sleeper.asleep = True
    for arguments in (
        ("compact", "flights", "--all"),
        ("export", "flights", "--no-wait"),
        ("ingest", "flights", "--prefix", "there"),
    ):
        memory.world.queue.clear()
        assert flights(*arguments, *ASKED).exit_code == 0, arguments
        (sent,) = for_spark(memory)
        assert sent.spark == WANTED  # type: ignore[attr-defined]


def test_a_purge_has_spark_rewrite(flights: Dormouse, memory: InMemory) -> None:
    asked = ("table", "purge", "flights", "--key", "carrier=B6", "--force", "--timeout", "5")
    assert flights(*asked, "--spark").exit_code == 5, "Spark does nothing here"
    (run,) = memory.world.spark.runs.values()
    assert run.kind == "compaction"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("compact", "flights", "--property", "compaction_files=3"), "no property of a single job"),
        (("compact", "flights", "--property", "spark_executors=0"), "must be at least 1"),
        (("export", "flights", "--property", "spark_executors"), "is no property"),
        (("export", "flights", "--property", "spark_executors=many"), "must be a whole number"),
        (("ingest", "flights", "rows.csv", "--spark"), "go where the table says"),
    ],
)
def test_what_cannot_be_asked_of_spark_is_refused_before_anything_is_done(
    flights: Dormouse, memory: InMemory, arguments: tuple[str, ...], reason: str
) -> None:
    memory.world.queue.clear()
    refused = flights(*arguments)
    assert refused.exit_code == 4, refused.output
    assert reason in refused.stderr
    assert not memory.world.queue and not memory.bucket.dropped
