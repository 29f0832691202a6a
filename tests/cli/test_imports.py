"""What a command does not need, it does not import: packages are most of the time it takes."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from dormouse import client
from dormouse.schema.schema import Schema

ROWS = {"pyarrow", "numpy", "datafusion", "pandas"}
"""Packages that work on rows, and numpy and pandas, which these import if they can."""
ELSEWHERE = {"boto3", "moto", "aws_lambda_powertools", "yaml", "jinja2", "plotly", "pyspark"}
"""Packages of functions, of the local stack, of reports and of files of tables."""
AWS = {"botocore"}
DRAWN = {"rich.console", "rich.table"}
"""What draws on a terminal; lists and facts are plain lines."""

RUN = """
import sys
from dormouse_cli.main import main
given, commands = sys.argv[1:], []
while "--" in given:
    commands.append(given[:given.index("--")])
    given = given[given.index("--") + 1:]
for command in (*commands, given):
    sys.argv[1:] = command
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
print("IMPORTED", *sys.modules, file=sys.stderr)
"""
"""Runs one command after the other; `--` is between them."""
RECORD_CLIENTS = """
import sys
from botocore.session import Session
create = Session.create_client
def record(self, service, *arguments, **named):
    print("CLIENT", service, file=sys.stderr)
    return create(self, service, *arguments, **named)
Session.create_client = record
"""

RECORD_LISTINGS = """
import sys
def record(event, arguments):
    if event == "os.listdir":
        print("LISTED", arguments[0], file=sys.stderr)
sys.addaudithook(record)
"""


class Answers(BaseHTTPRequestHandler):
    """A DynamoDB whose tables have no items."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps({"Items": [], "Count": 0, "ScannedCount": 0}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-amz-json-1.0")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def deployment() -> Iterator[dict[str, str]]:
    """Yield the variables of an instance on AWS that has no tables."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "eu-west-2",
        "DORMOUSE_ACCOUNT": "123456789012",
        "DORMOUSE_INSTANCE": "quiet",
    }
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the variables of an instance in a folder, with a table that has three rows."""
    home = tmp_path_factory.mktemp("folder")
    fields = [{"name": "carrier", "type": "StringType"}]
    schema = Schema.from_json({"rowKeyFields": fields, "valueFields": []})
    (home / "rows.csv").write_text("carrier\nAA\nB6\nAA\n")
    with client.Instance.open(home / "mice") as instance:
        instance.create_table("flights", schema).ingest(home / "rows.csv")
    return {"DORMOUSE_INSTANCE": str(home / "mice"), "HOME": str(home)}


def run(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def imported(done: subprocess.CompletedProcess[str]) -> set[str]:
    """Return the packages and modules that a process had imported when it ended."""
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("IMPORTED ")]
    return set(lines[-1].split()[1:])


def test_the_package_imports_nothing() -> None:
    done = run("import dormouse, sys; print('IMPORTED', *sys.modules, file=sys.stderr)")
    assert not imported(done) & (ROWS | ELSEWHERE | AWS | {"msgspec", "typer", "rich"})


def test_the_client_imports_nothing_that_works_on_rows_or_reaches_aws() -> None:
    done = run("import dormouse.client, sys; print('IMPORTED', *sys.modules, file=sys.stderr)")
    assert not imported(done) & (ROWS | ELSEWHERE | AWS)


