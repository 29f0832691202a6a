"""Spark asked for on the command line, for one job."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dormouse.client.waiting import SparkApplication
from dormouse.errors import UnavailableError
from dormouse.features.spark import ARCHIVE
from dormouse.messages.stages import Message
from dormouse.settings import library_version
from dormouse.stored.paths import spark_package_path
from dormouse.tables.properties import SparkOptions
from dormouse_cli.main import app
from dormouse_cli.session import Session
from tests.cli.conftest import ROWS, Dormouse
from tests.support.instances import InMemory
from tests.support.spark_package import VERSION, package_in

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


def application() -> tuple[str, str] | None:
    return "00f1", "STARTED"


def forbidden() -> tuple[str, str] | None:
    raise UnavailableError("EMR Serverless could not be read: AccessDenied")


def shown(memory: InMemory, find: SparkApplication, *more: str) -> str:
    """Return what is said of an instance."""
    instance = replace(memory.instance, spark_application=find)
    done = CliRunner().invoke(app, ["instance", "show", *more], obj=Session(instance=instance))
    assert done.exit_code == 0, done.output
    return done.stdout if more else " ".join(done.stdout.split())


def test_an_instance_shows_whether_it_has_spark_and_whether_its_package_fits(
    memory: InMemory,
) -> None:
    storage = memory.world.storage
    assert "no application" in shown(memory, lambda: None)
    assert "not known: EMR Serverless could not be read" in shown(memory, forbidden)
    found = shown(memory, application)
    assert "application 00f1, STARTED" in found
    assert "package missing: the first job for Spark brings it" in found
    old = package_in(memory.world.folder / "old", library="0" * 16, version="a" * 16)
    for path in old.iterdir():
        storage.upload(spark_package_path("a" * 16, path.name), path)
    found = shown(memory, application)
    assert f"package other version: {'a' * 16}, of version {'0' * 16}" in found
    assert library_version() in found
    package = memory.world.spark.package
    for path in package.iterdir():
        if path.name != ARCHIVE:
            storage.upload(spark_package_path(VERSION, path.name), path)
    assert "package other version" in shown(memory, application), "one that is not whole"
    storage.upload(spark_package_path(VERSION, ARCHIVE), package / ARCHIVE)
    assert f"package fits: {VERSION}" in shown(memory, application)


def test_what_an_instance_has_of_spark_is_shown_as_json_too(memory: InMemory) -> None:
    *_, last = shown(memory, application, "--format", "json").splitlines()
    spark = json.loads(last)["spark"]
    assert (spark["application"], spark["state"]) == ("00f1", "STARTED")
    assert spark["package"] == "missing"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("compact", "flights", "--property", "compaction_files=3"), "no property of a single job"),
        (("compact", "flights", "--property", "spark_executors=0"), "must be at least 1"),
        (("export", "flights", "--property", "spark_executors"), "has no value"),
        (("export", "flights", "--property", "spark_executors=many"), "must be a whole number"),
        (("ingest", "flights", "rows.csv", "--spark"), "go where the table says"),
    ],
)
def test_invalid_spark_options_are_refused_before_anything_is_done(
    flights: Dormouse, memory: InMemory, arguments: tuple[str, ...], reason: str
) -> None:
    memory.world.queue.clear()
    refused = flights(*arguments)
    assert refused.exit_code == 4, refused.output
    assert reason in refused.stderr
    assert not memory.world.queue and not memory.bucket.dropped
