"""Ids of the runs that write shards."""

from __future__ import annotations

from dormouse.ports.services import Services
from dormouse.stored.paths import make_run_id
from dormouse.tables.published import is_published
from dormouse.tables.table import Table


def new_run(services: Services, table: Table) -> str:
    """Return the id of a new run, whose shards all readers can read if the table is published.

    A compaction is a run of its job's id: any process that runs it again writes the same encodings,
    though the property of the table changed meanwhile.
    """
    return make_run_id(services.ids.new(), plain=is_published(table.properties))
