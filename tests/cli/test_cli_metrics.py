from __future__ import annotations

import json

from tests.cli.conftest import Dormouse


def test_metrics_are_those_of_one_table_or_of_all(flights: Dormouse) -> None:
    flights("table", "add", "empty", "--schema", "schema.json")
    one = json.loads(flights("metrics", "flights", "--format", "json").stdout)
    assert one == {
        "table": "flights",
        "shards": 1,
        "rows": 5,
        "references": 1,
        "partitions": 1,
        "leaf_partitions": 1,
        "references_per_leaf": 1,
        "jobs_assigned": 0,
        "oldest_job_age_seconds": 0,
        "garbage_shards": 0,
        "disputed_shards": 0,
        "log_length": one["log_length"],
    }
    both = [json.loads(line) for line in flights("metrics", "--format", "json").stdout.splitlines()]
    assert [each["table"] for each in both] == ["empty", "flights"]
    assert "references_per_leaf" in flights("metrics").stdout
    assert flights("metrics", "nothing").exit_code == 3


def test_an_instance_without_tables_has_no_metrics(dormouse: Dormouse) -> None:
    assert dormouse("metrics", "--format", "json").stdout == ""