def test_all_names_of_the_client_can_be_imported_from_it() -> None:
    for name in client.__all__:
        assert getattr(client, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = client.Nothing


@pytest.fixture(scope="module")
def listing(deployment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Return what became of a listing, with the clients it made and the folders it looked into."""
    return run(RECORD_CLIENTS + RECORD_LISTINGS + RUN, "table", "list", **deployment)


def test_tables_on_aws_are_listed_without_what_works_on_rows(
    listing: subprocess.CompletedProcess[str],
) -> None:
    assert not imported(listing) & (ROWS | ELSEWHERE | DRAWN | {"tomllib"})


def test_the_state_of_a_small_table_is_committed_and_read_without_what_works_on_rows() -> None:
    program = """
import sys
from dormouse.state.state import ReleaseJob
from tests.support.adapters import CountingIds, FakeClock
from tests.support.hooked_pages import HookedPages
from tests.support.memory_storage import MemoryStorage
from tests.support.stores import objects_store
clock = FakeClock(0)
kept = MemoryStorage(), HookedPages(), clock, CountingIds(clock)
objects_store("t", *kept).commit(ReleaseJob("none"), generation=0)
assert objects_store("t", *kept).current().version == 1
print("IMPORTED", *sys.modules, file=sys.stderr)
"""
    assert not imported(run(program)) & (ROWS | ELSEWHERE)


def test_a_listing_makes_just_the_client_that_it_asks(
    listing: subprocess.CompletedProcess[str],
) -> None:
    made = [line.split()[1] for line in listing.stderr.splitlines() if line.startswith("CLIENT ")]
    assert made == ["dynamodb"]


def test_a_client_is_made_without_a_look_at_all_services_that_there_are(
    listing: subprocess.CompletedProcess[str],
) -> None:
    lines = listing.stderr.splitlines()
    listed = [line.split()[1] for line in lines if line.startswith("LISTED ")]
    services = [path.rsplit("/", 1)[1] for path in listed if "botocore/data/" in path]
    assert set(services) == {"dynamodb"}
    assert not [path for path in listed if path.endswith("botocore/data")]


def test_a_folder_is_listed_without_aws_and_without_what_works_on_rows(
    folder: dict[str, str],
) -> None:
    commands = "table list -- table show flights -- status flights -- jobs"
    assert not imported(run(RUN, *commands.split(), **folder)) & (ROWS | ELSEWHERE | AWS | DRAWN)


def test_a_key_in_a_folder_is_looked_up_without_datafusion_pandas_or_aws(
    folder: dict[str, str],
) -> None:
    done = run(RUN, "query", "flights", "--key", "carrier=AA", "--format", "csv", **folder)
    assert not imported(done) & (ELSEWHERE | AWS | {"datafusion", "pandas"})
    assert done.stdout.splitlines() == ['"carrier"', '"AA"', '"AA"']


PLAIN = (
    "SELECT * FROM flights WHERE carrier = 'AA'",
    "SELECT carrier FROM flights ORDER BY carrier LIMIT 2",
    "SELECT count(*) FROM flights WHERE carrier >= 'B'",
    "SELECT min(carrier), max(carrier) FROM flights",
)


def test_a_plain_statement_runs_without_datafusion_pandas_the_parser_of_conditions_or_aws(
    folder: dict[str, str],
) -> None:
    commands = [word for text in PLAIN for word in ("--", "sql", text, "--format", "csv")]
    done = run(RUN, *commands[1:], **folder)
    assert not imported(done) & (ELSEWHERE | AWS | {"datafusion", "pandas"})


LOOK_UP = """
import os, sys
from dormouse.client import Instance
with Instance.open(os.environ["DORMOUSE_INSTANCE"], background=False) as instance:
    assert instance.table("flights").query(exact="AA").to_arrow().num_rows == 2
print("IMPORTED", *sys.modules, file=sys.stderr)
"""
OF_CONDITIONS = {"conditions", "key_bounds"}
"""The modules of `dormouse.sql` that bound the keys of any query."""


def test_a_look_up_imports_nothing_of_statements_or_of_queries_over_messages(
    folder: dict[str, str],
) -> None:
    """What a look-up takes does not grow with SQL and with the service beside it."""
    found = imported(run(LOOK_UP, **folder))
    assert {name for name in found if name.startswith("dormouse.sql.")} == {
        f"dormouse.sql.{name}" for name in OF_CONDITIONS
    }
    assert {name for name in found if name.startswith("dormouse.statements.")} <= {
        "dormouse.statements.limits"  # the defaults of the arguments of `Instance.sql`
    }
    others = ("dormouse.features.quer", "dormouse.http.messages", "dormouse.files.results")
    assert not [name for name in found if name.startswith(others)]
    assert not found & {"dormouse.rows.merging", "datafusion", "pandas"}
    # a third of the time of a first look-up
    assert not found & {"dormouse.shards.parquet", "dormouse.log.key_index", "pyarrow.compute"}


def test_rows_are_tested_without_what_merges_them(folder: dict[str, str]) -> None:
    done = run(RUN, "query", "flights", "--where", "carrier = 'AA'", "--format", "csv", **folder)
    assert not imported(done) & (ELSEWHERE | AWS | {"duckdb"})
    assert done.stdout.splitlines() == ['"carrier"', '"AA"', '"AA"']


def test_a_statement_that_another_process_computes_is_parsed_there(folder: dict[str, str]) -> None:
    done = run(RUN, "sql", "SELECT count(*) FROM flights GROUP BY carrier", **folder)
    assert not imported(done) & (ELSEWHERE | AWS | {"datafusion", "pandas"})


def test_a_shell_completes_names_without_what_works_on_rows(deployment: dict[str, str]) -> None:
    done = run(
        RUN,
        _DORMOUSE_COMPLETE="complete_bash",
        COMP_WORDS="dormouse status fl",
        COMP_CWORD="2",
        **deployment,
    )
    assert not imported(done) & (ROWS | ELSEWHERE)


def test_the_package_itself_has_the_instance() -> None:
    import dormouse
    from dormouse.client.instance import Instance

    assert dormouse.Instance is Instance
    with pytest.raises(AttributeError, match="'Instances'"):
        _ = dormouse.Instances
