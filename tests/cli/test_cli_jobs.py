from __future__ import annotations

import json
from typing import Any

import pytest

from dormouse.errors import UnavailableError
from tests.cli.conftest import Dormouse, fly
from tests.support.instances import InMemory
from tests.support.made_once import made_once
from tests.support.world import World, letters

HEADER = "carrier,flight,at,delay\n"


def listed(dormouse: Dormouse, *arguments: str) -> list[dict[str, Any]]:
    shown = dormouse("jobs", *arguments, "--format", "json")
    assert shown.exit_code == 0, shown.output
    return [json.loads(line) for line in shown.stdout.splitlines()]


@pytest.fixture
def busy(dormouse: Dormouse, memory: InMemory) -> Dormouse:
    """Flights that were compacted, with a refused file, a failed compaction and one not begun."""
    work(memory.world)
    return dormouse


@made_once
def work(world: World) -> None:
    fly(world)
    for number in range(12):
        world.drop(f"flights/{number}.csv", f"{HEADER}AA,{number},1970-01-01,1\n".encode())
    world.drop("flights/bad.csv", b"carrier\nAA\n")
    world.settle()
    for number in range(12):
        world.drop(f"flights/again-{number}.csv", f"{HEADER}BB,{number},1970-01-01,1\n".encode())
    while world.queue[0].queue == "ingest-jobs":
        world.queue += world.deliver(world.queue.popleft())
    world.queue += world.deliver(world.queue.popleft())
    (job,) = [m for m in world.queue if m.queue == "compaction-jobs"]
    world.before_next_commit(unavailable)
    with pytest.raises(UnavailableError):
        world.deliver(job)


def unavailable() -> None:
    raise UnavailableError("DynamoDB is throttled")


def test_jobs_report_how_long_they_took_how_many_rows_and_how_often_they_were_tried(
    busy: Dormouse,
) -> None:
    done, failed = listed(busy, "flights", "--kind", "compaction")
    assert (done["state"], done["attempts"]) == ("finished", 1)
    assert (failed["state"], failed["attempts"], failed["rows"]) == ("failed", 1, 0)
    assert done["files"] >= 2
    assert done["rows_read"] == done["rows"] > 0
    assert done["size_bytes"] > 0
    assert done["seconds"] == 0
    assert done["started"] == done["finished"]


def test_only_what_failed_was_refused_or_is_unfinished_can_be_requested(busy: Dormouse) -> None:
    (failed,) = listed(busy, "flights", "--failed")
    assert failed["reason"] == "DynamoDB is throttled"
    (refused,) = listed(busy, "flights", "--refused")
    assert refused["subject"] == "flights/bad.csv"
    both = listed(busy, "flights", "--failed", "--refused")
    assert {j["job"] for j in both} == {failed["job"], refused["job"]}
    assert listed(busy, "flights", "--unfinished") == []


def test_a_job_that_was_never_started_is_shown_from_the_state(
    busy: Dormouse, memory: InMemory
) -> None:
    (failed,) = listed(busy, "flights", "--failed")
    memory.world.tracker.kept.clear()
    (waiting,) = listed(busy, "flights", "--unfinished", "--kind", "compaction")
    assert (waiting["job"], waiting["state"]) == (failed["job"], "assigned")
    assert waiting["rows_read"] >= 12


def test_one_job_is_shown_in_full_by_its_id(busy: Dormouse) -> None:
    (failed,) = listed(busy, "flights", "--failed")
    shown = busy("jobs", "flights", "--id", failed["job"]).stdout
    assert "DynamoDB is throttled" in shown
    assert "rows_read" in shown
    missing = busy("jobs", "flights", "--id", "nothing")
    assert missing.exit_code == 3
    assert "seven days" in missing.stderr


def test_what_belongs_to_no_table_is_found_without_a_name(busy: Dormouse) -> None:
    assert busy("table", "delete", "flights", "--force").exit_code == 0
    (deleted,) = listed(busy, "--kind", "delete_table")
    assert (deleted["subject"], deleted["state"]) == ("flights", "finished")


def test_splits_and_garbage_are_jobs_too(flights: Dormouse, memory: InMemory) -> None:
    batch: dict[str, object] = {"compaction_strategy": "batch", "compaction_files": 2}
    table = memory.world.create("small", split_threshold_rows=40, **batch)
    for number in range(12):
        memory.world.drop(f"small/{number}.parquet", letters("abcd", at=number))
        memory.world.settle()
    assert len(memory.world.state(table).partitions) > 1
    kinds = {j["kind"]: j for j in listed(flights, "small")}
    assert {"create_table", "ingest", "split", "compaction", "garbage"} == set(kinds)
    assert kinds["split"]["subject"] == "root"
    assert kinds["garbage"]["files"] >= 1


def test_requests_are_shown_under_their_table_by_the_verbs_of_messages(flights: Dormouse) -> None:
    assert flights("table", "offline", "flights").exit_code == 0
    assert flights("split", "nowhere").exit_code != 0
    assert flights("instance", "set", "compaction_files=9").exit_code == 0
    shown = {(j["kind"], j["state"], j["subject"]) for j in listed(flights, "flights")}
    assert ("set_online", "finished", "flights") in shown
    assert not {kind for kind, _, _ in shown} & {"split_partitions", "set_defaults"}
    others = {(j["kind"], j["state"], j["subject"]) for j in listed(flights)}
    assert others == {
        ("split_partitions", "refused", "nowhere"),
        ("set_defaults", "finished", "(instance)"),
    }
