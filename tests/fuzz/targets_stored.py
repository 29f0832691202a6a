"""Damage to stored objects behind a valid message is reported by name; no other table suffers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from hypothesis import strategies as st

from dormouse.errors import CorruptDataError
from dormouse.features.export import FILES, TaskFiles
from dormouse.features.purge import MATCHES, ShardMatches
from dormouse.jobs import MAX_RECEIVES
from dormouse.stored.paths import (
    EXPORTS,
    PURGES,
    SPARK_JOBS,
    export_done_path,
    export_task_path,
    purge_matches_path,
    shard_path,
    state_prefix,
)
from tests.functions.conftest import TABLE_ID, Functions
from tests.fuzz.batches import BESIDE, JOBS, LEAVES, MIDDLE, batch, instance
from tests.fuzz.mutations import changes, damaged
from tests.fuzz.targets import Target
from tests.fuzz.targets_functions import check_beside, failures
from tests.template.conftest import QUEUE_OF

_ID = f"{MIDDLE:016}"


def _verdicts(functions: Functions) -> list[str]:
    path = purge_matches_path(TABLE_ID, _ID, "1")
    matches = ShardMatches(frozenset("a"), frozenset("b"))
    MATCHES.put(functions.world.storage, path, matches)
    return [path]


def _finished_task(functions: Functions) -> list[str]:
    path = export_done_path(TABLE_ID, _ID, 0)
    FILES.put(functions.world.storage, path, TaskFiles(()))
    return [path]


def _shard(functions: Functions) -> list[str]:
    state = functions.world.state(functions.table)
    return [shard_path(TABLE_ID, each.shard) for each in state.references_in(LEAVES[MIDDLE])]


def _state(functions: Functions) -> list[str]:
    return [stored.path for stored in functions.world.storage.list(state_prefix(TABLE_ID))]


_STORED: dict[str, tuple[str, Callable[[Functions], list[str]]]] = {
    "the request of a purge": ("purge_rows", lambda _: [PURGES.path(TABLE_ID, _ID)]),
    "verdicts of a purge": ("purge_rows", _verdicts),
    "a request for Spark": ("track_spark", lambda _: [SPARK_JOBS.path(TABLE_ID, JOBS[MIDDLE])]),
    "an export": ("export_rows", lambda _: [EXPORTS.path(TABLE_ID, _ID)]),
    "a task of an export": ("export_rows", lambda _: [export_task_path(TABLE_ID, _ID, "1", 0)]),
    "a finished task": ("export_rows", _finished_task),
    "a shard": ("split_partition", _shard),
    "a state": ("plan_table", _state),
}
"""What is damaged, the function that reads it, and where it lies."""


def _damaged(name: str, data: st.DataObject) -> None:
    """The message whose stored half is damaged comes again, and is a dead letter that names the
    object when it has come for the last time; those beside it are done.
    """
    stage, paths = _STORED[name]
    with instance() as functions, failures() as seen:
        good = batch(functions, stage)
        path = data.draw(st.sampled_from(sorted(paths(functions))))
        _put(functions, path, damaged(functions.world.storage.get(path), data.draw(changes)))
        receives = data.draw(st.sampled_from([1, MAX_RECEIVES]))
        again = functions.deliver(stage, *good.bodies, receives=receives)
        for error in seen:
            assert isinstance(error, CorruptDataError), error
            assert Path(path).stem in error.explanation, error
        assert again == [str(MIDDLE)] * (len(seen) if receives == 1 else 0), again
        letters = [
            (q, body, Path(path).stem in reason) for q, body, reason in functions.outbox.dead
        ]
        given_up = [(QUEUE_OF[stage], good.bodies[MIDDLE], True)]
        assert letters == given_up * (0 if receives == 1 else len(seen)), letters
        assert [good.is_done(number) for number in BESIDE] == [True, True]
        if name != "a state":
            check_beside(functions, good)


def _put(functions: Functions, path: str, body: bytes) -> None:
    """Replace a stored object, as no function can, and drop all caches."""
    file = functions.world.folder / "data" / path
    file.chmod(0o644)
    file.write_bytes(body)
    functions.world.services.store.cache_clear()  # type: ignore[attr-defined]  # as cold processes


TARGETS: dict[str, Target] = {
    f"behind a message, {name}": Target(
        st.data(), partial(_damaged, name), native=name == "a shard", quick=15
    )
    for name in _STORED
}
