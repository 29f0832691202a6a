"""Keys of AWS KMS: those of the aliases ``alias/dormouse/<instance>/<name>``."""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeVar

from botocore.exceptions import ClientError
from cachetools import TTLCache

from dormouse.aws.clients import code_of, reading
from dormouse.encryption import SubjectKeys
from dormouse.errors import ForbiddenError, ServiceRefusedError

CACHE_SECONDS = 5 * 60
"""How long a process keeps a data key that was decrypted: so long it reads on when the right to use
the key is taken away."""
CACHED_KEYS = 256
_TABLE = "dormouse-table"
_MISSING = ("NotFoundException", "DisabledException", "KMSInvalidStateException")
_OTHER_KEY = ("InvalidCiphertextException", "IncorrectKeyException")

_T = TypeVar("_T")


def _new_cache() -> TTLCache[tuple[str, bytes, str], bytes]:
    return TTLCache(CACHED_KEYS, CACHE_SECONDS)


@dataclass(frozen=True, slots=True)
class KmsKeys:
    """An `encryption.KeyService` by KMS. The id of the table is the encryption context, which KMS
    demands, and logs in CloudTrail.
    """

    client: Any
    instance: str
    subjects: SubjectKeys
    _unwrapped: TTLCache[tuple[str, bytes, str], bytes] = field(
        default_factory=_new_cache, repr=False
    )
    _lock: Lock = field(default_factory=Lock, repr=False)

    def wrap(self, name: str, key: bytes, table_id: str, *, is_new: bool = True) -> bytes:
        """Return a data key encrypted by the key of an alias, which people make.

        Raises:
            ForbiddenError: the caller may not use it, or there is none, or it is disabled.
            UnavailableError: KMS does not answer.
        """
        answer = self._answer(
            name,
            lambda: self.client.encrypt(
                KeyId=self._alias(name), Plaintext=key, EncryptionContext={_TABLE: table_id}
            ),
        )
        return bytes(answer["CiphertextBlob"])

    def unwrap(self, name: str, wrapped: bytes, table_id: str) -> bytes:
        """Return what `wrap` encrypted. Raises as that."""
        with self._lock:
            cached = self._unwrapped.get((name, wrapped, table_id))
        if cached is not None:
            return cached
        answer = self._answer(
            name,
            lambda: self.client.decrypt(
                KeyId=self._alias(name),
                CiphertextBlob=wrapped,
                EncryptionContext={_TABLE: table_id},
            ),
        )
        key = bytes(answer["Plaintext"])
        with self._lock:
            self._unwrapped[name, wrapped, table_id] = key
        return key

    def _alias(self, name: str) -> str:
        return f"alias/dormouse/{self.instance}/{name}"

    def _answer(self, name: str, ask: Callable[[], _T]) -> _T:
        try:
            with reading("KMS"):
                return ask()
        except ServiceRefusedError as error:
            cause = error.__cause__
            code = code_of(cause) if isinstance(cause, ClientError) else ""
            if code in _MISSING:
                raise ForbiddenError(
                    f"KMS has no usable key {self._alias(name)}",
                    hint="make a key, and give it that alias; or enable it again",
                ) from error
            if code in _OTHER_KEY:
                raise ForbiddenError("its data key was encrypted by another key") from error
            raise ForbiddenError(
                f"KMS refuses {self._alias(name)}: {error}", hint=error.hint
            ) from error
