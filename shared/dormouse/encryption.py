"""Keys of encrypted columns, and the encrypted form of one value.

A value is encrypted for itself, where rows are read from files, and decrypted where they leave the
library. In between it is bytes as any: what sorts, merges, spills, splits, copies, exports or
publishes rows needs no key, and knows nothing of them. docs/encryption.md has the form.

A data key encrypts values; a key service has the key that encrypts the data key, and never gives
that away.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from dormouse.errors import CorruptDataError, ForbiddenError, needs_extra

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
SALT_BYTES, NONCE_BYTES, TAG_BYTES = 12, 12, 16
_HEAD = 4 + SALT_BYTES
_OVERHEAD = _HEAD + 4 + TAG_BYTES
"""What an encrypted value has beside the value: the number of the data key, a salt, a counter; and
behind it a tag."""
_CIPHERS_KEPT = 1024


class KeyService(Protocol):
    """Encrypts data keys, by keys that it keeps. `table_id` is of the table they are for: for
    another one, they are not decrypted.
    """

    def wrap(self, name: str, key: bytes, table_id: str, *, is_new: bool = True) -> bytes:
        """Return a data key encrypted by the key of a name, which may be made if it `is_new` to the
        table.

        Raises:
            ForbiddenError: the caller may not use it, or there is none.
            UnavailableError: the service does not answer.
        """

    def unwrap(self, name: str, wrapped: bytes, table_id: str) -> bytes:
        """Return what `wrap` encrypted. Raises as that."""


@dataclass(frozen=True, slots=True)
class NoKeys:
    """The keys of what may use none; `reason` says why."""

    reason: str = "this process has no keys"

    def wrap(self, name: str, key: bytes, table_id: str, *, is_new: bool = True) -> bytes:
        """Refuse it."""
        raise ForbiddenError(self.reason)

    def unwrap(self, name: str, wrapped: bytes, table_id: str) -> bytes:
        """Refuse it."""
        raise ForbiddenError(self.reason)


FILES = NoKeys("the answer is stored as files, in plain")
"""The keys of what answers queries by files."""


def new_key() -> bytes:
    """Return a new key of AES-256."""
    return os.urandom(KEY_BYTES)


@dataclass(frozen=True, slots=True)
class ValueCipher:
    """Encrypts values by a data key of a number, and decrypts those of it. They are bound to the
    `column` that they are in, a field id: in another one they are not decrypted.
    """

    key: bytes = field(repr=False)
    number: int
    column: int
    _ciphers: dict[bytes, AESGCM] = field(default_factory=dict, repr=False)

    def encrypted(self, values: Iterable[bytes | None]) -> Iterator[bytes | None]:
        """Yield values in their encrypted form; null stays null.

        They share a salt, which makes a key of its own, and are counted: so no two values have both
        key and nonce in common, however many a data key encrypts, in however many processes.
        Requires: there are less than 2^32.
        """
        salt = os.urandom(SALT_BYTES)
        head, nonce = self.number.to_bytes(4, "big") + salt, salt[4:]
        encrypt, bound = self._cipher(salt).encrypt, self.column.to_bytes(4, "big")
        for place, value in enumerate(values):
            count = place.to_bytes(4, "big")
            yield None if value is None else head + count + encrypt(nonce + count, value, bound)

    def decrypted(self, value: bytes) -> bytes:
        """Return what a value of this key hides.

        Raises:
            CorruptDataError: it is not what was encrypted for this column, by this key.
        """
        salt = value[4:_HEAD]
        cipher = self._ciphers.get(salt) or self._cipher(salt)
        bound = self.column.to_bytes(4, "big")
        try:
            return cipher.decrypt(value[8 : _HEAD + 4], value[_HEAD + 4 :], bound)
        except (_invalid_tag(), ValueError) as error:
            raise CorruptDataError("an encrypted value is not what was written") from error

    def _cipher(self, salt: bytes) -> AESGCM:
        cipher = _aes(derived_key(self.key, salt))
        if len(self._ciphers) >= _CIPHERS_KEPT:
            self._ciphers.clear()
        self._ciphers[salt] = cipher
        return cipher


def _invalid_tag() -> type[Exception]:
    from cryptography.exceptions import InvalidTag

    return InvalidTag


def _aes(key: bytes) -> AESGCM:
    with needs_extra("encryption", "an encrypted column"):
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def derived_key(key: bytes, salt: bytes) -> bytes:
    """Return the key of the values of a salt: NIST SP 800-56C, one step, SHA-256."""
    return hashlib.sha256(b"\x00\x00\x00\x01" + key + salt).digest()


def number_of(value: bytes) -> int:
    """Return the number of the data key of an encrypted value; 0 if it is none."""
    return int.from_bytes(value[:4], "big") if len(value) >= _OVERHEAD else 0


def encrypted_once(key: bytes, secret: bytes, bound: bytes) -> bytes:
    """Return a short secret encrypted by a key, for something that it is bound to."""
    nonce = os.urandom(NONCE_BYTES)
    return nonce + _aes(key).encrypt(nonce, secret, bound)


def decrypted_once(key: bytes, stored: bytes, bound: bytes) -> bytes:
    """Return what `encrypted_once` encrypted.

    Raises:
        ForbiddenError: it was encrypted by another key, or for something else.
    """
    cipher = _aes(key)
    try:
        return cipher.decrypt(stored[:NONCE_BYTES], stored[NONCE_BYTES:], bound)
    except (_invalid_tag(), ValueError) as error:
        raise ForbiddenError("its data key was encrypted by another key") from error
