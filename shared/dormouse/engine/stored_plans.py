"""Change a plan in its serialized form, where DataFusion's Python interface has no argument for
what it can do: read only some row groups of a file, and join the batches of the result.

The form is Protocol Buffers (``datafusion.proto``). So the plan is serialized, changed, and read
again.

- Each file is a message ``PartitionedFile``, with a ``path`` and an optional ``range`` of bytes, in
  which the row groups begin that are read. A filter on the key would read the same ones. But
  DataFusion would then compare every row with the bounds, and copy those that pass.
- A step of a plan is a ``PhysicalPlanNode``. One that joins batches becomes the last: the more
  inputs a merge has, the shorter its batches are, and each costs Python 0.2 ms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from datafusion import SessionContext
from datafusion.plan import ExecutionPlan

from dormouse.errors import InvariantError
from dormouse.shards.format.thrift import read_varint, varint

_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5
"""How a field of Protocol Buffers is encoded: its wire type."""
_RANGE, _START, _END = 5, 1, 2
"""The numbers of ``PartitionedFile.range``, ``FileRange.start`` and ``FileRange.end``."""
_COALESCE, _INPUT, _TARGET = 11, 1, 2
"""The numbers of ``PhysicalPlanNode.coalesce_batches``, and in it of ``input`` and
``target_batch_size``.
"""


def changed(
    context: SessionContext, plan: ExecutionPlan, ranges: Mapping[str, range], *, joined: int
) -> ExecutionPlan:
    """Return `plan`, reading of each file the row groups whose first byte is in its range, and
    returning batches of `joined` rows. Those that have more than half of that are not joined.

    `ranges` are keyed by the ends of the files' paths, which occur nowhere else in the plan.

    Raises:
        InvariantError: DataFusion does not take the changes as it is expected to.
    """
    body = plan.to_bytes()
    for name, wanted in ranges.items():
        body = with_range(body, name.encode(), wanted)
    target = varint(_TARGET << 3 | _VARINT) + varint(joined)
    body = _field(_COALESCE, _field(_INPUT, body) + target)
    read_again = ExecutionPlan.from_bytes(context, body)
    shown = read_again.display_indent()
    for name, wanted in ranges.items():
        if f"{name}:{wanted.start}..{wanted.stop}" not in shown:
            raise InvariantError(f"DataFusion would not read {name} as it was asked to")
    if not shown.startswith(f"CoalesceBatchesExec: target_batch_size={joined}"):
        raise InvariantError(f"DataFusion would not join batches to {joined} rows")
    return read_again


def with_range(message: bytes, name: bytes, wanted: range) -> bytes:
    """Return a message in which the file whose path ends with `name` has a range.

    Raises:
        InvariantError: there is no such file.
    """
    for start, body, end in _fields(message):
        if message.endswith(name, body, end):
            return message + _field(_RANGE, _range(wanted))
        inner = message[body:end]
        if name in inner:
            tag, _ = read_varint(message, start)
            changed = _field(tag >> 3, with_range(inner, name, wanted))
            return message[:start] + changed + message[end:]
    raise InvariantError(f"a plan does not read {name.decode()}")


def _range(wanted: range) -> bytes:
    ends = ((_START, wanted.start), (_END, wanted.stop))
    return b"".join(varint(number << 3 | _VARINT) + varint(value) for number, value in ends)


def _field(number: int, body: bytes) -> bytes:
    return varint(number << 3 | _BYTES) + varint(len(body)) + body


def _fields(message: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield where each field that consists of bytes begins, where its bytes begin, and its end."""
    at = 0
    while at < len(message):
        start = at
        tag, at = read_varint(message, at)
        kind = tag & 7
        if kind == _BYTES:
            length, body = read_varint(message, at)
            at = body + length
            yield start, body, at
        elif kind == _VARINT:
            _, at = read_varint(message, at)
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            at += 8 if kind == _EIGHT_BYTES else 4
        else:
            raise InvariantError(f"a plan has a field of the unknown wire type {kind}")
