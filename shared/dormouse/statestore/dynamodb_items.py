"""Items in three DynamoDB tables, each with hash key `k` and range key `i`, both strings.

Each has a checksum (`aws.dynamodb.stored_items`).
Puts that depend on the root go in transactions with a check of it (`dynamodb_pages`): that is what
keeps a writer that slept from putting anything again. Used by `dynamodb_store`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from dormouse.aws.base.failures import ConditionFailedError, reading, writing
from dormouse.aws.dynamodb.stored_items import held, opened, sealed
from dormouse.errors import OutcomeUnknownError, UnavailableError
from dormouse.state_store import REBUILD
from dormouse.statestore.dynamodb_pages import DynamoPages
from dormouse.statestore.items import Item, ItemKey, ItemTable, Value

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import (
        AttributeValueTypeDef,
        TransactWriteItemTypeDef,
        WriteRequestOutputTypeDef,
        WriteRequestTypeDef,
    )

    _Attributes = dict[str, AttributeValueTypeDef]

_DELETES_PER_REQUEST = 25
_ROUNDS_OF_DELETES = 20
_PUTS_PER_TRANSACTION = 99
"""DynamoDB takes 100 operations in one; the check of the root is the last."""
_BYTES_PER_TRANSACTION = 3_000_000
"""DynamoDB takes 4 MB in one; what an item counts is only estimated."""


class DynamoItems:
    """`Items` over the low-level client; safe for many threads, as the client is."""

    def __init__(
        self, client: DynamoDBClient, names: Mapping[ItemTable, str], pages: DynamoPages
    ) -> None:
        """Use the DynamoDB tables of these names, which must exist, and the root in `pages`."""
        self._client, self._names, self._pages = client, names, pages

    def put(self, item: Item) -> None:
        """Keep an item; one that is there under its key is this one, put before."""
        try:
            with writing("DynamoDB"):
                self._client.put_item(TableName=self._names[item.key.table], Item=_attributes(item))
        except OutcomeUnknownError as error:
            raise _may_repeat(error) from error

    def put_while(self, table_id: str, revision: int, items: Sequence[Item]) -> bool:
        """Keep items as long as the root of an open log has this revision."""
        check: TransactWriteItemTypeDef = {
            "ConditionCheck": self._pages.check_revision(table_id, revision)
        }
        try:
            for chunk in _transactions(items):
                puts = [self._put(item) for item in chunk]
                with writing("DynamoDB"):
                    self._client.transact_write_items(TransactItems=[check, *puts])
        except ConditionFailedError:
            return False
        except OutcomeUnknownError as error:
            raise _may_repeat(error) from error
        return True

    def query(
        self, table: ItemTable, hash_key: str, *, prefix: str = "", up_to: str | None = None
    ) -> Iterator[Item]:
        """Return the items under a hash key in order, page by page, each page as it is when
        read."""
        condition, values = _condition(hash_key, prefix, up_to)
        with reading("DynamoDB"):
            for page in self._client.get_paginator("query").paginate(
                TableName=self._names[table],
                ConsistentRead=True,
                KeyConditionExpression=condition,
                ExpressionAttributeValues=values,
            ):
                for attributes in page["Items"]:
                    yield _item(table, attributes)

    def keys(self, table: ItemTable, hash_key: str, *, prefix: str = "") -> Iterator[ItemKey]:
        """Yield the keys of the items that `query` gives, whatever is in the items."""
        condition, values = _condition(hash_key, prefix, None)
        with reading("DynamoDB"):
            for page in self._client.get_paginator("query").paginate(
                TableName=self._names[table],
                ConsistentRead=True,
                KeyConditionExpression=condition,
                ExpressionAttributeValues=values,
                ProjectionExpression="k, i",
            ):
                for attributes in page["Items"]:
                    yield _item_key(table, attributes)

    def delete(self, keys: Sequence[ItemKey]) -> None:
        """Delete items; one that is not there is no error."""
        for start in range(0, len(keys), _DELETES_PER_REQUEST):
            requests: dict[str, list[WriteRequestTypeDef]] = {}
            for key in keys[start : start + _DELETES_PER_REQUEST]:
                request: WriteRequestTypeDef = {"DeleteRequest": {"Key": _key(key)}}
                requests.setdefault(self._names[key.table], []).append(request)
            self._write(requests)

    def _write(self, requests: Mapping[str, Sequence[WriteRequestTypeDef]]) -> None:
        left: Mapping[str, Sequence[WriteRequestTypeDef | WriteRequestOutputTypeDef]] = requests
        for _ in range(_ROUNDS_OF_DELETES):
            try:
                with writing("DynamoDB"):
                    left = self._client.batch_write_item(RequestItems=left)["UnprocessedItems"]
            except OutcomeUnknownError as error:
                raise _may_repeat(error) from error
            if not left:
                return
        raise UnavailableError(f"DynamoDB left items of {', '.join(left)} undeleted")

    def _put(self, item: Item) -> TransactWriteItemTypeDef:
        return {"Put": {"TableName": self._names[item.key.table], "Item": _attributes(item)}}


def _transactions(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Return items in order, as many at once as one transaction takes."""
    chunk: list[Item] = []
    chunk_bytes = 0
    for item in items:
        size_bytes = item.size_bytes()
        full = len(chunk) == _PUTS_PER_TRANSACTION
        if chunk and (full or chunk_bytes + size_bytes > _BYTES_PER_TRANSACTION):
            yield chunk
            chunk, chunk_bytes = [], 0
        chunk.append(item)
        chunk_bytes += size_bytes
    if chunk:
        yield chunk


