"""The benchmark of the HTTP API measures what it says, with what functions have and at prices."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from bench.figures import Figure, Figures, parsed
from bench.service import __main__ as service
from bench.service import measured
from bench.service.measured import Layers
from dormouse.files.results import json_objects


def figures_of(capsys: pytest.CaptureFixture[str]) -> Figures:
    return Figures(parsed(capsys.readouterr().out))


def report(figures: Figures) -> str:
    return "\n\n".join(service.report(figures))


def test_the_large_result_is_of_two_gigabytes() -> None:
    middle = measured.readings(service.RESULT_ROWS // 2, service.RESULT_ROWS // 2 + 1000)
    lines = [
        msgspec.json.encode(row) + b"\n" for b in middle.to_batches() for row in json_objects(b)
    ]
    assert service.RESULT_ROWS * sum(map(len, lines)) / len(lines) == pytest.approx(2e9, rel=0.03)


def test_look_ups_clients_and_results_are_those_of_a_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    measured.look_ups(str(tmp_path / "a"), 20, 3000)
    measured.clients(str(tmp_path / "b"), 4, 1.0, 3000)
    measured.results(str(tmp_path / "c"), 12_000)
    found = figures_of(capsys)
    assert found.get("clients", "HTTP", 4, "errors") == 0
    assert found.sizes("results", "pages") == found.sizes("results", "files") == [12_000]
    sizes = {found.get("results", way, 12_000, "megabytes") for way in ("pages", "files")}
    assert len(sizes) == 1
    text = report(found)
    assert "| files" in text


def test_a_look_up_costs_what_it_asks(capsys: pytest.CaptureFixture[str]) -> None:
    measured.show({"GetItem": 2, "GetObject": 3}, 0.001, 10)
    found = figures_of(capsys)
    assert found.get("dollars", "S3", 10, "a_million") == pytest.approx(3 * 0.4)
    assert found.get("dollars", "DynamoDB", 10, "a_million") == pytest.approx(2 * 0.125)
    by_cpu = found.get("dollars", "function, by its CPU time", 10, "a_million")
    assert by_cpu == pytest.approx(1000 * 1769 / 1024 * 0.0000133334, rel=1e-3)
    assert f"cost ${1 + 0.2 + 1.2 + 0.25 + (by_cpu or 0):.2f}" in report(found)


def test_functions_are_imported_with_the_packages_of_their_layers_alone(tmp_path: Path) -> None:
    layers = Layers(tmp_path / "layers")
    known = "import importlib.util as u, json; print(json.dumps([bool(u.find_spec(n)) for n in "
    there = layers.run("-c", known + "('pyarrow', 'dormouse', 'datafusion', 'functions')]))")
    assert json.loads(there.stdout) == [True] * 4
    absent = layers.run("-c", known + "('numpy', 'boto3', 'awscrt', 'moto', 'pytest')]))")
    assert json.loads(absent.stdout) == [False] * 5


def test_what_was_not_measured_is_not_in_the_report() -> None:
    text = report(Figures([Figure("starts", "serve_http", 0, "cpu_seconds", 0.5)]))
    assert "serve_http" in text
    assert "million" not in text
