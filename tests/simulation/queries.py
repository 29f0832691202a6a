"""Somebody who queries a table, in a process of their own, and compares what they are given."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from dormouse.arrow.order import requested_ranges
from dormouse.errors import NotFoundError, OutcomeUnknownError, UnavailableError
from dormouse.features.versions import RangesOf, read_version
from dormouse.keys import KeyRange
from dormouse.state.state import TableState
from tests.simulation.instance import Worker
from tests.simulation.oracle import Oracle
from tests.simulation.versions import is_tagged, tags_of
from tests.support.queries import count_rows, query_rows

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


def begin_query(run: Simulation) -> None:
    """Let somebody begin to query a table, if there is one."""
    oracles = run.watch.oracles
    tables = [t for t in oracles if run.instance.tables.get(t) is not None]
    if tables:
        oracle = oracles[run.random.choice(tables)]
        wanted, version = run.random.random(), run.random.randrange(max(1, oracle.newest))
        asked = version if wanted < 0.3 else None
        run.start(
            "query",
            f"queries {oracle.table_id}",
            lambda worker: ask_query(worker, oracle, asked, run.random, lambda: run.now_ms),
        )


def ask_query(
    worker: Worker, oracle: Oracle, version: int | None, random: Random, now_ms: Callable[[], int]
) -> None:
    """Query the newest version of a table or an earlier one, all of it or some letters.

    Raises:
        Violation: the answer is wrong, or there is none though the version is kept.
    """
    wanted = oracle.shape.drawn_range(random, len(oracle.dropped))
    counts = random.random() < 0.3 and not oracle.kind.ages
    services = worker.wiring.services
    state: TableState | None = None
    tags: list[int] = []
    delay_ms = 0
    try:
        table = services.tables.get(oracle.table_id)
        if table is None or table.deleting:
            return
        delay_ms = table.properties.gc_delay_seconds * 1000
        tags = [pin.version for pin in tags_of(worker.instance, table).values()]
        version = random.choice(tags) if tags and version is not None else version
        ranges_of = None if counts else _ranges_of(wanted)  # a count goes by the tree
        table, state = read_version(services, table, version=version, ranges_of=ranges_of)
        is_emptied = oracle.is_before(state.version, state.generation)
        options = {
            "now_ms": services.clock.now_ms(),
            "scratch": services.scratch,
            "memory_bytes": services.memory_bytes,
        }
        arguments = (services.storage, table, state, [wanted])
        if counts:
            count = count_rows(*arguments, **options, cache=services.cache)
            if is_emptied:
                oracle.check_empty(count, state.version)
            else:
                oracle.check_count(count, state.version, wanted)
            return
        result = query_rows(*arguments, **options, cache=services.cache)
        found = oracle.shape.rows_of(result.reader.read_all())
    except (UnavailableError, OutcomeUnknownError):
        return
    except NotFoundError as error:
        known = services.tables.get(oracle.table_id) if not worker.process.is_dead else None
        asked = state.version if state is not None else version
        if known is None or known.deleting or asked is None or asked < 1:
            return
        if oracle.is_before(asked, known.schema_generation):
            return  # its rows have an earlier schema
        is_still = asked in tags and is_tagged(worker.instance, known, asked)
        if is_still or oracle.is_kept(asked, now_ms(), delay_ms):
            oracle.fail(f"a query of version {asked} was not answered: {error}")
        return
    if is_emptied:
        oracle.check_empty(len(found), state.version)
        return
    oracle.check_answer(found, state.version, wanted, options["now_ms"])


def _ranges_of(wanted: KeyRange) -> RangesOf:
    """Return what a process says that reads the part of a state with these keys."""
    return lambda table: requested_ranges(table.schema, [wanted])
