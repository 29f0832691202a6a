"""State stores of each home, opened as the wirings of the library do."""

from __future__ import annotations

from collections.abc import Callable

from dormouse.aws.state_store import objects_reader
from dormouse.items.blobs import files_reader, items_reader
from dormouse.items.pages import ItemPages
from dormouse.items.store import ItemStore, Put
from dormouse.log.blobs import Fetch, fetched
from dormouse.log.engine import DEFAULTS, Options, StateStore
from dormouse.log.log import Log
from dormouse.ports import Storage
from dormouse.system import Clock, Ids, RetryPolicy
from tests.support.retries import WITHOUT_PAUSES


def objects_store(
    state_id: str,
    storage: Storage,
    pages: ItemPages,
    clock: Clock,
    ids: Ids,
    *,
    retry_policy: RetryPolicy = WITHOUT_PAUSES,
    options: Options = DEFAULTS,
    fetch: Fetch = fetched,
) -> StateStore:
    """A store over objects, as of tables with state_store=s3."""
    reader = objects_reader(Log(state_id, pages, retry_policy), storage, fetch)
    return StateStore(reader, clock, ids, options)


def items_store(
    state_id: str,
    items: ItemStore,
    pages: ItemPages,
    clock: Clock,
    ids: Ids,
    *,
    retry_policy: RetryPolicy = WITHOUT_PAUSES,
    options: Options = DEFAULTS,
) -> StateStore:
    """A store over items alone, as of tables with state_store=dynamodb."""
    return StateStore(items_reader(Log(state_id, pages, retry_policy), items), clock, ids, options)


def files_store(
    state_id: str,
    storage: Storage,
    items: ItemStore,
    pages: ItemPages,
    clock: Clock,
    ids: Ids,
    *,
    retry_policy: RetryPolicy = WITHOUT_PAUSES,
    options: Options = DEFAULTS,
    defer: Callable[[Put], None] | None = None,
) -> StateStore:
    """A store over items and files, as of a folder."""
    reader = files_reader(Log(state_id, pages, retry_policy), storage, items, defer)
    return StateStore(reader, clock, ids, options)
