"""Columns whose values are encrypted one by one, and their values in the types of programs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.arrow.types import arrow_type
from dormouse.encryption import KeyService, ValueCipher, number_of
from dormouse.errors import CorruptDataError, DormouseError, InvariantError
from dormouse.schema.schema import DataKey, Field, Schema
from dormouse.schema.types import FieldType, Primitive

_TEXTS = (Primitive.STRING, Primitive.BYTES, Primitive.DYNAMIC)


@dataclass(slots=True)
class ColumnKeys:
    """The data keys of the encrypted columns of a table, each decrypted when it is first needed."""

    service: KeyService
    schema: Schema
    table_id: str
    _ciphers: dict[tuple[int, int], ValueCipher] = field(default_factory=dict, repr=False)

    def encrypted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows whose encrypted columns have values, as programs write them, as they are
        stored.

        Raises:
            ForbiddenError, UnavailableError: a key cannot be had.
        """
        return self._changed(batch, self._sealed)

    def decrypted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return stored rows with the values of those encrypted columns that are there.

        Raises:
            ForbiddenError, UnavailableError: a key cannot be had.
            CorruptDataError: a value is not what was written.
        """
        return self._changed(batch, self._opened)

    def renewed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return stored rows, of which those of older data keys are encrypted by the newest. If
        there are none, no key is needed. Raises as `decrypted`.
        """
        return self._changed(batch, self._renewed)

    def check(self, names: Collection[str]) -> None:
        """Check that values of those of some columns that are encrypted can be read. Raises as
        `encrypted`.
        """
        for column in self.schema.encrypted:
            if column.name in names:
                self._newest(column)

    def _changed(
        self, batch: pa.RecordBatch, change: Callable[[Field, Any], Any]
    ) -> pa.RecordBatch:
        for column in self.schema.encrypted:
            at = batch.schema.get_field_index(column.name)
            if at >= 0:
                cells = change(column, batch.column(at))
                named = pa.field(column.name, cells.type, nullable=column.nullable)
                batch = batch.set_column(at, named, cells)
        return batch

    def _sealed(self, column: Field, values: Any) -> Any:
        newest = self._newest(column)
        plain = _as_bytes(values, column.opened.type)
        return _binary(newest.encrypted(plain.to_pylist()))

    def _opened(self, column: Field, cells: Any) -> Any:
        return _of_bytes(_binary(self._plain(column, cells)), column.opened.type)

    def _plain(self, column: Field, cells: Any) -> Iterator[bytes | None]:
        for cell in cells.to_pylist():
            yield None if cell is None else self._decrypted(column, cell)

    def _decrypted(self, column: Field, cell: bytes) -> bytes:
        try:
            return self._cipher(column, number_of(cell)).decrypted(cell)
        except CorruptDataError as error:
            raise CorruptDataError(f"column {column.name!r}: {error}") from error

    def _renewed(self, column: Field, cells: Any) -> Any:
        newest = max(number for name, number in self._numbers if name == column.key)
        head: Any = pc.binary_slice(cells, 0, 4)
        same = pc.fill_null(pc.equal(head, pa.scalar(newest.to_bytes(4, "big"))), True)
        if pc.all(same).as_py() is not False:
            return cells
        older = cells.filter(pc.invert(same))
        renewed = _binary(self._newest(column).encrypted(self._plain(column, older)))
        return pc.replace_with_mask(cells, pc.invert(same), renewed)

    @property
    def _numbers(self) -> Mapping[tuple[str, int], DataKey]:
        return {(each.name, each.number): each for each in self.schema.data_keys}

    def _newest(self, column: Field) -> ValueCipher:
        numbers = [number for name, number in self._numbers if name == column.key]
        return self._cipher(column, max(numbers, default=0))

    def _cipher(self, column: Field, number: int) -> ValueCipher:
        """Return the cipher of a column and the number of a data key."""
        found = self._ciphers.get((column.id, number))
        if found is None:
            wrapped = self._numbers.get((column.key, number))
            if wrapped is None:
                raise CorruptDataError(f"column {column.name!r} has a value without a data key")
            key = unwrapped(self.service, wrapped, self.table_id, column.name)
            found = ValueCipher(key, number, column.id)
            self._ciphers[column.id, number] = found
        return found


def unwrapped(service: KeyService, key: DataKey, table_id: str, column: str) -> bytes:
    """Return a data key decrypted, for a column of a table.

    Raises:
        ForbiddenError, UnavailableError: it cannot be; the message names the column.
    """
    try:
        return service.unwrap(key.name, key.wrapped, table_id)
    except DormouseError as error:
        raise type(error)(
            f"column {column!r} is encrypted by the key {key.name!r}: {error}",
            hint=error.hint or "ask for other columns, or for the right to use the key",
        ) from error


def check_encrypted(schema: Schema, batch: pa.RecordBatch) -> None:
    """Check that what is to be stored of encrypted columns looks encrypted: the last guard, against
    a way to rows that forgot to encrypt them.

    Raises:
        InvariantError: a value does not begin with the number of a data key.
    """
    for column in schema.encrypted:
        at = batch.schema.get_field_index(column.name)
        if at < 0:
            continue
        heads = pc.unique(pc.binary_slice(batch.column(at), 0, 4))
        known = {k.number.to_bytes(4, "big") for k in schema.data_keys if k.name == column.key}
        if not known.issuperset(head for head in heads.to_pylist() if head is not None):
            raise InvariantError(f"rows of column {column.name!r} were to be stored in plain")


def _binary(values: Iterable[bytes | None]) -> Any:
    return pa.array(list(values), pa.binary())


def _as_bytes(values: Any, kind: FieldType) -> Any:
    """Return values as bytes: text as UTF-8, others as they are in memory, least byte first."""
    if kind in _TEXTS:
        is_large = pa.types.is_large_string(values.type)
        return (
            values.cast(pa.large_binary()).cast(pa.binary())
            if is_large
            else values.cast(pa.binary())
        )
    if kind is Primitive.BOOLEAN:
        values = values.cast(pa.uint8())
    width = pa.binary(values.type.byte_width)
    valid, body = values.buffers()
    cells = pa.Array.from_buffers(width, len(values), [valid, body], offset=values.offset)
    return cells.cast(pa.binary())


def _of_bytes(cells: Any, kind: FieldType) -> Any:
    """Return the values that `_as_bytes` made bytes of."""
    wanted = arrow_type(kind)
    if kind in _TEXTS:
        is_large = pa.types.is_large_string(wanted)
        return (cells.cast(pa.large_binary()) if is_large else cells).cast(wanted)
    stored = pa.uint8() if kind is Primitive.BOOLEAN else wanted
    fixed = cells.cast(pa.binary(stored.byte_width))
    valid, body = fixed.buffers()
    values = pa.Array.from_buffers(stored, len(fixed), [valid, body], offset=fixed.offset)
    return values.cast(wanted)
