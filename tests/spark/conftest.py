"""One small Spark for all tests, and one instance on a local AWS which all its processes reach."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkConf, SparkContext

from dormouse_cli.local.resources import ACCOUNT, aws_environment, isolated_session
from dormouse_cli.local.stack import deploy
from dormouse_cli.local.template import read
from tests.support.world import World

ROOT = Path(__file__).parents[2]
INSTANCE = "spark"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "4",
    "spark.task.maxFailures": "1",
}


@pytest.fixture(scope="session")
def environment() -> Iterator[dict[str, str]]:
    """Deploy an instance on a local AWS; return the variables with which clients find it."""
    command = [sys.executable, "-m", "dormouse_cli.local.moto_server", "0"]
    paths = os.pathsep.join(str(ROOT / folder) for folder in ("shared", "cli"))
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths}
    ) as moto:
        try:
            assert moto.stdout is not None
            port = moto.stdout.readline().rpartition(" ")[2].strip()
            endpoint = f"http://127.0.0.1:{port}"
            deployment = read(ROOT / "template.yaml", {"Instance": INSTANCE}, endpoint)
            deploy(deployment, isolated_session(), endpoint)
            yield {
                **aws_environment(endpoint),
                "DORMOUSE_ACCOUNT": ACCOUNT,
                "DORMOUSE_INSTANCE": INSTANCE,
            }
        finally:
            moto.kill()


@pytest.fixture(scope="session")
def spark(
    environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkContext]:
    """Start Spark with two cores; its Python processes import what this one does."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("SPARK_LOCAL_DIRS", str(tmp_path_factory.mktemp("spark")))
        paths = [ROOT / "shared", ROOT / "cli", ROOT / "spark", ROOT]
        patch.setenv("PYTHONPATH", os.pathsep.join(map(str, paths)))
        context = SparkContext("local[2]", conf=SparkConf().setAll(list(SETTINGS.items())))
    context.setLogLevel("ERROR")
    yield context
    context.stop()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
