"""After the faults: dead letters are redriven, all work is done, and then all must be right."""

from __future__ import annotations

import time
from collections.abc import Mapping

from dormouse.client.instance import Instance
from dormouse.client.waiting import WORKING_QUEUES
from dormouse.messages.stages import QUEUES
from dormouse.stored.paths import data_prefix, shard_id_of
from tests.chaos.dropping import Files
from tests.chaos.reading import rows_now
from tests.chaos.removing import Requests
from tests.chaos.row_ledger import RowLedger, final_differences
from tests.chaos.tables import Plan
from tests.chaos.tally import Tally

IDLE_LOOKS = 3


def settle(
    instance: Instance, files: Files, requests: Requests, tally: Tally, limit_seconds: float
) -> bool:
    """Wait until no work and no extra object is left; return whether that happened in time."""
    deadline = time.monotonic() + limit_seconds
    idle = 0
    while idle < IDLE_LOOKS:
        redrive(instance, tally)
        files.look()
        left = unfinished(instance, files, requests)
        idle = 0 if left else idle + 1
        if time.monotonic() > deadline:
            for sentence in left:
                tally.wrong(f"not settled after {limit_seconds:.0f} s: {sentence}")
            return False
        time.sleep(1)
    return True


def redrive(instance: Instance, tally: Tally) -> None:
    """Redrive dead letters that failed too often; any that can never succeed is a fault."""
    for queue in QUEUES:
        letters = instance.services.dead_letters.receive(queue, 1000)
        instance.services.dead_letters.release(queue, letters)
        for letter in letters:
            if letter.reason:
                tally.wrong(f"queue {queue}: a message was taken for hopeless: {letter.reason}")
        if letters:
            tally.count("dead letters", queue, len(letters))
            instance.dead_letters().redrive(queue)


def unfinished(instance: Instance, files: Files, requests: Requests) -> list[str]:
    """Return what is left to be done, in words."""
    found = [f"file {name} is neither ingested nor refused" for name in files.names_left()[:10]]
    found += [f"{asked} is not over" for asked in requests.look()]
    for queue, depth in instance.queues.depths(WORKING_QUEUES).items():
        if depth:
            found.append(f"{depth} messages are in queue {queue}")
    for handle in instance.tables():
        state = handle.state()
        found += [f"table {handle.name}: job {job} is assigned" for job in sorted(state.jobs)[:5]]
        garbage = len(state.unreferenced)
        if garbage:
            found.append(f"table {handle.name}: {garbage} shards wait for their deletion")
        if not found:  # the last thing to look at: it is the slowest
            found += _strays(instance, handle.table.id, handle.name)
    return found


def _strays(instance: Instance, table_id: str, name: str) -> list[str]:
    objects = list(instance.services.storage.list(data_prefix(table_id)))
    state = instance.table(name).state()
    strays = [o.path for o in objects if shard_id_of(o.path) not in state.shards]
    return [f"table {name}: object {path} belongs to no shard" for path in strays[:5]]


def verify(
    instance: Instance,
    plans: Mapping[str, Plan],
    ledgers: Mapping[str, RowLedger],
    requests: Requests,
    tally: Tally,
) -> None:
    """Hold tables against their ledgers, states against shards, and purges to their word."""
    for name, plan in plans.items():
        handle = instance.table(name)
        for sentence in final_differences(ledgers[name], rows_now(handle, plan)):
            tally.wrong(sentence)
        for finding in handle.check().findings:
            tally.wrong(f"table {name}: {finding.damage.name} {finding.subject}: {finding.detail}")
        for job in handle.jobs():
            tally.count("jobs", f"{job.kind} {job.state}")
            if job.kind == "compaction" and job.state in ("assigned",):
                tally.wrong(f"table {name}: compaction {job.job_id} is {job.state} at the end")
    for asked in requests.purges:
        proof = instance.table(asked.plan.name).prove_purge(asked.request.selection.where)
        if not proof.is_complete:
            tally.wrong(
                f"table {asked.plan.name}: {proof.rows} purged rows are left, "
                f"and objects {[remains.path for remains in proof.remains]}"
            )
