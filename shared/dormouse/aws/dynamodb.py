"""The stored form of every item in DynamoDB: its attributes, a format number and a checksum.

The checksum covers the kind of the item, its key and all attributes. So it detects an attribute
that was changed, lost or added, and an item that was copied to another key or table. It is 8 bytes
of BLAKE2b, and protects against damage, not against forgery.

An item of which each write changes only a part has a checksum for each part (`digest_of`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal, TypedDict

import msgspec

from dormouse.errors import CorruptDataError
from dormouse.stored.decoding import raise_corrupt

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef


if TYPE_CHECKING:
    Item = Mapping[str, AttributeValueTypeDef]


class _ConditionOnly(TypedDict):
    ConditionExpression: str
    ExpressionAttributeNames: Mapping[str, str]


class Condition(_ConditionOnly, total=False):
    """The condition of a write, as parameters of its request."""

    ExpressionAttributeValues: Mapping[str, AttributeValueTypeDef]
    ReturnValuesOnConditionCheckFailure: Literal["ALL_OLD", "NONE"]


FORMAT = 2
CHECKSUM, _FORMAT = "sum", "format"
_DIGEST_BYTES = 8


def sealed(kind: str, item: Item) -> dict[str, AttributeValueTypeDef]:
    """Return the stored form of an item; its checksum covers `kind`, so kinds are not confused."""
    stored: dict[str, AttributeValueTypeDef] = {**held(item), _FORMAT: {"N": str(FORMAT)}}
    return {**stored, CHECKSUM: {"B": digest_of(kind, stored)}}


@contextmanager
def opened(kind: str, item: Item, problem: str, *, hint: str) -> Iterator[None]:
    """Verify an item that `sealed` made, and run the block that decodes it.

    Raises:
        CorruptDataError: the checksum or the format differs, or the block raised a decoding
            error; `problem` names the item.
    """
    with raise_corrupt(problem, hint=hint):
        _check(kind, item)
        yield


def digest_of(kind: str, parts: object) -> bytes:
    """Return the checksum of attributes, keys among them, whatever their order."""
    text = msgspec.json.encode((kind, parts), order="deterministic")
    return blake2b(text, digest_size=_DIGEST_BYTES).digest()


def unchanged(item: Item) -> Condition:
    """Return the condition, for a write, that an item is the one that was read, damaged or not.

    No two writes leave an item with the same checksum unless it is the same item.
    """
    names = {"#sum": CHECKSUM}
    if CHECKSUM not in item:  # missing, or its checksum was removed
        absent = "attribute_not_exists(#sum)"
        return {"ConditionExpression": absent, "ExpressionAttributeNames": names}
    return {
        "ConditionExpression": "#sum = :sum",
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": {":sum": item[CHECKSUM]},
    }


def held(item: Item) -> dict[str, AttributeValueTypeDef]:
    """Return the attributes of an item, key included, without its format and checksum."""
    return {name: value for name, value in item.items() if name not in (CHECKSUM, _FORMAT)}


def _check(kind: str, item: Item) -> None:
    stored = {name: value for name, value in item.items() if name != CHECKSUM}
    if CHECKSUM not in item:
        raise ValueError("it has no checksum")
    if item[CHECKSUM].get("B") != digest_of(kind, stored):
        raise ValueError("its checksum is not that of what it holds")
    if stored[_FORMAT] != {"N": str(FORMAT)}:
        raise CorruptDataError(
            f"it is of format {stored[_FORMAT].get('N')}; the one known here is {FORMAT}",
            hint="it was written by another version of Dormouse: use that one",
        )
