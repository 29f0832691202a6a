"""The shape of the code, held as facts: who imports whom, and how big a file may grow."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from itertools import pairwise

from tests.architecture.sources import HOMES, LIBRARY, ROOT, Source, fail_for, sources

LAYERS = [
    {"errors", "lifeline", "features"},
    {"keys"},
    {"stored"},
    {"settings"},
    {"encryption"},
    {"showing"},
    {"schema"},
    {"key_codec"},
    {"sql"},
    {"tables"},
    {"access"},
    {"state"},
    {"messages"},
    {"http"},
    {"console"},
    {"items.records", "items.store", "items.tables"},
    {"system"},
    {"log.pages"},
    {"items.pages"},
    {"log"},
    {"quiet"},
    {"ports"},
    {"storage"},
    {"log.sources"},
    {"arrow"},
    {"shards"},
    {"rows"},
    {"files"},
    {"query"},
    {"statements"},
    {"iceberg"},
    {"jobs"},
    {"items"},
    {"features.long_jobs", "features.requests"},
    {"features.reset"},
    {"features.access"},
    {"features.batch_files"},
    {"features.garbage"},
    {"features.ingest", "features.seal_sources"},
    {"features.versions"},
    {"features.finer_times"},
    {"features.deletion", "features.delete_rows", "features.tables"},
    {"features.export"},
    {"features.export_rows"},
    {"features.queries"},
    {"features.query_plans"},
    {"features.query_runs"},
    {"features.answer_query"},
    {"features.publish_iceberg"},
    {"features.catalog"},
    {"features.spark"},
    {"features.spark_jobs"},
    {"features.planning"},
    {"features.dead_letters"},
    {"features.splitting"},
    {"features.checking"},
    {"features.compaction_steps"},
    {"features.rebuild_plan"},
    {"features.measure"},
    {"features.publishing"},
    {"features.purge"},
    {"features.rebuild"},
    {"features.copying"},
    {"features.purge_rows"},
    {"features.compaction"},
    {"features.administration"},
    {"features.sweep"},
    {"aws"},
    {"folder"},
    {"client"},
    {"features.http"},
]
"""Lowest first. A module imports from lower layers and its own, never from higher ones."""

THIRD_PARTY = {
    "boto3": (),  # what it has beside botocore is not used, and takes a tenth of a second
    "botocore": ("aws/",),
    "aws_lambda_powertools": ("aws/",),
    "pyarrow": (
        "arrow/",
        "shards/",
        "rows/",
        "files/",
        "query/",
        "statements/",
        "iceberg/dead_rows",
        "iceberg/manifests",
        "features/compaction",
        "features/export_rows",
        "features/http/forms",
        "features/http/queries",
        "features/answer_query",
        "features/query_plans",
        "features/purge_rows",
        "log/columns",
        "log/key_index",
        "log/segments",
        "log/increments",
        "log/snapshot",
        "log/sources",
        "client/",
    ),
    "datafusion": ("rows/", "shards/"),
    "duckdb": ("statements/",),
    "isal": ("stored/checksums",),
    "pyspark": (),
}
"""Which files of the library may import what, by how their paths begin."""


MACHINE = ("aws/", "folder/", "system.py", "http/loopback.py")
"""Where the library meets the machine that it runs on."""
ONE_PLACE = {
    "zlib.crc32": "stored/checksums.py",
    "from zlib import": "stored/checksums.py",
    "msgspec.convert(": "stored/decoding.py",
    "msgspec.json.decode(": "stored/decoding.py",
    "os.environ": "settings.py",
    "getenv": "settings.py",
    "from os import": "settings.py",
}
"""What only one file of the library uses."""
_OWN = "|".join(["bench", "tests", "tools", *HOMES])
_OWN_IMPORT = re.compile(rf"^ *(?:from|import) ((?:{_OWN})(?:\.\w+)*)\b", re.MULTILINE)
_TOP_LEVEL = re.compile(r"^(?:async def|def|class) ", re.MULTILINE)


@cache
def layer_of(module: str) -> int | None:
    """Return the layer of a module below ``dormouse``; the longest name that fits decides."""
    parts = module.split(".")
    for length in (3, 2, 1):
        name = ".".join(parts[:length])
        for i, layer in enumerate(LAYERS):
            if name in layer:
                return i
    return None


def library() -> list[tuple[str, Source]]:
    """Return the files of the library by their paths within it."""
    return [(source.place.removeprefix(f"{LIBRARY}/"), source) for source in sources(LIBRARY)]


def test_lower_layers_never_import_higher_ones() -> None:
    breaches = []
    for place, source in library():
        own = layer_of(source.module.removeprefix("dormouse."))
        if own is None and place != "__init__.py":
            breaches.append(f"{source.place} belongs to no layer")
        for line, name in source.statements.imports:
            is_own = name.startswith("dormouse.")
            imported = layer_of(name.removeprefix("dormouse.")) if is_own else None
            if own is not None and imported is not None and imported > own:
                breaches.append(f"{source.place}:{line} imports {name}")
    fail_for(breaches)


def test_each_third_party_library_has_its_home() -> None:
    fail_for(
        f"{source.place}:{line} imports {name}"
        for place, source in library()
        for line, name in source.statements.imports
        if not place.startswith(THIRD_PARTY.get(name.partition(".")[0], ""))
    )


def test_crcs_messages_and_the_environment_are_read_in_one_place_each() -> None:
    fail_for(
        match
        for place, source in library()
        for word, home in ONE_PLACE.items()
        if word in source.text and place != home
        for match in source.matches(re.escape(word))
    )


def test_clock_ids_and_randomness_come_as_arguments() -> None:
    breaches = []
    for place, source in library():
        if not place.startswith(MACHINE):
            breaches += source.matches(r"\.now\(")
            breaches += [
                f"{source.place}:{line} imports {name}"
                for line, name in source.statements.imports
                if name in ("time", "uuid", "random", "secrets")
            ]
    fail_for(breaches)


def test_files_and_functions_fit_in_a_head() -> None:
    breaches = []
    for source in sources("shared", "functions", "cli", "spark", "tests"):
        lines = source.text.count("\n")
        if lines > 800:
            breaches.append(f"{source.place} has {lines} lines, of 800")
        if longest_block(source.text) > 60:
            breaches += [
                f"{source.place}:{function.line} {function.name} has {function.lines} lines, of 60"
                for function in source.statements.functions
                if function.lines > 60
            ]
    fail_for(breaches)


def longest_block(text: str) -> int:
    """Return the most lines from one function or class at the top of a file to the next.

    Most files of tests have only short ones, and need not be parsed.
    """
    starts = [text.count("\n", 0, match.start()) for match in _TOP_LEVEL.finditer(text)]
    return max(end - start for start, end in pairwise([0, *starts, text.count("\n")]))


def test_only_the_jobs_and_their_tests_know_spark() -> None:
    homes = ("spark/demo.py", "spark/dormouse_spark/", "tests/spark/", "tests/engines/")
    fail_for(
        f"{source.place}:{line} imports {name}"
        for source in sources("shared", "functions", "cli", "spark", "tests")
        if "pyspark" in source.text or "py4j" in source.text
        for line, name in source.statements.imports
        if name.partition(".")[0] in ("pyspark", "py4j") and not source.place.startswith(homes)
    )


def test_handlers_only_hand_over() -> None:
    breaches = []
    for source in sources("functions"):
        if re.fullmatch(r"functions/\w+/handler\.py", source.place) is None:
            breaches.append(f"{source.place} is no handler")
        if source.text.count("\n") > 30:
            breaches.append(f"{source.place} has more than 30 lines")
        breaches += [
            f"{source.place}:{line} imports {name}"
            for line, name in source.statements.imports
            if name.partition(".")[0] in ("boto3", "pyarrow", "datafusion")
        ]
    fail_for(breaches)


def test_every_own_module_that_is_imported_exists() -> None:
    """Also by what is only run by make, and by no test; and by programs in strings."""
    fail_for(
        f"{source.place} imports {match[1]}"
        for source in sources("bench", "tests", "tools")
        for match in _OWN_IMPORT.finditer(source.text)
        if not exists(match[1])
    )


@cache
def exists(module: str) -> bool:
    parts = module.split(".")
    path = ROOT.joinpath(HOMES.get(parts[0], ""), *parts)
    return path.with_suffix(".py").is_file() or path.is_dir()


def test_a_class_lies_in_one_file() -> None:
    """No class is there only to be inherited by one class of another module."""
    fail_for(parts_of_classes(sources("shared", "cli", "spark")))


def test_no_two_modules_have_public_classes_of_one_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for source in sources("shared", "cli", "spark"):
        for each in source.statements.classes:
            places[each.name].append(source.place)
    fail_for(
        f"{name} is a class of {', '.join(found)}"
        for name, found in places.items()
        if len(found) > 1 and not name.startswith("_")
    )


def test_a_class_that_is_only_a_part_of_another_is_found() -> None:
    part = "class Part: ...\n"
    whole = "from dormouse.part import Part\nclass Whole(Part): ...\n"
    for other, parts in (
        ("", ["shared/dormouse/part.py:1 Part is only a part of dormouse.whole.Whole"]),
        ("from dormouse.part import Part\nclass Another(Part): ...\n", []),
        ("from dormouse.part import Part\ndef takes(part: Part) -> None: ...\n", []),
    ):
        texts = {"part": part, "whole": whole, "other": other}
        product = [Source(f"shared/dormouse/{name}.py", text) for name, text in texts.items()]
        assert parts_of_classes(product) == parts


def parts_of_classes(product: list[Source]) -> list[str]:
    """Return the classes that nothing uses but one class of another module, as a base."""
    heirs: dict[str, list[str]] = defaultdict(list)
    for source in product:
        full_names = {name.rpartition(".")[2]: name for _, name in source.statements.imports}
        for heir in source.statements.classes:
            for base in heir.bases:
                first, dot, rest = base.partition("[")[0].partition(".")
                name = full_names.get(first, f"{source.module}.{first}") + dot + rest
                heirs[name].append(f"{source.module}.{heir.name}")
    return [
        f"{source.place}:{part.line} {part.name} is only a part of {heir}"
        for source in product
        for part in source.statements.classes
        for heir in heirs[f"{source.module}.{part.name}"]
        if not heir.startswith(f"{source.module}.")
        and len(heirs[f"{source.module}.{part.name}"]) == 1
        and not is_used(part.name, product)
    ]


def is_used(name: str, product: list[Source]) -> bool:
    """Return whether code names a class beside its own, and the one that has it as a base."""
    count = 0
    for source in product:
        count += uses(name, source.tree) if count < 2 and name in source.text else 0
    return count > 1


def uses(name: str, node: ast.AST) -> int:
    """Count the expressions in which a class is named; what it says of itself does not count."""
    if isinstance(node, ast.ClassDef) and node.name == name:
        return 0
    named = (getattr(node, field, None) for field in ("id", "attr", "value"))
    return (name in named) + sum(uses(name, child) for child in ast.iter_child_nodes(node))
