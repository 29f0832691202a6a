"""Keys of encrypted columns, and the encrypted form of one value.

A value is encrypted for itself, where rows are read from files, and decrypted where they leave the
library. In between it is bytes as any: what sorts, merges, spills, splits, copies, exports or
publishes rows needs no key, and knows nothing of them. docs/encryption.md has the form.

A data key encrypts values; a key service has the key that encrypts the data key, and keeps it. In a
table with a subject column, values are encrypted by two keys at once: that data key and one of
their subject, which can be forgotten.
"""

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Never, Protocol

from dormouse.errors import CorruptDataError, ForbiddenError, needs_extra

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
SALT_BYTES, NONCE_BYTES, TAG_BYTES = 12, 12, 16
NAME_BYTES = 16
MARK_BYTES = NAME_BYTES + 4
"""What says which key of a subject a value takes: the name of the subject, and a generation."""
OF_SUBJECT = 1 << 31
"""Set in the number of a value that takes a key of a subject; its mark follows the number."""
_OVERHEAD = 4 + SALT_BYTES + 4 + TAG_BYTES
"""What an encrypted value has beside the value: the number of the data key, a salt, a counter; and
behind it a tag."""
_CIPHERS_KEPT = 1024


@dataclass(frozen=True, slots=True, eq=False)
class SubjectKey:
    """The newest key of a subject; None once it was forgotten. The next one has the next
    generation.
    """

    name: bytes
    generation: int
    key: bytes | None = field(repr=False)

    @property
    def mark(self) -> bytes:
        """What values have that it encrypts."""
        return self.name + self.generation.to_bytes(4, "big")


class SubjectKeys(Protocol):
    """Keeps the keys of the subjects of tables, by `subject_name`. Every call may raise
    ForbiddenError or UnavailableError, and CorruptDataError if a key is damaged.
    """

    def made(self, table_id: str, names: Collection[bytes]) -> Mapping[bytes, SubjectKey]:
        """Return the key of each subject; who has none gets one, which all processes agree on."""

    def known(self, table_id: str, marks: Collection[bytes]) -> Mapping[bytes, SubjectKey | None]:
        """Return the key of each mark; None if it is forgotten since a minute, or for less time.
        Raises CorruptDataError: one is lost, though it was not forgotten.
        """

    def forget(self, table_id: str, names: Collection[bytes]) -> int:
        """Forget the keys of subjects for good; return how many there were. It can be repeated."""

    def delete(self, table_id: str) -> None:
        """Delete all that is known of the subjects of a table that is deleted."""


def subject_name(table_id: str, subject: object) -> bytes:
    """Return the name of a subject, a value as it is in a key: nobody else in a table has it."""
    kind = "b" if isinstance(subject, bytes) else "t"  # a number is the same in a wider type
    text = subject if isinstance(subject, bytes) else str(subject).encode(errors="surrogatepass")
    return hashlib.sha256(f"{table_id}\n{kind}\n".encode() + text).digest()[:NAME_BYTES]


class KeyService(Protocol):
    """Encrypts data keys, by keys that it keeps. `table_id` is of the table they are for: for
    another one, they are not decrypted.
    """

    def wrap(self, name: str, key: bytes, table_id: str, *, is_new: bool = True) -> bytes:
        """Return a data key encrypted by the key of a name, made if it `is_new` to the table.

        Raises:
            ForbiddenError: the caller may not use it, or there is none.
            UnavailableError: the service does not answer.
        """

    def unwrap(self, name: str, wrapped: bytes, table_id: str) -> bytes:
        """Return what `wrap` encrypted. Raises as that."""

    @property
    def subjects(self) -> SubjectKeys:
        """The keys of subjects."""


