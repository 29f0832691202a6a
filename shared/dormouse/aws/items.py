"""The `ItemStore` of DynamoDB: each space is a table.

A part is an attribute of its name, and its checksum one of that name and ``_sum``; ids are a list,
their checksum a number, so that an append adds to both without a read. Beside them an item has its
format and, if it expires, the second from which on DynamoDB may delete it.

What a failed request means is decided in `aws.clients`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dormouse import system
from dormouse.aws.clients import ConditionFailedError, read_pages, reading, writing
from dormouse.errors import OutcomeUnknownError, UnavailableError
from dormouse.items import store
from dormouse.items.store import (
    IDS,
    LAST,
    MARK,
    ONLY,
    Body,
    Change,
    Check,
    Delete,
    If,
    Item,
    Key,
    Part,
    Put,
    Set,
    Space,
    checksum_of,
    id_sum,
)
from dormouse.log.blobs import fetched
from dormouse.system import RetryPolicy

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef


if TYPE_CHECKING:
    Attributes = Mapping[str, AttributeValueTypeDef]

KEYS: dict[Space, tuple[str, ...]] = {
    "tables": ("pk",),
    "jobs": ("table_id", "job_id"),
    "state": ("t", "g"),
    "deltas": ("k", "i"),
    "snapshots": ("k", "i"),
}
"""The attributes of the key of each table: the owner and, if there is one, the name."""
_FORMAT, _EXPIRES, _SUM = "format", "expires", "_sum"
_GETS_PER_REQUEST, _DELETES_PER_REQUEST = 100, 25
"""What DynamoDB takes. An answer has 16 MB at most; the rest of a larger one is requested again."""
_REQUESTS_AT_ONCE = 8
_FIRST = "\x01"
"""Below all names: DynamoDB takes no empty text as one."""
_DIGITS = 38
"""What a number of DynamoDB has at most."""


class DynamoItems:
    """`ItemStore` over the low-level client; safe for many threads, as the client is."""

    def __init__(
        self,
        client: DynamoDBClient,
        table_names: Mapping[Space, str],
        retry_policy: RetryPolicy | None = None,
    ) -> None:
        """Use these DynamoDB tables, which must exist.

        `retry_policy` is for what a request for many items left undone.
        """
        self._client, self._table_names = client, table_names
        self._retry_policy = retry_policy or system.retry_policy()

    def get(self, *keys: Key, never_change: bool = False) -> list[Item | None]:
        """Return the items of some keys, None where there is none.

        It takes a request each, or one for a hundred that never change.
        """
        if not never_change:
            return [self._get(key) for key in keys]
        found: dict[Key, Item] = {}
        for is_consistent in (False, True):
            missing = [key for key in dict.fromkeys(keys) if key not in found]
            starts = range(0, len(missing), _GETS_PER_REQUEST)
            some = [missing[at : at + _GETS_PER_REQUEST] for at in starts]
            read = partial(self._get_many, is_consistent=is_consistent)
            for items in fetched(read, some, _REQUESTS_AT_ONCE):
                found |= {item.key: item for item in items}
        return [found.get(key) for key in keys]

    def query(self, space: Space, owner: str, *, least: str = "") -> Iterator[Item]:
        """Yield the items of an owner by name, from a name on."""
        for attributes in self._query(space, owner, f"{KEYS[space][1]} >= :least", least=least):
            yield item_of(space, attributes)

    def names(
        self, space: Space, owner: str, *, least: str = "", most: str = LAST
    ) -> Iterator[str]:
        """Yield the names of an owner's items, from a name up to another."""
        name = KEYS[space][1]
        where = f"{name} BETWEEN :least AND :most"
        for attributes in self._query(space, owner, where, least=least, most=most, only=name):
            yield attributes[name]["S"]

    def _query(
        self, space: Space, owner: str, where: str, *, only: str = "", **values: str
    ) -> Iterator[Attributes]:
        values = {f":{name}": value or _FIRST for name, value in {**values, "owner": owner}.items()}
        projection: dict[str, Any] = {"ProjectionExpression": only} if only else {}
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table_names[space],
            ConsistentRead=True,
            KeyConditionExpression=f"{KEYS[space][0]} = :owner AND {where}",
            ExpressionAttributeValues={name: {"S": value} for name, value in values.items()},
            **projection,
        )
        for page in read_pages("DynamoDB", pages):
            yield from page["Items"]

    def scan(self, space: Space, *prefixes: str) -> Iterator[Item]:
        """Yield all items whose owner begins with one of these, in any order."""
        values = {f":p{number}": prefix for number, prefix in enumerate(prefixes)}
        hash_name = KEYS[space][0]
        pages = self._client.get_paginator("scan").paginate(
            TableName=self._table_names[space],
            ConsistentRead=True,
            FilterExpression=" OR ".join(f"begins_with({hash_name}, {name})" for name in values),
            ExpressionAttributeValues={name: {"S": prefix} for name, prefix in values.items()},
        )
        for page in read_pages("DynamoDB", pages):
            yield from (item_of(space, found) for found in page["Items"])

    def write(self, *changes: Change) -> bool:
        """Make one change by a request of its own, several by a transaction of twice its price."""
        requests = [self._request(change) for change in changes]
        try:
            with writing("DynamoDB"):
                match requests:
                    case [("Put", parameters)]:
                        self._client.put_item(**parameters)
                    case [("Update", parameters)]:
                        self._client.update_item(**parameters)
                    case [("Delete", parameters)]:
                        self._client.delete_item(**parameters)
                    case _:
                        transaction: Any = [{kind: parameters} for kind, parameters in requests]
                        self._client.transact_write_items(TransactItems=transaction)
        except ConditionFailedError:
            return False
        return True

    def append(self, key: Key, new_id: bytes, *, room: int) -> Item | None:
        """Append an id by one write, which reads nothing; return the item as it then is."""
        try:
            with writing("DynamoDB"):
                answer = self._client.update_item(
                    TableName=self._table_names[key.space],
                    Key=_key(key),
                    UpdateExpression="SET ids = list_append(ids, :ids), ids_sum = ids_sum + :sum",
                    ConditionExpression=(
                        "attribute_type(ids, :list) AND attribute_type(ids_sum, :number)"
                        " AND NOT contains(ids, :id) AND #mark <= :id AND size(ids) < :limit"
                    ),
                    ExpressionAttributeNames={"#mark": MARK},
                    ExpressionAttributeValues={
                        ":ids": {"L": [{"B": new_id}]},
                        ":id": {"B": new_id},
                        ":sum": {"N": str(id_sum(key, new_id))},
                        ":list": {"S": "L"},
                        ":number": {"S": "N"},
                        ":limit": {"N": str(room)},
                    },
                    ReturnValues="ALL_NEW",
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                )
        except ConditionFailedError as failed:
            return item_of(key.space, failed.item) if failed.item else None
        return item_of(key.space, answer["Attributes"])

    def delete(self, keys: Iterable[Key]) -> None:
        """Delete many items, 25 by a request."""
        by_space: dict[Space, list[Key]] = {}
        for key in keys:
            by_space.setdefault(key.space, []).append(key)
        for space, some in by_space.items():
            for start in range(0, len(some), _DELETES_PER_REQUEST):
                self._retry_policy.finish(
                    [_key(key) for key in some[start : start + _DELETES_PER_REQUEST]],
                    partial(self._delete_some, self._table_names[space]),
                )

    def _delete_some(self, table_name: str, keys: Sequence[Attributes]) -> list[Attributes]:
        """Delete items by one request; return the keys of those that it left."""
        requests: Any = [{"DeleteRequest": {"Key": key}} for key in keys]
        try:
            with writing("DynamoDB"):
                answer = self._client.batch_write_item(RequestItems={table_name: requests})
        except OutcomeUnknownError as error:  # a deletion can be repeated
            raise UnavailableError(str(error)) from error
        undone = answer["UnprocessedItems"].get(table_name, [])
        return [dict(each["DeleteRequest"]["Key"]) for each in undone]

    def _get_many(self, keys: Sequence[Key], *, is_consistent: bool) -> list[Item]:
        """Return the items of up to a hundred keys of one space, as far as they are there."""
        space, items = keys[0].space, list[Item]()
        table_name = self._table_names[space]

        def request(left: Sequence[Attributes]) -> list[Attributes]:
            with reading("DynamoDB"):
                answer = self._client.batch_get_item(
                    RequestItems={table_name: {"Keys": left, "ConsistentRead": is_consistent}}
                )
            items.extend(item_of(space, each) for each in answer["Responses"].get(table_name, []))
            undone = answer["UnprocessedKeys"].get(table_name)
            return [dict(key) for key in undone["Keys"]] if undone else []

        self._retry_policy.finish([_key(key) for key in keys], request)
        return items

    def _get(self, key: Key) -> Item | None:
        with reading("DynamoDB"):
            answer = self._client.get_item(
                TableName=self._table_names[key.space], Key=_key(key), ConsistentRead=True
            )
        found = answer.get("Item")
        return item_of(key.space, found) if found else None

    def _request(self, change: Change) -> tuple[str, Any]:
        """Return the kind of request that makes a change, and its parameters."""
        condition = _Condition(change.key, change.when)
        parameters: dict[str, Any] = {"TableName": self._table_names[change.key.space]}
        match change:
            case Put():
                return "Put", {**parameters, "Item": attributes_of(change), **condition.parameters}
            case Set():
                update = condition.update(change)
                return "Update", {**parameters, "Key": _key(change.key), **update}
            case Delete():
                kind = "Delete"
            case Check():
                kind = "ConditionCheck"
        return kind, {**parameters, "Key": _key(change.key), **condition.parameters}


