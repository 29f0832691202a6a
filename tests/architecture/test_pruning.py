"""What is taken out of layers is what no function uses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from shared import pack_datafusion, prune_layer

from dormouse.aws import clients

ON_MACHINES_OF_PEOPLE = {"apigatewayv2"}
"""What no function asks: the console asks where its API is."""


def test_layers_know_just_the_services_that_the_library_makes_clients_of() -> None:
    assert {*prune_layer.SERVICES} == {*clients.SERVICES} - ON_MACHINES_OF_PEOPLE


def test_what_is_of_all_services_stays(tmp_path: Path) -> None:
    for kept in ("s3/2006-03-01/service-2.json", "endpoints.json", "partitions.json"):
        (tmp_path / kept).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / kept).write_text("{}")
    (tmp_path / "ec2" / "2016-11-15").mkdir(parents=True)
    prune_layer.drop_services(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"s3", "endpoints.json", "partitions.json"}


def test_a_packed_engine_is_unpacked_when_it_is_imported(tmp_path: Path) -> None:
    layer, scratch = tmp_path / "layer", tmp_path / "scratch"
    scratch.mkdir()
    for name, text in (
        ("__init__", "from datafusion.inner import ANSWER"),
        ("inner", "ANSWER = 42"),
    ):
        (layer / "datafusion" / f"{name}.py").parent.mkdir(parents=True, exist_ok=True)
        (layer / "datafusion" / f"{name}.py").write_text(text)
    pack_datafusion.main(layer)
    assert {path.name for path in layer.iterdir()} == {"datafusion.py", "datafusion.zip"}
    code = "import datafusion.inner, datafusion\nprint(datafusion.ANSWER, datafusion.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(layer), "TMPDIR": str(scratch)}
    command = [sys.executable, "-S", "-c", code]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.startswith(f"42 {scratch}")
