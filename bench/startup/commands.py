"""Measure commands of an environment: the CPU time that each process takes, user and system."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.figures import emit
from bench.measure import cpu_seconds
from dormouse_cli.local.commands import LOCAL_PARAMETERS, find_template
from dormouse_cli.local.stack import LocalStack
from tools.wheel import Environment, build_wheel

ROWS, FILES = 20_000, 3
SCHEMA = {
    "rowKeyFields": [{"name": "carrier", "type": "StringType"}],
    "sortKeyFields": [{"name": "flight", "type": "LongType"}],
    "valueFields": [{"name": "delay", "type": "LongType"}],
}
PYTHON = {
    "an empty program": "pass",
    "import dormouse": "import dormouse",
    "one client of botocore": (
        "from botocore.session import Session; "
        "Session().create_client('dynamodb', region_name='eu-west-1')"
    ),
}
COMMANDS = {
    "table list": ("table", "list"),
    "status": ("status", "flights"),
    "query --key": ("query", "flights", "--key", "carrier=AA,flight=7"),
}
COMPLETION = {
    "_DORMOUSE_COMPLETE": "complete_bash",
    "COMP_WORDS": "dormouse status fl",
    "COMP_CWORD": "2",
}


def measure_all(place: str, rounds: int) -> None:
    """Make an environment from the wheel, an instance in a folder and one on the local stack with
    the same table, and run each command in turns; print the figures.

    Of a command the least time counts: whatever else the machine does only adds to it.
    """
    folder = Path(place)
    environment = Environment(folder / "aws", build_wheel(folder / "wheel"), "[aws]")
    make_files(environment.home)
    in_folder = {"DORMOUSE_INSTANCE": str(environment.home / "mice")}
    with TemporaryDirectory(dir=folder) as logs:
        stack = LocalStack(find_template(), LOCAL_PARAMETERS, Path(logs))
        with stack:
            instances = {"folder": in_folder, "deployment": dict(stack.environment)}
            for variables in instances.values():
                make_table(environment, variables)
            measure(environment, instances, rounds)


def make_files(home: Path) -> None:
    """Write a schema and files of rows."""
    (home / "schema.json").write_text(json.dumps(SCHEMA))
    for number in range(FILES):
        rows = (f"AA,{row},{row % 60}\n" for row in range(number, ROWS, FILES))
        (home / f"{number}.csv").write_text("carrier,flight,delay\n" + "".join(rows))


def make_table(environment: Environment, variables: Mapping[str, str]) -> None:
    """Create the table in an instance, and wait for its rows."""
    files = [f"{number}.csv" for number in range(FILES)]
    environment.run("dormouse", "table", "add", "flights", "--schema", "schema.json", **variables)
    environment.run("dormouse", "ingest", "flights", *files, "--wait", **variables)


def measure(
    environment: Environment, instances: Mapping[str, Mapping[str, str]], rounds: int
) -> None:
    """Run everything in turns, and print the least CPU seconds of each."""
    least: dict[tuple[str, str], float] = {}
    for _ in range(rounds):
        for where, what, seconds in one_round(environment, instances):
            least[where, what] = min(seconds, least.get((where, what), seconds))
    for (where, what), seconds in least.items():
        emit(where, what, 0, cpu_seconds=seconds)


def one_round(
    environment: Environment, instances: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[str, str, float]]:
    """Yield where each command ran, what it is, and its CPU seconds."""
    for what, program in PYTHON.items():
        yield "python", what, cpu_seconds_of(environment, "python", "-c", program)
    for where, variables in instances.items():
        for what, arguments in COMMANDS.items():
            yield where, what, cpu_seconds_of(environment, "dormouse", *arguments, **variables)
        completing = {**variables, **COMPLETION}
        yield where, "completion of a name", cpu_seconds_of(environment, "dormouse", **completing)


def cpu_seconds_of(
    environment: Environment, program: str, *arguments: str, **variables: str
) -> float:
    """Return the CPU seconds of one run of a program, which must succeed."""
    before = cpu_seconds()
    environment.run(program, *arguments, **variables)
    return cpu_seconds() - before
