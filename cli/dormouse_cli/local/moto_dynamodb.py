"""Makes moto's DynamoDB atomic and its transactions cheap; applied by `moto_server`.

moto reads an item, checks the condition and writes without a lock, and a transaction that fails
puts back a copy of the whole table, with the writes of others undone. Here one lock covers each
call from its condition to its response, a transaction keeps and restores only the items it touches,
and a `ClientRequestToken` that comes again is answered without being applied again.
"""

import copy
import functools
import hashlib
import json
import threading
from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

from moto.core.responses import ActionResult
from moto.dynamodb import models
from moto.dynamodb.exceptions import DynamodbException
from moto.dynamodb.models import DynamoDBBackend
from moto.dynamodb.models.dynamo_type import DynamoType, Item
from moto.dynamodb.models.table import Table
from moto.dynamodb.responses import DynamoHandler

LOCK = threading.RLock()
_REMEMBERED_TOKENS = 10_000
_JSON = dict[str, Any]


def _copy_all_but_tables(value: Any) -> Any:
    return value if isinstance(value, Table) else copy.deepcopy(value)


def apply() -> None:
    """Replace the parts of moto; call once, before the server starts."""
    # transact_write_items "restores" the table object itself, which is then no change at all.
    models.copy = SimpleNamespace(deepcopy=_copy_all_but_tables)  # type: ignore[assignment, attr-defined]
    DynamoDBBackend.transact_write_items = _transact_write_items  # type: ignore[method-assign]
    DynamoHandler.transact_write_items = _transact_write_once  # type: ignore[method-assign]
    DynamoHandler.call_action = _serialised(DynamoHandler.call_action)  # type: ignore[method-assign]


def _serialised(call_action: Any) -> Any:
    @functools.wraps(call_action)
    def one_at_a_time(self: DynamoHandler) -> Any:
        with LOCK:
            return call_action(self)

    return one_at_a_time


_plain_transact_write_items = DynamoDBBackend.transact_write_items


def _transact_write_items(self: DynamoDBBackend, transact_items: list[_JSON]) -> None:
    before = [_Slot.of(self, item) for item in transact_items]
    try:
        _plain_transact_write_items(self, transact_items)
    except BaseException:
        for slot in before:
            slot.restore()
        raise


class _Slot:
    """Where one item of a table is kept, and what was there before the transaction."""

    def __init__(self, table: Table, hash_key: DynamoType, range_key: DynamoType | None) -> None:
        self._table, self._hash_key, self._range_key = table, hash_key, range_key
        self._item: Item | None = copy.deepcopy(table.get_item(hash_key, range_key))

    @classmethod
    def of(cls, backend: DynamoDBBackend, operation: _JSON) -> "_Slot":
        request = next(iter(operation.values()))
        table = backend.get_table(request["TableName"])
        attributes = request.get("Key") or request["Item"]
        range_name = table.range_key_attr
        range_key = DynamoType(attributes[range_name]) if range_name else None
        return cls(table, DynamoType(attributes[table.hash_key_attr]), range_key)

    def restore(self) -> None:
        if self._item is None:
            self._table.delete_item(self._hash_key, self._range_key)
        elif self._range_key is not None:
            self._table.items[self._hash_key][self._range_key] = self._item
        else:
            self._table.items[self._hash_key] = self._item  # type: ignore[assignment]


_plain_transact_write = DynamoHandler.transact_write_items
_tokens: OrderedDict[tuple[str, str, str], bytes] = OrderedDict()
"""What came with each token, as a digest: transactions of megabytes need not be kept."""


def _transact_write_once(self: DynamoHandler) -> ActionResult:
    token = self.body.get("ClientRequestToken")
    if not token:
        return _plain_transact_write(self)
    known_as = (self.current_account, self.region, token)
    content = json.dumps(self.body["TransactItems"], sort_keys=True, default=bytes.hex)
    digest = hashlib.sha256(content.encode()).digest()
    if known_as not in _tokens:
        result = _plain_transact_write(self)
        _tokens[known_as] = digest
        if len(_tokens) > _REMEMBERED_TOKENS:
            _tokens.popitem(last=False)
        return result
    if _tokens[known_as] != digest:
        raise DynamodbException(
            "IdempotentParameterMismatchException",
            "The request uses the same client token as a previous, but non-identical request.",
        )
    return ActionResult({})
