"""The queries, each over one of two data sets, in the SQL that all systems take."""

from __future__ import annotations

from dataclasses import dataclass

SYSTEMS = ("dormouse", "datafusion", "duckdb", "polars")
REMOTE = "query over messages"
WARM = "warm"
"""What the names of the figures of a warm process begin with."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query; `prunes` says whether its keys leave out most of what there is to read. Where
    several results are right, only the column `compared` is the same in all.
    """

    name: str
    text: str
    prunes: bool = False
    compared: int | None = None


QUERIES = (
    Query("point", "SELECT * FROM rows WHERE meter = 77777", prunes=True),
    Query(
        "range",
        "SELECT sum(watts), count(*) FROM rows WHERE meter >= 50000 AND meter < 50200",
        prunes=True,
    ),
    Query(
        "top-n by key", 'SELECT meter, "at", watts FROM rows ORDER BY meter, "at" LIMIT 10', True
    ),
    Query("count", "SELECT count(*) FROM rows", prunes=True),
    Query("ends", "SELECT min(meter), max(meter) FROM rows", prunes=True),
    Query("group by key", "SELECT meter - meter % 1000 AS g, sum(watts) FROM rows GROUP BY 1"),
    Query("group by value", "SELECT kind, count(*), avg(watts) FROM rows GROUP BY kind"),
    Query(
        "top-n by value",
        'SELECT meter, "at", watts FROM rows ORDER BY watts DESC LIMIT 10',
        compared=2,
    ),
    Query("filter", "SELECT count(*) FROM rows WHERE watts > 990 AND kind = 'solar'"),
    Query(
        "join",
        "SELECT m.region, sum(r.watts) FROM rows r JOIN meters m ON r.meter = m.meter GROUP BY 1",
    ),
    Query(
        "window",
        'SELECT max(n) FROM (SELECT row_number() OVER (PARTITION BY meter ORDER BY "at") AS n '
        "FROM rows WHERE meter < 20000) q",
    ),
    Query(
        "flights",
        "SELECT carrier, dest, avg(arr_delay) FROM flights WHERE distance > 500 "
        "GROUP BY carrier, dest",
    ),
)
