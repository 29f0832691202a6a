"""The forms in which rows are answered: what a client accepts, and how much fits into an answer."""

import base64
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate, takewhile
from typing import Any

import msgspec
import pyarrow as pa

from dormouse.access import VisibleTable
from dormouse.arrow.order import key_part
from dormouse.arrow.types import conform, frame_schema
from dormouse.features.http.calls import JSON, JSON_LINES, ProblemError
from dormouse.files.results import ResultFormat, json_objects, write_rows
from dormouse.http.messages import HttpResponse, preferred_type
from dormouse.key_codec import EMPTY_RANGE, KeyCodec
from dormouse.keys import Key, KeyRange
from dormouse.query.rows import limited
from dormouse.schema.schema import Schema
from dormouse.state.sources import WholeNumber
from dormouse.stored.decoding import decode_json
from dormouse.tables.table import Table

MOST_ANSWER_BYTES = 4_000_000
"""A function returns up to 6 MB, in which an answer may be base64."""
NEXT, VERSION = "dormouse-next", "dormouse-version"


_FORMATS = {
    form.media_type: form for form in (ResultFormat.json, ResultFormat.csv, ResultFormat.arrow)
}
ROW_TYPES = (JSON, *_FORMATS)
"""The media types of rows."""
_NAMES = {each: each for each in ROW_TYPES}
_NAMES |= dict.fromkeys(("application/jsonl", "application/jsonlines"), JSON_LINES)


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


def accepted_form(headers: Mapping[str, str]) -> str:
    """Return the form of rows that a client prefers, by the header Accept; JSON by default.
    Raises ProblemError: the client accepts none.
    """
    name = preferred_type(headers, _NAMES)
    if name is None:
        raise ProblemError(
            406,
            "rows are not available in what the client accepts",
            hint=f"accept {', '.join(ROW_TYPES)}",
        )
    return _NAMES[name]


