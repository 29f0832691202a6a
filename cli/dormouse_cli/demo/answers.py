"""The acts in which the table is asked: look-ups, and rows removed for good."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.client import TableHandle
from dormouse_cli.demo.acts import PATIENCE_SECONDS, DemoError, Stage
from dormouse_cli.terminal import plain_table

PURGED = "HA"
LATE_MINUTES = 600


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and which of the original rows are the answer."""

    text: str
    answer: pc.Expression
    start: tuple[str, int] | None = None
    end: tuple[str, int] | None = None
    where: str | None = None


def look_up(stage: Stage, handle: TableHandle, stored: pa.Table) -> None:
    """Look up three keys, a range and a condition; show what each took, and check the rows."""
    shards = handle.status().shards
    columns = ["query", "rows", "shards opened", "requests", "read", "time"]
    table = plain_table(columns, ["", 0, 0, 0, 0, 0])
    for question in _questions(stored):
        began = time.perf_counter()
        ranges = [(question.start, question.end)] if question.start else None
        found = handle.query(ranges, where=question.where)
        rows = found.reader.read_all()
        milliseconds = (time.perf_counter() - began) * 1000
        table.add_row(
            question.text,
            f"{rows.num_rows:,}",
            f"{len(found.reads.shards)} of {shards}",
            f"{found.reads.requests}",
            f"{found.reads.size_bytes / 1000:,.0f} KB",
            f"{milliseconds:.0f} ms",
        )
        if not rows.equals(stored.filter(question.answer)):
            raise DemoError(f"the rows of {question.text} are not those that were dropped")
    stage.console.print(table)


def _questions(stored: pa.Table) -> list[Question]:
    carrier, flight = pc.field("carrier"), pc.field("flight")
    keys = [
        Question(f"carrier={c}, flight={f}", (carrier == c) & (flight == f), (c, f), (c, f + 1))
        for c, f in _some_flights(stored)
    ]
    some = (carrier == "DL") & (flight >= 1000) & (flight < 1500)
    late = (carrier == "DL") & (pc.field("arr_delay") > LATE_MINUTES)
    return [
        *keys,
        Question("DL, 1000 up to DL, 1500", some, ("DL", 1000), ("DL", 1500)),
        Question(
            f"carrier=DL and arr_delay > {LATE_MINUTES}",
            late,
            where=f"carrier = 'DL' AND arr_delay > {LATE_MINUTES}",
        ),
    ]


def _some_flights(stored: pa.Table) -> list[tuple[str, int]]:
    """Return three keys: one of a small carrier, two of large ones."""
    rows = (0, stored.num_rows // 2, stored.num_rows - 1)
    return [(stored["carrier"][row].as_py(), stored["flight"][row].as_py()) for row in rows]


def remove(stage: Stage, handle: TableHandle, stored: pa.Table) -> None:
    """Purge the flights of a carrier, and see that no object of the table holds one of them."""
    matching = stored.filter(pc.field("carrier") == PURGED).num_rows
    began = time.perf_counter()
    with stage.console.status(f"removing carrier {PURGED}", spinner="dots"):
        purge = handle.purge(keys=[PURGED])
        purge.wait(PATIENCE_SECONDS)
        handle.polling.until_nothing(
            lambda: len(purge.proof().remains), timeout_seconds=PATIENCE_SECONDS
        )
    proof, left = purge.proof(), handle.status().rows
    stage.say(f"{matching} rows of carrier {PURGED} removed in {time.perf_counter() - began:.1f} s")
    stage.say(
        f"{proof.objects} objects read: {len(proof.remains)} hold such a row; {left:,} rows stay"
    )
    if not proof.is_complete or left != stored.num_rows - matching:
        raise DemoError("the purge did not remove just the rows it was asked to")
