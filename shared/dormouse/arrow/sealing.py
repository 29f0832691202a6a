"""Columns whose values are encrypted one by one, and their values in the types of programs."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dormouse import encryption
from dormouse.arrow.types import arrow_type
from dormouse.errors import CorruptDataError, DormouseError, InvariantError
from dormouse.key_codec import plain_part
from dormouse.schema.schema import DataKey, Field, Schema
from dormouse.schema.types import FieldType, Primitive
from dormouse.tables.encryption import subject_of

_Subjects = Sequence[encryption.SubjectKey | None] | None
"""The subject of each value; of those of other tables None at all."""
_TEXTS = (Primitive.STRING, Primitive.BYTES, Primitive.DYNAMIC)


@dataclass(slots=True)
class ColumnKeys:
    """The data keys of the encrypted columns of a table, each decrypted when it is first needed."""

    service: encryption.KeyService
    schema: Schema
    table_id: str
    _ciphers: dict[tuple[int, int], encryption.ValueCipher] = field(
        default_factory=dict, repr=False
    )

    def encrypted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows whose encrypted columns have values, as programs write them, as stored.
        Raises ForbiddenError, UnavailableError: a key cannot be had.
        """
        subjects = self._subjects(batch) if self.schema.subject else None
        return self._changed(batch, partial(self._sealed, subjects=subjects))

    def decrypted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return stored rows with the values of those encrypted columns that are there; null in
        place of one whose subject was forgotten.

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
        """Check that encrypted values of some columns can be read. Raises as `encrypted`."""
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

    def _subjects(self, batch: pa.RecordBatch) -> list[encryption.SubjectKey | None]:
        """Return the subjects of rows, as far as these have anything to encrypt."""
        named = subject_of(self.schema)
        cells, columns = batch.column(named.name), [each.name for each in self.schema.encrypted]
        is_any = reduce(pc.or_, (pc.is_valid(batch.column(name)) for name in columns))
        coded = pc.if_else(is_any, cells, pa.scalar(None, cells.type)).dictionary_encode()
        names = [
            encryption.subject_name(self.table_id, plain_part(each, named.type))
            for each in coded.dictionary.to_pylist()
        ]
        keys = self.service.subjects.made(self.table_id, names)
        return [None if at is None else keys[names[at]] for at in coded.indices.to_pylist()]

    def _sealed(self, column: Field, values: Any, subjects: _Subjects) -> Any:
        newest = self._newest(column)
        plain = _as_bytes(values, column.opened.type)
        return _binary(newest.encrypted(plain.to_pylist(), subjects))

    def _opened(self, column: Field, cells: Any) -> Any:
        plain = self._plain(column, cells, self._subjects_of(column, cells))
        return _of_bytes(_binary(plain), column.opened.type)

    def _subjects_of(self, column: Field, cells: Any) -> _Subjects:
        """Return the subject of each stored value: None if that is null, or it was forgotten."""
        if not self.schema.subject:
            return None
        self._newest(column)  # refused without the key, before it shows which subjects there are
        heads = pc.binary_slice(cells, 0, 4 + encryption.MARK_BYTES).dictionary_encode()
        marks = [*map(encryption.mark_of, heads.dictionary.to_pylist())]
        if any(len(mark) < encryption.MARK_BYTES for mark in marks):
            raise CorruptDataError(f"column {column.name!r} has a value of no subject")
        keys = self.service.subjects.known(self.table_id, marks)
        return [None if at is None else keys[marks[at]] for at in heads.indices.to_pylist()]

    def _plain(self, column: Field, cells: Any, subjects: _Subjects) -> Iterator[bytes | None]:
        try:
            for at, cell in enumerate(cells.to_pylist()):
                subject = subjects[at] if subjects is not None else None
                is_null = cell is None or (subjects is not None and subject is None)
                second = (subject.key or b"") if subject else b""
                cipher = None if is_null else self._cipher(column, encryption.number_of(cell))
                yield cipher.decrypted(cell, second) if cipher else None
        except CorruptDataError as error:
            raise CorruptDataError(f"column {column.name!r}: {error}") from error

    def _renewed(self, column: Field, cells: Any) -> Any:
        newest = max(number for name, number in self._numbers if name == column.key)
        head, first = pc.binary_slice(cells, 0, 4), _first_bytes(self.schema, newest)
        same = pc.fill_null(pc.equal(head, pa.scalar(first)), True)
        if pc.all(same).as_py() is not False:
            return cells
        older = cells.filter(pc.invert(same))
        subjects = self._subjects_of(column, older)
        renewed = self._newest(column).encrypted(self._plain(column, older, subjects), subjects)
        return pc.replace_with_mask(cells, pc.invert(same), _binary(renewed))

    @property
    def _numbers(self) -> Mapping[tuple[str, int], DataKey]:
        return {(each.name, each.number): each for each in self.schema.data_keys}

    def _newest(self, column: Field) -> encryption.ValueCipher:
        numbers = [number for name, number in self._numbers if name == column.key]
        return self._cipher(column, max(numbers, default=0))

    def _cipher(self, column: Field, number: int) -> encryption.ValueCipher:
        """Return the cipher of a column and the number of a data key."""
        cipher = self._ciphers.get((column.id, number))
        if cipher is None:
            wrapped = self._numbers.get((column.key, number))
            if wrapped is None:
                raise CorruptDataError(f"column {column.name!r} has a value without a data key")
            key = unwrapped(self.service, wrapped, self.table_id, column.name)
            cipher = encryption.ValueCipher(key, number, column.id)
            self._ciphers[column.id, number] = cipher
        return cipher


def unwrapped(service: encryption.KeyService, key: DataKey, table_id: str, column: str) -> bytes:
    """Return a column's data key decrypted. Raises ForbiddenError, UnavailableError."""
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
    Raises InvariantError: a value does not begin with the number of a data key.
    """
    for column in schema.encrypted:
        at = batch.schema.get_field_index(column.name)
        if at < 0:
            continue
        heads = pc.unique(pc.binary_slice(batch.column(at), 0, 4))
        numbers = {_first_bytes(schema, k.number) for k in schema.data_keys if k.name == column.key}
        if not numbers.issuperset(head for head in heads.to_pylist() if head is not None):
            raise InvariantError(f"rows of column {column.name!r} were to be stored in plain")


def _first_bytes(schema: Schema, number: int) -> bytes:
    return (number | (encryption.OF_SUBJECT if schema.subject else 0)).to_bytes(4, "big")


def _binary(values: Iterable[bytes | None]) -> Any:
    return pa.array(list(values), pa.binary())


def _as_bytes(values: Any, kind: FieldType) -> Any:
    """Return values as bytes: text as UTF-8, others as they are in memory, least byte first."""
    if kind in _TEXTS:
        return values.cast(pa.binary())
    if kind is Primitive.BOOLEAN:
        values = values.cast(pa.uint8())
    width = pa.binary(values.type.byte_width)
    valid, body = values.buffers()
    cells = pa.Array.from_buffers(width, len(values), [valid, body], offset=values.offset)
    return cells.cast(pa.binary())


def _of_bytes(cells: Any, kind: FieldType) -> Any:
    """Return the values that `_as_bytes` made bytes of."""
    target = arrow_type(kind)
    if kind in _TEXTS:
        return cells.cast(target)
    stored = pa.uint8() if kind is Primitive.BOOLEAN else target
    fixed = cells.cast(pa.binary(stored.byte_width))
    valid, body = fixed.buffers()
    values = pa.Array.from_buffers(stored, len(fixed), [valid, body], offset=fixed.offset)
    return values.cast(target)
