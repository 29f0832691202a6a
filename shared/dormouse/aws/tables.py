"""The registry of tables in DynamoDB: `ports.Tables`.

Two items for each table, written and deleted together: ``name#<name>`` with the id, so that a name
belongs to one table, and ``id#<id>`` with all the rest. Reads are consistent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from dormouse.aws.failures import ConditionFailedError, reading, writing
from dormouse.errors import (
    AlreadyExistsError,
    CorruptDataError,
    InvalidRequestError,
    NotFoundError,
)
from dormouse.model.schema import Schema
from dormouse.model.tables import Properties, Table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

    _Item = Mapping[str, AttributeValueTypeDef]

_NAME, _ID = "name#", "id#"


class DynamoTables:
    """`Tables` over the low-level client; safe for many threads, as the client is."""

    def __init__(self, client: DynamoDBClient, table_name: str) -> None:
        """Use the DynamoDB table `table_name`, which must exist."""
        self._client, self._table_name = client, table_name

    def get(self, table_id: str) -> Table | None:
        """Give a table by id; None if there is none (any more)."""
        item = self._get(_ID + table_id)
        return _table(item) if item else None

    def named(self, name: str) -> Table | None:
        """Give a table by name; None if there is none."""
        item = self._get(_NAME + name)
        return self.get(item["id"]["S"]) if item else None

    def all(self) -> list[Table]:
        """Give all tables by name."""
        scan = self._client.get_paginator("scan").paginate(
            TableName=self._table_name,
            ConsistentRead=True,
            FilterExpression="begins_with(pk, :id)",
            ExpressionAttributeValues={":id": {"S": _ID}},
        )
        with reading("DynamoDB"):
            tables = [_table(item) for page in scan for item in page["Items"]]
        return sorted(tables, key=lambda table: table.name)

    def create(self, table: Table) -> None:
        """Add a table; that it was added before, by the same id and name, is no error.

        Raises:
            AlreadyExistsError: the name is taken by another id, or the id by another name.
        """
        try:
            with writing("DynamoDB"):
                self._client.transact_write_items(
                    TransactItems=[
                        {
                            "Put": {
                                "TableName": self._table_name,
                                "Item": item,
                                "ConditionExpression": "attribute_not_exists(pk)",
                            }
                        }
                        for item in (_name_item(table), _id_item(table))
                    ]
                )
        except ConditionFailedError as error:
            kept = self.get(table.id)
            if kept is None or kept.name != table.name:
                raise AlreadyExistsError(f"there is a table {table.name!r} already") from error

    def update(self, table: Table) -> None:
        """Replace what is kept of a table, its name and id excepted.

        Raises:
            NotFoundError: there is no such table, or it is being deleted, which nothing stops.
        """
        changed = _changeable(table)
        try:
            with writing("DynamoDB"):
                self._client.update_item(
                    TableName=self._table_name,
                    Key={"pk": {"S": _ID + table.id}},
                    UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in changed),
                    ConditionExpression=(
                        "attribute_exists(pk) AND (#deleting = :no OR #deleting = :deleting)"
                    ),
                    ExpressionAttributeNames={f"#{name}": name for name in changed},
                    ExpressionAttributeValues={
                        **{f":{name}": value for name, value in changed.items()},
                        ":no": {"BOOL": False},
                    },
                )
        except ConditionFailedError as error:
            raise NotFoundError(f"there is no table {table.name!r} any more") from error

    def delete(self, table: Table) -> None:
        """Remove a table; none of that id is no error."""
        try:
            with writing("DynamoDB"):
                self._client.transact_write_items(
                    TransactItems=[
                        {
                            "Delete": {
                                "TableName": self._table_name,
                                "Key": {"pk": {"S": _ID + table.id}},
                            }
                        },
                        {
                            "Delete": {
                                "TableName": self._table_name,
                                "Key": {"pk": {"S": _NAME + table.name}},
                                "ConditionExpression": "attribute_not_exists(pk) OR #id = :id",
                                "ExpressionAttributeNames": {"#id": "id"},
                                "ExpressionAttributeValues": {":id": {"S": table.id}},
                            }
                        },
                    ]
                )
        except ConditionFailedError:
            return  # another table has the name, so this one was removed before

    def _get(self, key: str) -> _Item:
        with reading("DynamoDB"):
            answer = self._client.get_item(
                TableName=self._table_name, Key={"pk": {"S": key}}, ConsistentRead=True
            )
        return answer.get("Item", {})


def _name_item(table: Table) -> _Item:
    return {"pk": {"S": _NAME + table.name}, "id": {"S": table.id}}


def _id_item(table: Table) -> _Item:
    return {"pk": {"S": _ID + table.id}, "name": {"S": table.name}, **_changeable(table)}


def _changeable(table: Table) -> dict[str, AttributeValueTypeDef]:
    return {
        "schema": {"S": msgspec.json.encode(table.schema.to_json()).decode()},
        "properties": {"S": msgspec.json.encode(table.properties).decode()},
        "online": {"BOOL": table.online},
        "deleting": {"BOOL": table.deleting},
        "created_ms": {"N": str(table.created_ms)},
        "log": {"S": table.log},
    }


def _table(item: _Item) -> Table:
    try:
        return Table(
            id=item["pk"]["S"].removeprefix(_ID),
            name=item["name"]["S"],
            schema=Schema.loads(item["schema"]["S"]),
            properties=msgspec.json.decode(item["properties"]["S"], type=Properties),
            online=item["online"]["BOOL"],
            deleting=item["deleting"]["BOOL"],
            created_ms=int(item["created_ms"]["N"]),
            log=item["log"]["S"],
        )
    except (KeyError, ValueError, InvalidRequestError, msgspec.DecodeError) as error:
        raise CorruptDataError(
            f"the registry's item {item['pk'].get('S')!r} is no table: {error}",
            hint="restore the item from the table's point-in-time backup",
        ) from error
