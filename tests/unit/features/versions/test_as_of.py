"""What names a version: the same text means the same to clients and in requests."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.errors import InvalidRequestError, NotFoundError
from dormouse.features.versions import read_as_of
from dormouse.messages.requests import TagVersion
from dormouse.state.versions import checked_as_of, is_tag, milliseconds_of, parse_as_of
from tests.support.world import World

NOON = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("0", 0),
        ("1204", 1204),
        ("20260131", 20260131),
        ("1" * 18, int("1" * 18)),
        ("2026-01-31T12:00:00Z", NOON),
        ("2026-01-31T12:00:00", NOON),
        ("2026-01-31 13:00+01:00", NOON),
        ("20260131T120000", NOON),
        ("january", "january"),
        ("_1204", "_1204"),
        ("inf", "inf"),
        ("e5", "e5"),
        ("T12", "T12"),
        ("a" * 128, "a" * 128),
    ],
)
def test_a_text_is_a_number_a_time_or_a_tag(text: str, meant: object) -> None:
    assert checked_as_of(text) == meant


@pytest.mark.parametrize(
    "text",
    ["", " ", " 3", "3 ", "-1", "+1", "1.0", "1e5", "1_0", "12:00", "1" * 19, "٣", "１２", "é"]
    + ["a" * 129, "a b", "a/b", "a#b", "a\n", "2026-02-31", "2026-13-01", "x\x00", "😀"],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        checked_as_of(text)


@pytest.mark.parametrize("value", [-1, True, 1.5, None, b"1", NOON.replace(tzinfo=None)])
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(InvalidRequestError):
        checked_as_of(value)


@given(st.text(max_size=140))
def test_no_tag_looks_like_a_number_or_a_time(text: str) -> None:
    try:
        meant = parse_as_of(text)
    except InvalidRequestError:
        assert not is_tag(text)
    else:
        assert is_tag(text) == isinstance(meant, str)


@given(st.datetimes(timezones=st.timezones()))
def test_every_time_is_a_number_of_milliseconds(time: dt.datetime) -> None:
    since = dt.timedelta(milliseconds=milliseconds_of(time))
    assert dt.timedelta(0) <= time - dt.datetime(1970, 1, 1, tzinfo=dt.UTC) - since
    assert time - dt.datetime(1970, 1, 1, tzinfo=dt.UTC) - since < dt.timedelta(milliseconds=1)


def test_versions_are_read_by_each_of_them(world: World) -> None:
    table = world.create()
    version = world.state(table).version
    world.administer(TagVersion("t", table.name, version, "first"))
    time = dt.datetime.fromtimestamp(world.clock.now_ms() / 1000, dt.UTC)
    for as_of in (None, version, str(version), "first", time, time.isoformat()):
        assert read_as_of(world.services, table, as_of)[1].version == version
    for unknown in (10**30, "999999999999999999", "second"):
        with pytest.raises(NotFoundError):
            read_as_of(world.services, table, unknown)