@dataclass(frozen=True, slots=True)
class NoKeys:
    """The keys of what may use none; `reason` says why."""

    reason: str = "this process has no keys"

    def wrap(self, *_: object, **__: object) -> Never:
        """Refuse it."""
        raise ForbiddenError(self.reason)

    unwrap = wrap
    subjects = property(wrap)


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
    _ciphers: "dict[bytes, AESGCM]" = field(default_factory=dict, repr=False)

    def encrypted(
        self, values: Iterable[bytes | None], subjects: Iterable[SubjectKey | None] | None = None
    ) -> Iterator[bytes | None]:
        """Yield values in their encrypted form, each for its subject if there are `subjects`; null
        stays null.

        They share a salt, which makes keys of its own, and are counted: so no two values have both
        key and nonce in common, however many a data key encrypts, in however many processes.
        Requires: there are less than 2^32.
        """
        salt, number = os.urandom(SALT_BYTES), self.number | (OF_SUBJECT if subjects else 0)
        first, nonce, bound = number.to_bytes(4, "big"), salt[4:], self.column.to_bytes(4, "big")
        ciphers: dict[SubjectKey | None, tuple[bytes, AESGCM]] = {}
        for place, (value, subject) in enumerate(
            zip(values, subjects or repeat(None), strict=False)
        ):
            if value is None:
                yield None
                continue
            if subject not in ciphers:
                mark, second = (subject.mark, subject.key) if subject else (b"", b"")
                assert second is not None and (subject or not subjects), "each value has a key"
                cipher = _aes(derived_key(self.key + second, salt))
                ciphers[subject] = first + mark + salt, cipher
            head, cipher = ciphers[subject]
            count = place.to_bytes(4, "big")
            yield head + count + cipher.encrypt(nonce + count, value, bound)

    def decrypted(self, value: bytes, second: bytes = b"") -> bytes:
        """Return what a value of this key hides, and of the key of its subject, if it has one.
        Raises CorruptDataError: it is not what was encrypted for this column, by these keys.
        """
        at = 4 + len(mark_of(value))
        end = at + SALT_BYTES
        cipher = self._ciphers.get(value[4:end])
        if cipher is None:
            cipher = _aes(derived_key(self.key + second, value[at:end]))
            if len(self._ciphers) >= _CIPHERS_KEPT:
                self._ciphers.clear()
            self._ciphers[value[4:end]] = cipher
        bound = self.column.to_bytes(4, "big")
        try:
            return cipher.decrypt(value[at + 4 : end + 4], value[end + 4 :], bound)
        except (_invalid_tag(), ValueError) as error:
            raise CorruptDataError("an encrypted value is not what was written") from error


def _invalid_tag() -> type[Exception]:
    from cryptography.exceptions import InvalidTag

    return InvalidTag


def _aes(key: bytes) -> "AESGCM":
    with needs_extra("encryption", "an encrypted column"):
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def derived_key(key: bytes, salt: bytes) -> bytes:
    """Return the key of the values of a salt: NIST SP 800-56C, one step, SHA-256."""
    return hashlib.sha256(b"\x00\x00\x00\x01" + key + salt).digest()


def number_of(value: bytes) -> int:
    """Return the number of the data key of an encrypted value; 0 if it is none."""
    return int.from_bytes(value[:4], "big") & ~OF_SUBJECT if len(value) >= _OVERHEAD else 0


def mark_of(value: bytes) -> bytes:
    """Return the mark of the key of a subject that a value takes; empty if it takes none."""
    return value[4 : 4 + MARK_BYTES] if value[:1] >= b"\x80" else b""


def encrypted_once(key: bytes, secret: bytes, bound: bytes) -> bytes:
    """Return a short secret encrypted by a key, for something that it is bound to."""
    nonce = os.urandom(NONCE_BYTES)
    return nonce + _aes(key).encrypt(nonce, secret, bound)


def decrypted_once(key: bytes, stored: bytes, bound: bytes) -> bytes:
    """Return what `encrypted_once` encrypted.
    Raises ForbiddenError: it was encrypted by another key, or for something else.
    """
    cipher = _aes(key)
    try:
        return cipher.decrypt(stored[:NONCE_BYTES], stored[NONCE_BYTES:], bound)
    except (_invalid_tag(), ValueError) as error:
        raise ForbiddenError("its data key was encrypted by another key") from error
