"""What a client asks for: keys of any kind, conditions, columns, limits, versions and times."""

from __future__ import annotations

import datetime as dt
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from dormouse.errors import InvalidRequestError, NotFoundError
from dormouse.state.versions import parse_as_of
from tests.fuzz.mutations import ODD_TEXTS, ODD_VALUES, mangled_text
from tests.fuzz.targets import Target, refusing
from tests.support.instances import InMemory
from tests.support.world import World, letters

_ROWS = "abcxyz"
_CONDITIONS = ["letter = 'a' OR at > 3", "note IS NOT NULL AND at % 2 = 0", "length(note) = 2"]
_TIMES = ["12", "2023-11-14T22:13:20Z", "2023-11-14", "2023-11-14T22:13:20.123456+14:00"]


@cache
def _filled() -> InMemory:
    world = World(Path(tempfile.mkdtemp(prefix="dormouse-fuzz-")))
    world.create("letters", splits=[("g",)])
    world.drop("letters/1.parquet", letters(_ROWS))
    world.settle()
    return InMemory.over(world)


def _queried(asked: dict[str, Any]) -> None:
    """It is answered, and counted the same, or refused with a reason."""
    table = _filled().instance.table("letters")
    with refusing(InvalidRequestError, NotFoundError):
        rows = table.query(**asked).read_all().num_rows
        assert rows <= len(_ROWS)
        counted = {name: asked[name] for name in ("ranges", "exact", "where", "as_of")}
        count = table.count(**counted)
        assert rows == (count if asked["limit"] is None else min(count, asked["limit"]))


def _read_at(text: str) -> None:
    """What the command takes for a version or a time, a table can be asked for."""
    with refusing(InvalidRequestError, NotFoundError):
        _filled().instance.table("letters").count(as_of=parse_as_of(text))


_good = st.sampled_from(_ROWS)
_part = st.sampled_from(ODD_VALUES) | st.text(max_size=3) | st.binary(max_size=3) | st.datetimes()
_key = (
    _good
    | _part
    | st.tuples(_good, st.integers(-1, 9))
    | st.tuples(_part)
    | st.tuples(_part, _part)
    | st.dictionaries(st.sampled_from(["letter", "at", "x"]), _part, max_size=2)
)


def _ranges(ends: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(st.tuples(ends, ends), max_size=2)


_time = st.datetimes() | st.datetimes(
    timezones=st.sampled_from([dt.UTC, dt.timezone(dt.timedelta(hours=-14))])
)
_odd = st.sampled_from(ODD_VALUES)
_columns = st.lists(st.sampled_from(["letter", "at", "note", "x", *ODD_TEXTS]), max_size=3)
_asked = st.fixed_dictionaries(
    {
        "ranges": st.none() | _ranges(st.none() | _good) | _ranges(st.none() | _key),
        "exact": st.none() | _good | _key,
        "where": st.none() | st.sampled_from(_CONDITIONS) | mangled_text(_CONDITIONS) | _odd,
        "columns": st.none() | _columns,
        "limit": st.none() | st.integers(-1, 9) | st.integers() | _odd,
        "as_of": st.none() | st.integers(-1, 9) | st.integers() | _time | _odd,
    }
)

TARGETS: dict[str, Target] = {
    "queries": Target(_asked, _queried, native=True, quick=150),
    "times of queries": Target(mangled_text(_TIMES), _read_at, quick=100),
}
