"""The forms in which rows are answered: what a client accepts, and how much fits into an answer."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec
import pyarrow as pa

from dormouse.arrow.types import conform, frame_schema
from dormouse.features.http.problems import ProblemError
from dormouse.http.accept import preferred_type
from dormouse.http.messages import HttpResponse
from dormouse.results.cells import json_objects
from dormouse.results.formats import ResultFormat, write_rows

MOST_ANSWER_BYTES = 4_000_000
"""A function returns up to 6 MB, in which an answer may be base64."""
NEXT, VERSION = "dormouse-next", "dormouse-version"


class RowForm(StrEnum):
    """The media types of rows."""

    json = "application/json"
    json_lines = "application/x-ndjson"
    csv = "text/csv"
    arrow = "application/vnd.apache.arrow.stream"


_FORMATS = {
    RowForm.json_lines: ResultFormat.json,
    RowForm.csv: ResultFormat.csv,
    RowForm.arrow: ResultFormat.arrow,
}
_NAMES = {
    **{str(form): form for form in RowForm},
    "application/jsonl": RowForm.json_lines,
    "application/jsonlines": RowForm.json_lines,
}


class RowColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column of rows; `type` is its type in Arrow."""

    name: str
    type: str


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """Rows. Times and dates are ISO 8601, UUIDs and decimals text, bytes base64; floats that are
    not finite are the texts NaN, Infinity and -Infinity.

    `version` is the version of the table that was read; of a statement that reads several, 0. With
    `next`, there are more rows: ask the same again, with it as `after`.
    """

    columns: list[RowColumn]
    rows: list[dict[str, Any]]
    version: int
    next: str = ""


class TooMuchError(ProblemError):
    """Rows do not fit into one answer, or take too long for it."""

    def __init__(self) -> None:
        """Say what else can be asked for."""
        super().__init__(
            413,
            f"the rows take more than the {MOST_ANSWER_BYTES:,} bytes of an answer",
            hint="ask for fewer rows or columns, or with the header Prefer: respond-async",
        )


@dataclass(frozen=True, slots=True)
class RowPage:
    """Rows as they are answered; `name_next` returns the continuation after so many of them, or
    nothing if these are all.
    """

    schema: pa.Schema
    batches: Sequence[pa.RecordBatch]
    version: int
    name_next: Callable[[int], str]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(batch.num_rows for batch in self.batches)


def accepted_form(headers: Mapping[str, str]) -> RowForm:
    """Return the form of rows that a client prefers, by the header Accept; JSON by default.

    Raises:
        ProblemError: the client accepts none.
    """
    found = preferred_type(headers, _NAMES)
    if found is None:
        raise ProblemError(
            406,
            "rows are not available in what the client accepts",
            hint=f"accept {', '.join(RowForm)}",
        )
    return _NAMES[found]


def rows_response(form: RowForm, page: RowPage, *, can_continue: bool) -> HttpResponse:
    """Return rows as an answer; as many as fit, if the client can continue after them.

    Raises:
        TooMuchError: they do not fit: not all of them, or not even one.
    """
    count = page.rows
    while True:
        body = _encoded(form, page, count)
        if len(body) <= MOST_ANSWER_BYTES:
            return _response(form, page, count, body)
        if not can_continue or count <= 1:
            raise TooMuchError
        count = max(1, min(count // 2, count * MOST_ANSWER_BYTES // len(body)))


def _response(form: RowForm, page: RowPage, count: int, body: bytes) -> HttpResponse:
    following = page.name_next(count)
    headers = {
        "content-type": form.value,
        VERSION: str(page.version),
        "cache-control": "no-store",
        **({NEXT: following} if following else {}),
    }
    return HttpResponse(200, headers, body)


def _encoded(form: RowForm, page: RowPage, count: int) -> bytes:
    schema = frame_schema(page.schema)
    batches = [conform(batch, schema) for batch in _first(page.batches, count)]
    if form is RowForm.json:
        answer = Rows(
            columns=[RowColumn(name=field.name, type=str(field.type)) for field in schema],
            rows=[row for batch in batches for row in json_objects(batch)],
            version=page.version,
            next=page.name_next(count),
        )
        return msgspec.json.encode(answer)
    sink = io.BytesIO()
    write_rows(_FORMATS[form], batches, schema, sink)
    return sink.getvalue()


def _first(batches: Iterable[pa.RecordBatch], count: int) -> list[pa.RecordBatch]:
    found = []
    for batch in batches:
        found.append(batch.slice(0, count))
        count -= min(count, batch.num_rows)
        if not count:
            break
    return found
