"""The selection: which rows and columns of one version of a table are asked for.

`planner.select` makes it once, and validates it; queries, counts, exports, purges and
Spark carry it; `selection_codec` has its form in messages.
"""

from __future__ import annotations

from dataclasses import dataclass

from dormouse.keys.ranges import KeyRange
from dormouse.sql.conditions import Condition


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows and columns of one version of a table are asked for.

    `ranges` are disjoint, in key order, and fit the key columns; by default the whole table. A row
    is selected if it is in one of them and `condition` is true of it, after the table's filters and
    aggregations. Filters by age are evaluated as of `time_ms`. At most `limit` rows are selected,
    the first in key order.
    """

    version: int
    columns: tuple[str, ...]
    ranges: tuple[KeyRange, ...] = (KeyRange(),)
    condition: Condition | None = None
    limit: int | None = None
    time_ms: int = 0

    @property
    def tested_columns(self) -> frozenset[str]:
        """The columns that its condition reads."""
        return frozenset() if self.condition is None else self.condition.columns

    @property
    def where(self) -> str:
        """The condition as SQL in its normal form; empty if there is none."""
        return "" if self.condition is None else self.condition.sql
