"""Services that answer for any caller come to tables by `dormouse.access.doors`, and no other way.

The planner takes a permission from everybody; who says that everything is permitted reads with
rights of their own, and is named here.
"""

from __future__ import annotations

import re

from tests.architecture.sources import LIBRARY, fail_for, sources

DOORS = ("features/catalog", "features/queries", "features/http", "features/websocket")
"""The packages of services that answer for any caller; some may be yet to come."""
OTHER_WAYS = (
    r"\.tables\.(named|all|list_readable)\(|\bresolve_(live_)?table\(|VisibleTable\(|\.whole\("
    r"|\bEVERYTHING\b|\btable_not_found\("
)
OWN_RIGHTS = {
    "access/doors.py",  # what there is without rules
    "access/rules.py",
    "access/visible.py",
    "features/export/request.py",  # who may send to the queue `admin` may read every table
    "features/purge/request.py",
    "query/selection_codec.py",  # what was selected when it was stored
}


def test_doors_come_to_tables_by_one_way() -> None:
    doors = sources(*(f"{LIBRARY}/{door}" for door in DOORS))
    fail_for(
        f"{match}: use access.doors" for source in doors for match in source.matches(OTHER_WAYS)
    )


def test_the_other_ways_are_found() -> None:
    for text in (
        "services.tables.named(name)",
        "services.tables.list_readable()",
        "table = resolve_live_table(services, request)",
        "permission=EVERYTHING",
        "VisibleTable.whole(table)",
    ):
        assert re.search(OTHER_WAYS, text), text


def test_only_who_reads_with_rights_of_their_own_says_that_everything_is_permitted() -> None:
    texts = {source.place.removeprefix(f"{LIBRARY}/"): source.text for source in sources(LIBRARY)}
    saying = {
        place
        for place, text in texts.items()
        if not place.startswith("client/")  # the caller's own program
        and ("dormouse.access" in text or place.startswith("access/"))
        and re.search(r"\bEVERYTHING\b|VisibleTable\.whole\(", text)
    }
    fail_for(f"{place} is not one of OWN_RIGHTS" for place in saying - OWN_RIGHTS)
