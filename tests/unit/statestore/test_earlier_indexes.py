"""The newest increment says where the blocks of those before it lie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import patch

import pytest

from dormouse.errors import CorruptDataError
from dormouse.keys import KeyRange
from dormouse.log import key_index, tail
from dormouse.log.log import Reader
from dormouse.log.tail import runs_of
from dormouse.state.state import PartOfState
from tests.unit.statestore.faults import Home, Rig, small_pages
from tests.unit.statestore.parts import indexed_early, plan
from tests.unit.statestore.test_partial_reads import ingest, made, wanted

HERE = KeyRange.exactly(("d",))


@pytest.fixture
def early() -> Iterator[None]:
    with small_pages(2), indexed_early():
        yield


def several(home: Home) -> Rig:
    """A table with several increments since its snapshot."""
    rig = made(home)
    writer = rig.store()
    for number in range(20, 40):
        writer.commit(ingest(number, "md"[number % 2]), generation=0)
        writer.maintain()
        if len(rig.head().manifest.increments) > 1:
            break
    rig.quiet()
    return rig


def parts_read(rig: Rig) -> int:
    """Return how many pieces of objects a process that begins fetches for a part."""
    rig.quiet()
    part = rig.store().part(wanted())
    assert isinstance(part, PartOfState)
    fetched = rig.calls.count("before stream")
    assert plan(part, HERE) == plan(rig.replay(), HERE)
    return fetched


@pytest.mark.usefixtures("early")
def test_the_ends_of_a_snapshot_and_of_the_newest_increment_say_where_all_blocks_lie() -> None:
    with patch.object(key_index, "_TAIL_BYTES", 20_000):
        rig = several("objects")
        with patch.object(tail, "key_indexes", lambda *_: None):
            each_by_itself = several("objects")
        increments = len(rig.head().manifest.increments)
        assert increments == len(each_by_itself.head().manifest.increments) > 1
        assert parts_read(each_by_itself) - parts_read(rig) == increments - 1


@pytest.mark.usefixtures("early")
def test_an_earlier_index_is_not_believed_for_another_version(home: Home) -> None:
    rig = several(home)
    manifest = rig.head().manifest
    first, *others = manifest.increments
    wrong = replace(first, version=first.version - 1)
    changed = replace(manifest, increments=(wrong, *others))
    with (
        patch.object(Reader, "manifest", lambda _: changed),
        pytest.raises(CorruptDataError, match=first.id),
    ):
        rig.store().part(wanted())


@pytest.mark.usefixtures("early")
def test_every_increment_names_all_before_it(home: Home) -> None:
    rig = several(home)
    runs = runs_of(rig.head().manifest)
    found = tail.key_indexes(rig.store().reader, runs, {})
    assert found is not None
    assert {*found[runs[-1].id].earlier} == {run.id for run in runs[1:-1]}
    for run in runs[1:-1]:
        own = tail.key_indexes(rig.store().reader, [run], {})
        assert own is not None
        named = found[runs[-1].id].earlier[run.id]
        places = [named.place(number) for number in named.numbers]
        assert places == [own[run.id].place(number) for number in own[run.id].numbers]
