"""One small Spark for all tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkConf, SparkContext

from tests.support.world import World

ROOT = Path(__file__).parents[2]
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "4",
    "spark.task.maxFailures": "1",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkContext]:
    """Start Spark with two cores; its Python processes import what this one does."""
    with pytest.MonkeyPatch.context() as patch:
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