class _Condition:
    """The condition of a change as parameters of its request.

    Names of attributes are replaced: some of them are words of DynamoDB's own.
    """

    def __init__(self, key: Key, when: If) -> None:
        terms: list[str] = []
        self._names: dict[str, str] = {}
        self._values: dict[str, object] = {}
        if when.exists is not None:
            terms.append(f"attribute_{'exists' if when.exists else 'not_exists'}(#key)")
            self._names["#key"] = KEYS[key.space][0]
        for name, checksum in when.checksums.items():
            self._names[f"#if_{name}"] = f"{name}{_SUM}"
            if checksum is None:
                terms.append(f"attribute_not_exists(#if_{name})")
            else:
                terms.append(f"#if_{name} = :if_{name}")
                is_bytes = isinstance(checksum, bytes)
                self._values[f":if_{name}"] = {"B": checksum} if is_bytes else checksum
        self._terms = terms

    @property
    def parameters(self) -> dict[str, object]:
        if not self._terms:
            return {}
        return {
            "ConditionExpression": " AND ".join(self._terms),
            "ExpressionAttributeNames": self._names,
            **({"ExpressionAttributeValues": self._values} if self._values else {}),
        }

    def update(self, change: Set) -> dict[str, object]:
        """Return the parameters that also say what is set and removed."""
        parts: dict[str, object] = {}
        for name, body in change.parts.items():
            parts |= _part(name, body, change.key) if body is not None else {}
        gone = [name for name, body in change.parts.items() if body is None]
        removed = [one for name in gone for one in (name, f"{name}{_SUM}")]
        expression = ["SET " + ", ".join(f"#{name} = :{name}" for name in parts)] if parts else []
        if removed:
            expression.append("REMOVE " + ", ".join(f"#{name}" for name in removed))
        self._names |= {f"#{name}": name for name in (*parts, *removed)}
        self._values |= {f":{name}": value for name, value in parts.items()}
        return {"UpdateExpression": " ".join(expression), **self.parameters}


