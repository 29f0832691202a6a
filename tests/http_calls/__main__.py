"""Property-based calls of the API from its own description, by each group of callers in turn.

`make test-http MINUTES=10` serves an instance in a folder, and lets Schemathesis ask what
`/openapi.json` describes: also what does not fit it. No answer may be a fault of the server or
outside the description, and nothing may have changed that the group of the caller may not change.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from dormouse.access import LOCAL, AccessRule, Verb
from dormouse.client.instance import Instance
from dormouse.features.http.calls import guarded, refusal
from dormouse.features.http.serve_http import DOCUMENT, serve_http
from dormouse.http.loopback import LoopbackServer

TOKEN = "calls"
GROUPS: tuple[tuple[Verb, ...], ...] = (("read",), ("read", "write"), ("administer", "read"))
NOT_CHECKED = "positive_data_acceptance"
"""That data which fits the description is accepted: there may be no table of that name."""


def main() -> int:
    """Call for some minutes; return 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("minutes", type=float)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    seconds = max(1, round(given.minutes * 60 / len(GROUPS)))
    failed = [group for group in GROUPS if not called(group, seconds, given.seed)]
    for group in failed:
        print(f"something is wrong with what callers get who may {', '.join(group)}")
    return 1 if failed else 0


def called(group: tuple[Verb, ...], seconds: int, seed: int) -> bool:
    """Let a group of callers call an instance of their own; return whether all was right."""
    print(f"== callers who may {', '.join(group)}: {seconds} seconds", flush=True)
    with tempfile.TemporaryDirectory() as folder, Instance.open(Path(folder) / "mice") as instance:
        fill(instance)
        rule = AccessRule(LOCAL, "*", group)
        instance.services.tables.change_access_rules(lambda _: (rule,))
        before = shown(instance, group)
        answer = guarded(partial(serve_http, instance), TOKEN)
        with LoopbackServer(answer, refuse=refusal, streamed=("PUT",)) as server:
            is_good = run(server.url, seconds, seed)
        instance.wait()
        after = shown(instance, group)
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) != after.get(name):
                print(f"changed: {name}, from {before.get(name)} to {after.get(name)}")
        return is_good and before == after


def run(url: str, seconds: int, seed: int) -> bool:
    """Run Schemathesis, which shows what it finds; return whether it found nothing."""
    command = [
        *(sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"),
        *("run", f"{url}{DOCUMENT}", "--header", f"Authorization: Bearer {TOKEN}"),
        *("--max-time", str(seconds), "--seed", str(seed), "--continue-on-failure"),
        *("--checks", "all", "--exclude-checks", NOT_CHECKED, "--warnings", "off"),
        *("--request-timeout", "60", "--suppress-health-check", "all"),
    ]
    return subprocess.run(command, check=False, cwd=tempfile.gettempdir()).returncode == 0


def fill(instance: Instance) -> None:
    """Make two tables with rows."""
    rows = pa.table({"id": range(20), "name": [f"n{n}" for n in range(20)]})
    for name in ("people", "places"):
        schema = "id: long, name: string"
        instance.create_table(name, schema, row_keys=["id"]).ingest(rows)
    instance.wait()


def shown(instance: Instance, group: tuple[Verb, ...]) -> dict[str, Any]:
    """Return what callers of a group may not change."""
    found: dict[str, Any] = {"rules": instance.services.tables.access_rules()}
    if "administer" in group:
        return found
    for handle in instance.tables():
        table = handle.current()
        found[table.name] = table.schema.to_json(), table.online, table.own
        if "write" not in group:
            found[f"{table.name}, rows"] = handle.query().read_all().to_pylist()
            listed = instance.services.sources.list(f"{table.name}/", since_ms=0)
            found[f"{table.name}, files"] = [source.key for source in listed]
    return found


if __name__ == "__main__":
    sys.exit(main())
