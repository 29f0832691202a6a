"""Routes of the work of an instance: jobs, refused files, queues, dead letters, requests."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from dormouse.access.doors import check_instance, instance_permission
from dormouse.access.rules import permission
from dormouse.client.instance import Instance
from dormouse.client.operating.dead_letters import Queue
from dormouse.client.operating.jobs import jobs_of
from dormouse.errors import ForbiddenError
from dormouse.features.administration.follow_request import request_by_now
from dormouse.features.http.calls import Call, Page, Shown
from dormouse.features.http.problems import ProblemError
from dormouse.features.http.resources.tables import page_of, picked
from dormouse.features.tables.changing.create_table import made_table_id
from dormouse.ports.services import NO_TABLE, JobRecord

_REQUEST = re.compile("[0-9a-f]{32}")
_UNKNOWN = "nothing is recorded of it: it waits to be carried out, or was never sent"
RequestState = Literal["waiting", "accepted", "finished", "failed", "refused"]


class Job(Shown, frozen=True, kw_only=True):
    """A job of a table, a request, or a file that waits or was refused. Times are milliseconds
    since 1970; 0 is unknown or not yet. `state` is waiting, accepted, assigned, running, finished,
    failed, refused or damaged.
    """

    id: str
    kind: str
    state: str
    subject: str
    reason: str
    rows: int
    rows_read: int
    files: int
    size_bytes: int
    attempts: int
    updated_ms: int
    started_ms: int
    finished_ms: int


class JobsPage(Page, frozen=True, kw_only=True):
    """Which jobs are wanted: of a kind, such as ingest, or in a state, such as running; or all."""

    kind: str = ""
    state: str = ""


class JobPage(Shown, frozen=True, kw_only=True):
    """Jobs, those that changed last first. With `next`, there are more: ask for those after it."""

    jobs: list[Job]
    next: str = ""


class QueueList(Shown, frozen=True, kw_only=True):
    """All queues, in the order of the flow. `note` says why ages are unknown, if they are."""

    queues: list[Queue]
    note: str


class SocketShown(Shown, frozen=True, kw_only=True):
    """Where the WebSocket is. With a token, `url` is used within a minute."""

    url: str


class Letter(Shown, frozen=True, kw_only=True):
    """A message that failed for good, and why. `sent_ms` is milliseconds since 1970."""

    id: str
    reason: str
    sent_ms: int
    receives: int
    body: str


class LetterPage(Shown, frozen=True, kw_only=True):
    """The dead letters of a queue, the oldest first."""

    dead_letters: list[Letter]
    next: str = ""


class RequestShown(Shown, frozen=True, kw_only=True):
    """What became of a request. It waits until it is carried out, which takes a second or so; it
    also waits if there is none of that id. An accepted one has begun jobs, which go on.
    """

    state: RequestState
    request: str = ""
    reason: str = ""
    rows: int = 0
    files: int = 0
    updated_ms: int = 0


def list_jobs(call: Call, table: str, query: JobsPage) -> JobPage:
    """List the jobs of a table, its requests, and the files that wait or were refused."""
    return _jobs(call, table, query)


def list_refused_files(call: Call, table: str, query: Page) -> JobPage:
    """List the files that were refused for a table, each with the reason."""
    asked = JobsPage(limit=query.limit, after=query.after, kind="ingest", state="refused")
    return _jobs(call, table, asked)


def list_other_jobs(call: Call, query: JobsPage) -> JobPage:
    """List the requests about no table, and the files that were dropped for none."""
    check_instance(call.services, call.principal, "read")
    records: Iterable[JobRecord] = call.instance.jobs()
    if not instance_permission(call.services.tables.access_rules(), call.principal).hides_nothing:
        records = (replace(record, reason="", subject="") for record in records)
    return _page_of_jobs(records, query)


def list_queues(call: Call) -> QueueList:
    """List the queues of the instance, with their messages and dead letters."""
    check_instance(call.services, call.principal, "read")
    states, note = call.instance.queue_states()
    return QueueList(queues=states, note=note)


def show_websocket(call: Call) -> SocketShown:
    """Show where the WebSocket is, to callers with a token by an address that lets them connect."""
    url = call.services.connections.address_for(call.principal)
    if not url:
        raise ProblemError(
            404,
            "the address of the WebSocket is not known here",
            hint="it is the output WebSocketUri of the stack: connect there with a signature",
        )
    return SocketShown(url=url)


def list_dead_letters(call: Call, queue: str, query: Page) -> LetterPage:
    """List the dead letters of a queue, which stay where they are."""
    check_instance(call.services, call.principal, "administer")
    found = call.instance.dead_letters().show(queue)
    some, more = page_of(found, query, lambda each: each.id)
    return LetterPage(dead_letters=[picked(Letter, each) for each in some], next=more)


def show_request(call: Call, request: str) -> RequestShown:
    """Show what became of a request, by the path that was the answer to it."""
    table_id, dot, request_id = request.partition(".")
    found = _recorded(call.instance, table_id, request_id) if dot and request_id else None
    if found is None or found.state not in ("accepted", "finished", "failed", "refused"):
        if not _may_wait(call, table_id, request_id):
            raise ProblemError(
                404, "there is no such request", hint="ask by the location that answered it"
            )
        return RequestShown(state="waiting", reason=_UNKNOWN)
    rules = call.services.tables.access_rules()
    if "administer" not in permission(rules, call.principal, found.subject).verbs:
        raise ForbiddenError("you may not see what became of this request")
    return RequestShown(
        state=found.state,
        request=found.kind,
        reason=found.reason,
        rows=found.rows,
        files=found.files,
        updated_ms=found.updated_ms,
    )


def _may_wait(call: Call, table_id: str, request_id: str) -> bool:
    """Return whether a request of which nothing is recorded may have been sent by this caller: ids
    have a form, and name a table that the request makes, or that the caller may administer.
    """
    if not _REQUEST.fullmatch(request_id):
        return False
    if table_id in (NO_TABLE, made_table_id(request_id)):
        return True
    table = call.services.table(table_id)
    rules = call.services.tables.access_rules()
    return table is not None and (
        "administer" in permission(rules, call.principal, table.name).verbs
    )


def _recorded(instance: Instance, table_id: str, request_id: str) -> JobRecord | None:
    """Return the record of a request: under its table, or if that is gone, under none."""
    get = instance.services.tracker.get
    found, table = get(table_id, request_id), instance.services.table(table_id)
    if found is not None and table is not None and instance.folder is not None:  # else no right
        return request_by_now(instance.services, table, found)
    return found or get(NO_TABLE, request_id)


def _jobs(call: Call, table: str, query: JobsPage) -> JobPage:
    """Return jobs of a table; reasons may name columns, and keys are in the names of partitions."""
    opened = call.table(table)
    records: Iterable[JobRecord] = jobs_of(
        call.services,
        opened.handle.current(),
        reads_requests=call.instance.folder is not None,
    )
    if not opened.seen.is_whole:
        records = (replace(record, reason="", subject="") for record in records)
    return _page_of_jobs(records, query)


def _page_of_jobs(records: Iterable[JobRecord], query: JobsPage) -> JobPage:
    wanted = [
        record
        for record in records
        if query.kind in ("", record.kind) and query.state in ("", record.state)
    ]
    wanted.sort(key=lambda record: (-record.updated_ms, record.job_id))
    some, more = page_of(wanted, query, lambda each: each.job_id)
    return JobPage(jobs=[_job(each) for each in some], next=more)


def _job(record: JobRecord) -> Job:
    names = [name for name in Job.__struct_fields__ if name != "id"]
    return Job(id=record.job_id, **{name: getattr(record, name) for name in names})
