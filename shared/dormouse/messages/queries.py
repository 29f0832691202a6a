"""Messages about queries: what people and programs send to the queue ``queries``, and sub-queries.

Everybody who may send to that queue may ask. The sender that the queue names is the one who asked;
what the message says about that does not count. What the instance sends to itself about a query
says who asked it; nobody else but who asked can send the same.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from dormouse.messages.base import ALL_ROWS, Message, SelectionMessage
from dormouse.model.sources import WholeNumber
from dormouse.tables.spark_options import SparkOptions

QueryId = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9_-]{0,127}\Z")]
"""The id of a query. It is a part of paths of objects."""
ResultFormat = Literal["parquet", "arrow", "feather", "csv", "json"]
"""The formats of results; `results.formats.ResultFormat` says what each is."""
_Count = Annotated[int, msgspec.Meta(ge=1)]
_Positive = Annotated[float, msgspec.Meta(gt=0)]


class QueryLimits(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True
):
    """What a query may take; one that takes more fails. Properties of the table set the most, which
    is also what null means.

    `rows` and `result_bytes` are those of its result. `read_bytes` are read of shards, `seconds`
    are from its beginning to its end. `dollars` is what its requests and functions cost on AWS, as
    far as that is counted.
    """

    rows: _Count | None = None
    result_bytes: _Count | None = None
    read_bytes: _Count | None = None
    seconds: _Count | None = None
    dollars: _Positive | None = None


class AnswerQuery(Message, frozen=True, tag="answer_query", kw_only=True):
    """Answer a query, once for each `query_id`, however often the message is delivered.

    It asks for the selected rows of `table`, or for those of a statement in `sql`, with the values
    of its parameters by name. The result is files of one format below ``queries/<query_id>/`` in
    the results bucket, and a manifest that is put last. If `to` names a queue of the instance's
    list, the result is sent there, too. With `spark`, a statement is one in Spark's dialect, which
    Spark computes on a cluster of these options. `who` is who asks: the function puts the sender
    there that SQS names. `connection` is the WebSocket to which progress is sent; the API alone can
    name one.
    """

    query_id: QueryId
    table: str = ""
    selection: SelectionMessage = ALL_ROWS
    sql: str = ""
    parameters: dict[str, str | int | float | bool | None] = {}
    format: ResultFormat = "parquet"
    to: str = ""
    limits: QueryLimits = QueryLimits()
    who: str = ""
    connection: str | UnsetType = UNSET
    spark: SparkOptions | UnsetType = UNSET
    v: Literal[1] = 1

    def __post_init__(self) -> None:
        """Refuse a message that names both a table and a statement, or neither."""
        if bool(self.table) == bool(self.sql):
            raise ValueError("a query has either a table or a statement in sql")
        if self.sql and self.selection != ALL_ROWS:
            raise ValueError("a statement in sql says itself which rows it selects")
        if self.table and self.spark:
            raise ValueError("Spark computes a statement in sql; export_rows has it read a table")


class CancelQuery(Message, frozen=True, tag="cancel_query", kw_only=True):
    """End a query that has not ended. Who asked can cancel it, as `AnswerQuery` has it, and who
    administers all tables of the instance by an access rule.
    """

    query_id: QueryId
    who: str = ""
    v: Literal[1] = 1


class FollowQuery(Message, frozen=True, tag="follow_query", kw_only=True):
    """Send the progress of a query to another connection of its asker, too. Only the API can."""

    query_id: QueryId
    connection: str
    who: str = ""
    v: Literal[1] = 1


class LeaveQuery(Message, frozen=True, tag="leave_query", kw_only=True):
    """Cancel a query whose connection was closed, if no other connection follows it. `who` asked
    it.
    """

    query_id: QueryId
    who: str = ""
    v: Literal[1] = 1


class QueryTask(Message, frozen=True, tag="query_task"):
    """Answer one sub-query of a query that `who` asked. Both are described in the results
    bucket.
    """

    query_id: QueryId
    task: WholeNumber
    who: str = ""
    v: Literal[1] = 1


QueryMessage = AnswerQuery | CancelQuery | FollowQuery | LeaveQuery | QueryTask
"""All messages about queries."""
