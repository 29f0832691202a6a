"""The shape of the code, held as facts: who imports whom, and how big a file may grow."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "shared" / "dormouse"
SOURCES = sorted(LIBRARY.rglob("*.py"))
ALL_CODE = [
    path
    for folder in ("shared", "functions", "cli", "spark", "tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
]

LAYERS = [
    {"errors", "cache", "extras", "library", "lifeline", "readahead", "retry_policy", "showing"},
    {"keys"},
    {"schema"},
    {"iceberg.types"},
    {"arrow.types"},
    {"key_forms"},
    {"stored"},
    {"sql"},
    {"iceberg.types"},
    {"tables"},
    {"access"},
    {"http"},
    {"console"},
    {"model"},
    {"fold"},
    {"state_store"},
    {"messages"},
    {"ports"},
    {"access.doors", "access.results"},
    {"storage", "seekable"},
    {"profiles", "settings", "system"},
    {"statestore.blobs", "statestore.parquet_file"},
    {"statestore.delta"},
    {"statestore.by_key"},
    {"statestore.snapshot"},
    {"statestore.log"},
    {"statestore"},
    {"arrow"},
    {"shards.format"},
    {"shards"},
    {"readers"},
    {"engine"},
    {"sources"},
    {"results"},
    {"query"},
    {"statements"},
    {"iceberg"},
    {"jobs"},
    {"features", "features.requests"},
    {"features.tables"},
    {"features.access"},
    {"features.garbage"},
    {"features.versions"},
    {"features.ingest"},
    {"features.export"},
    {"features.queries"},
    {"features.publishing"},
    {"features.catalog"},
    {"features.spark"},
    {"features.planning"},
    {"features.dead_letters"},
    {"features.splitting"},
    {"features.purge"},
    {"features.checking"},
    {"features.compaction"},
    {"features.rebuild"},
    {"features.copying"},
    {"features.administration"},
    {"features.sweep"},
    {"aws.base"},
    {"aws.sqs"},
    {"aws.s3"},
    {"aws.dynamodb"},
    {"aws.connections", "aws.emr", "aws.glue", "aws.reader_access", "aws.signed_socket"},
    {"aws.http_proxy"},
    {"aws.wiring"},
    {"aws.functions"},
    {"aws"},
    {"folder"},
    {"client"},
    {"features.http"},
    {"features.websocket"},
]
"""Lowest first. A module imports from lower layers and its own, never from higher ones."""

HOMES = {
    "boto3": (),  # what it has beside botocore is not used, and takes a tenth of a second
    "botocore": ("aws/",),
    "aws_lambda_powertools": ("aws/",),
    "pyarrow": (
        "arrow/",
        "shards/",
        "readers/",
        "engine/",
        "sources/",
        "query/",
        "results/",
        "statements/",
        "key_forms/arrow",
        "iceberg/files/position_deletes",
        "features/compaction/merge",
        "features/export/files",
        "features/http/resources/",
        "features/queries/answering/",
        "features/websocket/",
        "features/purge/row_matcher",
        "statestore/parquet_file",
        "statestore/by_key/",
        "statestore/delta/",
        "statestore/snapshot/",
        "statestore/source_codec",
        "client/",
    ),
    "datafusion": ("engine/", "shards/", "statements/child/"),
    "isal": ("stored/crc32",),
    "pyspark": (),
    "websockets": ("http/websocket", "client/socket"),
    "sqlglot": ("sql/",),
}
"""Which files of the library may import what, by how their paths begin."""


def layer_of(module: str) -> int | None:
    """Return the layer of a module below ``dormouse``; the longest name that fits decides."""
    parts = module.split(".")
    for length in (3, 2, 1):
        name = ".".join(parts[:length])
        for i, layer in enumerate(LAYERS):
            if name in layer:
                return i
    return None


def imports_of(path: Path) -> set[str]:
    """Return the modules a file imports, wherever in the file it does."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(LIBRARY).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_lower_layers_never_import_higher_ones(path: Path) -> None:
    own = layer_of(name_of(path))
    if own is None:
        assert name_of(path) in ("", "__init__"), f"{path} belongs to no layer"
        return
    for module in imports_of(path):
        if module.startswith("dormouse."):
            imported = layer_of(module.removeprefix("dormouse."))
            assert imported is None or imported <= own, f"{name_of(path)} imports {module}"


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_each_third_party_library_has_its_home(path: Path) -> None:
    place = path.relative_to(LIBRARY).as_posix()
    for module in imports_of(path):
        homes = HOMES.get(module.partition(".")[0])
        assert homes is None or place.startswith(homes), f"{place} imports {module}"


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_crcs_are_computed_in_one_place_only(path: Path) -> None:
    if path.relative_to(LIBRARY).as_posix() != "stored/crc32.py":
        assert "zlib.crc32" not in imports_of(path), path
        assert "zlib.crc32(" not in path.read_text(), path


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_msgspec_meets_classes_in_one_place_only(path: Path) -> None:
    if path.relative_to(LIBRARY).as_posix() != "stored/decoding.py":
        text = path.read_text()
        assert "msgspec.convert(" not in text, path
        assert "msgspec.json.decode(" not in text, path


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_clock_ids_randomness_and_environment_come_as_arguments(path: Path) -> None:
    place = path.relative_to(LIBRARY).as_posix()
    imported = imports_of(path)
    if not place.startswith(("aws/", "folder/", "system.py", "http/loopback.py")):  # the machine
        assert not imported & {"time", "uuid", "random", "secrets"}, place
        assert ".now(" not in path.read_text(), place
    if place != "settings.py":
        assert "os.environ" not in path.read_text(), place
        assert "getenv" not in path.read_text(), place


@pytest.mark.parametrize("path", ALL_CODE, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_files_and_functions_fit_in_a_head(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 400, "at most 400 lines a file"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            assert lines <= 60, f"{node.name} has {lines} lines"


def test_only_the_jobs_and_their_tests_know_spark() -> None:
    knowing = {
        path.relative_to(ROOT).parts[:2]
        for path in ALL_CODE
        if any(name.partition(".")[0] in ("pyspark", "py4j") for name in imports_of(path))
    }
    jobs = {("spark", "demo.py"), ("spark", "dormouse_spark")}
    assert knowing <= {*jobs, ("tests", "spark"), ("tests", "engines")}


@pytest.mark.parametrize("path", sorted((ROOT / "functions").glob("*/*.py")), ids=str)
def test_handlers_only_hand_over(path: Path) -> None:
    text = path.read_text()
    assert path.name == "handler.py"
    assert text.count("\n") <= 30
    imported = {name.partition(".")[0] for name in imports_of(path)}
    assert not imported & {"boto3", "pyarrow", "datafusion"}