def rows_response(form: str, page: RowPage, *, can_continue: bool) -> HttpResponse:
    """Return rows as an answer; as many as fit, if the client can continue after them.
    Raises TooMuchError: they do not fit: not all of them, or not even one.
    """
    count = sum(batch.num_rows for batch in page.batches)
    while True:
        body = _encoded(form, page, count)
        if len(body) <= MOST_ANSWER_BYTES:
            return _response(form, page, count, body)
        if not can_continue or count <= 1:
            raise TooMuchError
        count = max(1, min(count // 2, count * MOST_ANSWER_BYTES // len(body)))


def _response(form: str, page: RowPage, count: int, body: bytes) -> HttpResponse:
    following = page.name_next(count)
    headers = {
        "content-type": form,
        VERSION: str(page.version),
        "cache-control": "no-store",
        **({NEXT: following} if following else {}),
    }
    return HttpResponse(200, headers, body)


def _encoded(form: str, page: RowPage, count: int) -> bytes:
    schema = frame_schema(page.schema)
    batches = [conform(batch, schema) for batch in limited(page.batches, count)]
    if form == JSON:
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


# Continuations: where the next page of a query begins, as a text that the client hands back.
#
# A continuation names the table, the version and the moment that all pages are of, the last key
# that was answered, and a digest of the question. It gives its holder no right: each page is asked
# for as the first one is. Its checksum only tells a damaged one from one that does not fit.

_CHECKSUM_BYTES = 8
_AGAIN = "ask the question again without `after`"


class Position(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a page ends: after `repeats` rows that have `key`, which is in the form of messages.

    `given` counts the rows of all pages before. `state` is the id of the table's state.
    """

    state: str
    version: WholeNumber
    time_ms: WholeNumber
    question: str
    key: tuple[object, ...]
    repeats: WholeNumber
    given: WholeNumber
    v: int = 1


@dataclass(frozen=True, slots=True)
class Pagination:
    """The pages of one question about a table at one version, as its caller may see it: a
    continuation names only keys that are visible.
    """

    seen: VisibleTable
    version: int
    time_ms: int
    question: str
    before: Position | None = None

    @property
    def given(self) -> int:
        """How many rows the pages before had."""
        return self.before.given if self.before else 0

    @property
    def repeats(self) -> int:
        """How many rows at the beginning of what is read the page before had."""
        return self.before.repeats if self.before else 0

    def left_of(self, ranges: Sequence[KeyRange]) -> list[KeyRange]:
        """Return what is left of the ranges of the question; at least one."""
        if self.before is None:
            return list(ranges)
        rest = KeyRange(self._last())
        spans = [span.intersection(rest) for span in ranges]
        return [span for span in spans if not span.is_empty()] or [EMPTY_RANGE]

    def _last(self) -> Key:
        if self.before is None or not self.before.key:
            return ()
        return KeyCodec(self.seen.schema).from_json(self.before.key, "the continuation")

    def after(self, batches: Sequence[pa.RecordBatch], count: int) -> str:
        """Return the continuation after the first `count` rows of batches that have those keys."""
        keys = _keys_from_end(batches, count, self.seen.schema)
        last = next(keys)
        repeats = 1 + sum(1 for _ in takewhile(lambda key: key == last, keys))
        if repeats == count and last == self._last():
            repeats += self.repeats
        position = Position(
            state=self.seen.table.state_id,
            version=self.version,
            time_ms=self.time_ms,
            question=self.question,
            key=KeyCodec(self.seen.schema).to_json(last),
            repeats=repeats,
            given=self.given + count,
        )
        return sealed(msgspec.json.encode(position))


def digest(question: object) -> str:
    """Return a digest of a question, by which a continuation knows it."""
    return blake2b(msgspec.json.encode(question), digest_size=12).hexdigest()


def sealed(body: bytes) -> str:
    """Return what a continuation says as text that needs no quoting anywhere, with a checksum."""
    return base64.urlsafe_b64encode(_checksum(body) + body).decode().rstrip("=")


def unsealed(text: str) -> bytes:
    """Return what `sealed` made text of. Raises ValueError if it is damaged."""
    padded = text.encode() + b"=" * (-len(text) % 4)
    raw = base64.b64decode(padded, altchars=b"-_", validate=True)
    checksum, body = raw[:_CHECKSUM_BYTES], raw[_CHECKSUM_BYTES:]
    if checksum != _checksum(body):
        raise ValueError(text)
    return body


def decode(text: str, table: Table, question: str) -> Position:
    """Return what a continuation says.
    Raises ProblemError: it is damaged, or of another table, or of another question.
    """
    try:
        position = decode_json(unsealed(text), Position)
    except ValueError as error:
        raise ProblemError(400, "`after` is no continuation, or is damaged", hint=_AGAIN) from error
    if position.state.partition("/")[0] != table.id:
        raise ProblemError(422, "`after` is the continuation of another table", hint=_AGAIN)
    if position.question != question:
        raise ProblemError(
            422,
            "`after` is the continuation of another question",
            hint="send the same keys, ranges, condition, columns, limit and version as before",
        )
    if position.state != table.state_id:
        raise gone()
    return position


def gone() -> ProblemError:
    """Return the error that the version of a continuation is not kept any more."""
    return ProblemError(
        410,
        "the version that the pages are of is not kept any more",
        hint=f"{_AGAIN}; to keep a version for longer, tag it",
    )


def _checksum(body: bytes) -> bytes:
    return blake2b(body, digest_size=_CHECKSUM_BYTES).digest()


def _keys_from_end(batches: Sequence[pa.RecordBatch], count: int, schema: Schema) -> Iterator[Key]:
    """Yield the keys of the first `count` rows, the last one first: few are looked at."""
    before = accumulate((batch.num_rows for batch in batches), initial=0)
    for batch, start in reversed([*zip(batches, before, strict=False)]):
        columns = [(batch.column(field.name), field.type) for field in schema.keys]
        for row in reversed(range(min(batch.num_rows, count - start))):
            yield tuple(key_part(column[row], kind) for column, kind in columns)
