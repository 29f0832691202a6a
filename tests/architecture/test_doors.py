"""Services that answer for any caller come to tables by `dormouse.features.access` alone.

The planner takes a permission from everybody; who says that everything is permitted reads with
rights of their own, and is named here.
"""

from __future__ import annotations

import re

from tests.architecture.sources import LIBRARY, fail_for, sources

DOORS = tuple(
    f"{LIBRARY}/features/{door}"
    for door in ("answer_query", "catalog", "http/", "queries", "query_")
)
"""How the paths of services begin that answer for any caller; some may be yet to come."""
OTHER_WAYS = (
    r"\.tables\.(named|all|list_readable)\(|\bresolve_(live_)?table\(|VisibleTable\(|\.whole\("
    r"|\bEVERYTHING\b|\btable_not_found\("
)
OWN_RIGHTS = {
    "features/access.py",  # what there is without rules
    "access.py",
    "features/delete_rows.py",  # as those who may send to the queue `admin` may
    "features/export.py",  # who may send to the queue `admin` may read every table
    "features/purge.py",
    "query/selection.py",  # what was selected when it was stored
}


def test_doors_come_to_tables_by_one_way() -> None:
    doors = [source for source in sources(LIBRARY) if source.place.startswith(DOORS)]
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
        and ("dormouse.access" in text or place in ("access.py", "features/access.py"))
        and re.search(r"\bEVERYTHING\b|VisibleTable\.whole\(", text)
    }
    fail_for(f"{place} is not one of OWN_RIGHTS" for place in saying - OWN_RIGHTS)