def _condition(hash_key: str, prefix: str, up_to: str | None) -> tuple[str, _Attributes]:
    condition, values = "k = :k", {":k": hash_key}
    if up_to is not None:
        condition, values = f"{condition} AND i <= :i", {**values, ":i": up_to}
    elif prefix:
        condition, values = f"{condition} AND begins_with(i, :i)", {**values, ":i": prefix}
    return condition, {name: {"S": text} for name, text in values.items()}


def _key(key: ItemKey) -> _Attributes:
    return {"k": {"S": key.hash}, "i": {"S": key.range}}


def _item_key(table: ItemTable, attributes: Mapping[str, AttributeValueTypeDef]) -> ItemKey:
    return ItemKey(table, attributes["k"]["S"], attributes["i"]["S"])


def _attributes(item: Item) -> _Attributes:
    values = {name: _stored(value) for name, value in item.values.items()}
    return sealed(item.key.table, {**values, **_key(item.key)})


def _stored(value: Value) -> AttributeValueTypeDef:
    match value:
        case bool():
            return {"BOOL": value}
        case int():
            return {"N": str(value)}
        case str():
            return {"S": value}
        case bytes():
            return {"B": value}
        case tuple():
            return {"L": [{"S": part} for part in value]}


def _item(table: ItemTable, attributes: Mapping[str, AttributeValueTypeDef]) -> Item:
    key = _item_key(table, attributes)
    problem = f"item {key.range!r} of {key.hash!r} is damaged"
    with opened(table, attributes, problem, hint=REBUILD):
        return Item(key, {n: _value(v) for n, v in held(attributes).items() if n not in ("k", "i")})


def _value(stored: AttributeValueTypeDef) -> Value:
    match stored:
        case {"BOOL": bool(value)}:
            return value
        case {"N": str(digits)}:
            return int(digits)
        case {"S": str(text)}:
            return text
        case {"B": bytes(data)}:
            return data
        case {"L": list(parts)}:
            return tuple(part["S"] for part in parts)
    raise ValueError("it holds what nobody puts there")


def _may_repeat(error: OutcomeUnknownError) -> UnavailableError:
    """Return an error by which the same request is sent again: all requests here may be."""
    return UnavailableError(str(error))
