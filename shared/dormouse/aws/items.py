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

from dormouse.aws.clients import ConditionFailedError, read_pages, reading, writing
from dormouse.errors import OutcomeUnknownError, UnavailableError
from dormouse.items import store
from dormouse.log.blobs import fetched
from dormouse.system import RETRIES, RetryPolicy

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef


if TYPE_CHECKING:
    Attributes = Mapping[str, AttributeValueTypeDef]

KEYS: dict[store.Space, tuple[str, ...]] = {
    "tables": ("pk",),
    "jobs": ("table_id", "job_id"),
    "state": ("t", "g"),
    "deltas": ("k", "i"),
    "snapshots": ("k", "i"),
    "subjects": ("k", "i"),
}
"""The attributes of the key of each table: the owner and, if there is one, the name."""
_FORMAT, _EXPIRES, _SUM = "format", "expires", "_sum"
_GETS_PER_REQUEST, _DELETES_PER_REQUEST = 100, 25
"""What DynamoDB takes. An answer has 16 MB at most; the rest of a larger one is requested again."""
_REQUESTS_AT_ONCE = 8
_FEW = 2
"""A table and what its instance has for all are read one by one."""
_FIRST = "\x01"
"""Below all names: DynamoDB takes no empty text as one."""
_DIGITS = 38
"""What a number of DynamoDB has at most."""