def attributes_of(change: Put) -> Attributes:
    """Return the attributes of an item that is put."""
    attributes: dict[str, Any] = {**_key(change.key), _FORMAT: {"N": str(store.FORMAT)}}
    for name, body in change.parts.items():
        attributes |= _part(name, body, change.key, change.expires_s)
    if change.expires_s is not None:
        attributes[_EXPIRES] = {"N": str(change.expires_s)}
    return attributes


def item_of(space: Space, attributes: Attributes) -> Item:
    """Return the item of some attributes, damaged or not."""
    left: dict[str, Any] = dict(attributes)
    hash_name, *range_name = KEYS[space]
    key = Key(space, left.pop(hash_name)["S"], left.pop(range_name[0])["S"] if range_name else ONLY)
    problems: list[str] = []
    form, expires_s = (_number(left.pop(name, None)) for name in (_FORMAT, _EXPIRES))
    if form is None:
        problems.append("it has no format")
    if _EXPIRES in attributes and expires_s is None:
        problems.append("the time at which it expires is damaged")
    parts: dict[str, Part] = {}
    for name in sorted({name.removesuffix(_SUM) for name in left}):
        parts[name] = Part(_body(name, left.get(name)), _checksum(name, left.get(f"{name}{_SUM}")))
        if None in parts[name]:
            problems.append(f"its {name} is damaged, lost or none of its parts")
    return Item(key, parts, expires_s, form or 0, "; ".join(problems))


def _key(key: Key) -> Attributes:
    values = (key.owner, key.name)
    return {name: {"S": value} for name, value in zip(KEYS[key.space], values, strict=False)}


def _part(name: str, body: Body, key: Key, expires_s: int | None = None) -> dict[str, Any]:
    checksum = checksum_of(key, name, body, expires_s)
    if name == IDS and isinstance(body, bytes):
        ids = [{"B": one} for one in store.ids_of(body)]
        return {name: {"L": ids}, f"{name}{_SUM}": {"N": str(int.from_bytes(checksum))}}
    held = {"S": body} if isinstance(body, str) else {"B": body}
    return {name: held, f"{name}{_SUM}": {"B": checksum}}


def _body(name: str, attribute: Any) -> Body | None:
    match attribute:
        case {"L": list(ids)} if name == IDS:
            return _joined(ids)
        case {"S": str(body)} | {"B": bytes(body)} if name != IDS:
            return body
    return None


def _joined(ids: Sequence[Any]) -> bytes | None:
    held = [one["B"] for one in ids if isinstance(one, dict) and isinstance(one.get("B"), bytes)]
    if len(held) == len(ids) and all(len(one) == store.ID_BYTES for one in held):
        return b"".join(held)
    return None


def _checksum(name: str, attribute: Any) -> object:
    match attribute:
        case {"B": bytes(data)} if name != IDS:
            return data
        case {"N": _} if name == IDS and (total := _number(attribute) or 0) < 2**64:
            return total.to_bytes(8)
    return attribute


def _number(attribute: Any) -> int | None:
    match attribute:
        case {"N": str(number)} if number.isdecimal() and len(number) <= _DIGITS:
            return int(number)
    return None