class DynamoItems:
    """`ItemStore` over the low-level client; safe for many threads, as the client is."""

    def __init__(
        self,
        client: DynamoDBClient,
        table_names: Mapping[store.Space, str],
        retry_policy: RetryPolicy = RETRIES,
    ) -> None:
        """Use these DynamoDB tables, which must exist.

        `retry_policy` is for what a request for many items left undone.
        """
        self._client, self._table_names = client, table_names
        self._retry_policy = retry_policy

    def get(self, *keys: store.Key, never_change: bool = False) -> list[store.Item | None]:
        """Return the items of some keys, None where there is none.

        It takes a request each, or one for a hundred if they never change, or are many of a space.
        """
        are_few = len(keys) <= _FEW or len({key.space for key in keys}) > 1
        if not never_change and are_few:
            return [self._get(key) for key in keys]
        items_by_key: dict[store.Key, store.Item] = {}
        for is_consistent in (False, True) if never_change else (True,):
            missing = [key for key in dict.fromkeys(keys) if key not in items_by_key]
            starts = range(0, len(missing), _GETS_PER_REQUEST)
            some = [missing[at : at + _GETS_PER_REQUEST] for at in starts]
            read = partial(self._get_many, is_consistent=is_consistent)
            for items in fetched(read, some, _REQUESTS_AT_ONCE):
                items_by_key |= {item.key: item for item in items}
        return [items_by_key.get(key) for key in keys]

    def query(self, space: store.Space, owner: str, *, least: str = "") -> Iterator[store.Item]:
        """Yield the items of an owner by name, from a name on."""
        for attributes in self._query(space, owner, f"{KEYS[space][1]} >= :least", least=least):
            yield item_of(space, attributes)

    def names(
        self, space: store.Space, owner: str, *, least: str = "", most: str = store.LAST
    ) -> Iterator[str]:
        """Yield the names of an owner's items, from a name up to another."""
        name = KEYS[space][1]
        where = f"{name} BETWEEN :least AND :most"
        for attributes in self._query(space, owner, where, least=least, most=most, only=name):
            yield attributes[name]["S"]

    def _query(
        self, space: store.Space, owner: str, where: str, *, only: str = "", **values: str
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

    def scan(self, space: store.Space, *prefixes: str) -> Iterator[store.Item]:
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
            yield from (item_of(space, attributes) for attributes in page["Items"])

    def write(self, *changes: store.Change) -> bool:
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

    def append(self, key: store.Key, new_id: bytes, *, room: int) -> store.Item | None:
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
                    ExpressionAttributeNames={"#mark": store.MARK},
                    ExpressionAttributeValues={
                        ":ids": {"L": [{"B": new_id}]},
                        ":id": {"B": new_id},
                        ":sum": {"N": str(store.id_sum(key, new_id))},
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

    def delete(self, keys: Iterable[store.Key]) -> None:
        """Delete many items, 25 by a request."""
        by_space: dict[store.Space, list[store.Key]] = {}
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

    def _get_many(self, keys: Sequence[store.Key], *, is_consistent: bool) -> list[store.Item]:
        """Return the items of up to a hundred keys of one space, as far as they are there."""
        space, items = keys[0].space, list[store.Item]()
        table_name = self._table_names[space]

        def request(rest: Sequence[Attributes]) -> list[Attributes]:
            with reading("DynamoDB"):
                answer = self._client.batch_get_item(
                    RequestItems={table_name: {"Keys": rest, "ConsistentRead": is_consistent}}
                )
            items.extend(item_of(space, each) for each in answer["Responses"].get(table_name, []))
            undone = answer["UnprocessedKeys"].get(table_name)
            return [dict(key) for key in undone["Keys"]] if undone else []

        self._retry_policy.finish([_key(key) for key in keys], request)
        return items

    def _get(self, key: store.Key) -> store.Item | None:
        with reading("DynamoDB"):
            answer = self._client.get_item(
                TableName=self._table_names[key.space], Key=_key(key), ConsistentRead=True
            )
        attributes = answer.get("Item")
        return item_of(key.space, attributes) if attributes else None

    def _request(self, change: store.Change) -> tuple[str, Any]:
        """Return the kind of request that makes a change, and its parameters."""
        parameters = {"TableName": self._table_names[change.key.space], **_expressions(change)}
        match change:
            case store.Put():
                return "Put", {**parameters, "Item": attributes_of(change)}
            case store.Set():
                kind = "Update"
            case store.Delete():
                kind = "Delete"
            case store.Check():
                kind = "ConditionCheck"
        return kind, {**parameters, "Key": _key(change.key)}


def _expressions(change: store.Change) -> dict[str, object]:
    """Return the condition of a change, and what it sets and removes, as parameters of a request.
    Names of attributes are replaced: some of them are words of DynamoDB's own.
    """
    key, when = change.key, change.when
    terms: list[str] = []
    names: dict[str, str] = {}
    values: dict[str, object] = {}
    if when.exists is not None:
        terms.append(f"attribute_{'exists' if when.exists else 'not_exists'}(#key)")
        names["#key"] = KEYS[key.space][0]
    for name, checksum in when.checksums.items():
        names[f"#if_{name}"] = f"{name}{_SUM}"
        if checksum is None:
            terms.append(f"attribute_not_exists(#if_{name})")
        else:
            terms.append(f"#if_{name} = :if_{name}")
            is_bytes = isinstance(checksum, bytes)
            values[f":if_{name}"] = {"B": checksum} if is_bytes else checksum
    update: list[str] = []
    if isinstance(change, store.Set):
        parts: dict[str, object] = {}
        for name, body in change.parts.items():
            parts |= _part(name, body, key) if body is not None else {}
        removals = [name for name, body in change.parts.items() if body is None]
        removals = [each for name in removals for each in (name, f"{name}{_SUM}")]
        update += ["SET " + ", ".join(f"#{name} = :{name}" for name in parts)] if parts else []
        if removals:
            update.append("REMOVE " + ", ".join(f"#{name}" for name in removals))
        names |= {f"#{name}": name for name in (*parts, *removals)}
        values |= {f":{name}": value for name, value in parts.items()}
    expressions: dict[str, object] = {
        "ConditionExpression": " AND ".join(terms),
        "UpdateExpression": " ".join(update),
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
    }
    return {name: value for name, value in expressions.items() if value}


def attributes_of(change: store.Put) -> Attributes:
    """Return the attributes of an item that is put."""
    attributes: dict[str, Any] = {**_key(change.key), _FORMAT: {"N": str(store.FORMAT)}}
    for name, body in change.parts.items():
        attributes |= _part(name, body, change.key, change.expires_s)
    if change.expires_s is not None:
        attributes[_EXPIRES] = {"N": str(change.expires_s)}
    return attributes


def item_of(space: store.Space, attributes: Attributes) -> store.Item:
    """Return the item of some attributes, damaged or not."""
    rest: dict[str, Any] = dict(attributes)
    hash_name, *range_name = KEYS[space]
    key = store.Key(
        space, rest.pop(hash_name)["S"], rest.pop(range_name[0])["S"] if range_name else store.ONLY
    )
    problems: list[str] = []
    form, expires_s = (_number(rest.pop(name, None)) for name in (_FORMAT, _EXPIRES))
    if form is None:
        problems.append("it has no format")
    if _EXPIRES in attributes and expires_s is None:
        problems.append("the time at which it expires is damaged")
    parts: dict[str, store.Part] = {}
    for name in sorted({name.removesuffix(_SUM) for name in rest}):
        parts[name] = store.Part(
            _body(name, rest.get(name)), _checksum(name, rest.get(f"{name}{_SUM}"))
        )
        if None in parts[name]:
            problems.append(f"its {name} is damaged, lost or none of its parts")
    return store.Item(key, parts, expires_s, form or 0, "; ".join(problems))


def _key(key: store.Key) -> Attributes:
    values = (key.owner, key.name)
    return {name: {"S": value} for name, value in zip(KEYS[key.space], values, strict=False)}


def _part(
    name: str, body: store.Body, key: store.Key, expires_s: int | None = None
) -> dict[str, Any]:
    checksum = store.checksum_of(key, name, body, expires_s)
    if name == store.IDS and isinstance(body, bytes):
        ids = [{"B": one} for one in store.ids_of(body)]
        return {name: {"L": ids}, f"{name}{_SUM}": {"N": str(int.from_bytes(checksum))}}
    value = {"S": body} if isinstance(body, str) else {"B": body}
    return {name: value, f"{name}{_SUM}": {"B": checksum}}


def _body(name: str, attribute: Any) -> store.Body | None:
    match attribute:
        case {"L": list(ids)} if name == store.IDS:
            return _joined(ids)
        case {"S": str(body)} | {"B": bytes(body)} if name != store.IDS:
            return body
    return None


def _joined(ids: Sequence[Any]) -> bytes | None:
    bodies = [one["B"] for one in ids if isinstance(one, dict) and isinstance(one.get("B"), bytes)]
    if len(bodies) == len(ids) and all(len(one) == store.ID_BYTES for one in bodies):
        return b"".join(bodies)
    return None


def _checksum(name: str, attribute: Any) -> object:
    match attribute:
        case {"B": bytes(data)} if name != store.IDS:
            return data
        case {"N": _} if name == store.IDS and (total := _number(attribute) or 0) < 2**64:
            return total.to_bytes(8)
    return attribute


def _number(attribute: Any) -> int | None:
    match attribute:
        case {"N": str(number)} if number.isdecimal() and len(number) <= _DIGITS:
            return int(number)
    return None
