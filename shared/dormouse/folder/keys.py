"""The keys of an instance in a folder: in a file beside the folder, or where the settings say.

It is not in the folder, so that nobody who has a copy of that has the keys. Who makes a table
with a key of a new name makes that key, and the file. A name has one key or several: data keys are
encrypted by the last one, and decrypted by any of them.
"""

import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dormouse.encryption import SubjectKeys, decrypted_once, encrypted_once, new_key
from dormouse.errors import CorruptDataError, ForbiddenError
from dormouse.folder.processes import locked
from dormouse.stored.decoding import decode_json, raise_corrupt

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class _KeyFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keys: dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class FileKeys:
    """An `encryption.KeyService` of the keys in the file at `path`, which this user alone may
    read; who adds one locks the folder `root`.
    """

    path: Path
    root: Path
    subjects: SubjectKeys

    def wrap(self, name: str, key: bytes, table_id: str, *, is_new: bool = True) -> bytes:
        """Return a data key encrypted by the last key of a name, which is made if there is none and
        it `is_new`: else it is in another file.

        Raises:
            ForbiddenError: there is none; or the file cannot be read, or others can read it.
            CorruptDataError: it is no file of keys.
        """
        with locked(self.root):
            keys = self._keys()
            if name not in keys and not is_new:
                raise self._missing(name)
            if name not in keys:
                keys = {**keys, name: [new_key()]}
                self._write(keys)
        return encrypted_once(keys[name][-1], key, table_id.encode())

    def unwrap(self, name: str, wrapped: bytes, table_id: str) -> bytes:
        """Return what `wrap` encrypted. Raises as that."""
        keys = self._keys().get(name)
        if keys is None:
            raise self._missing(name)
        for key in keys[:0:-1]:
            try:
                return decrypted_once(key, wrapped, table_id.encode())
            except ForbiddenError:
                continue
        return decrypted_once(keys[0], wrapped, table_id.encode())

    def _missing(self, name: str) -> ForbiddenError:
        return ForbiddenError(
            f"{self.path} has no key {name!r}",
            hint="name the file that has it in DORMOUSE_KEY_FILE, or ask for other columns",
        )

    def _keys(self) -> dict[str, list[bytes]]:
        try:
            with self.path.open("rb") as file:
                if os.fstat(file.fileno()).st_mode & _OTHERS:
                    raise ForbiddenError(
                        f"others may read the keys in {self.path}",
                        hint=f"chmod 600 {self.path}; and if others had access, change the keys",
                    )
                body = file.read()
        except FileNotFoundError:
            return {}
        except PermissionError as error:
            raise ForbiddenError(f"the keys in {self.path} cannot be read") from error
        with raise_corrupt(f"{self.path} is no file of keys"):
            stored = decode_json(body, _KeyFile).keys
        try:
            return {name: [_key(each) for each in keys] for name, keys in stored.items() if keys}
        except ValueError:  # the message would quote a key
            raise CorruptDataError(
                f"{self.path} has a key that is not 64 hexadecimal digits"
            ) from None

    def _write(self, keys: Mapping[str, list[bytes]]) -> None:
        body = msgspec.json.encode(_KeyFile({n: [k.hex() for k in of] for n, of in keys.items()}))
        descriptor, name = tempfile.mkstemp(dir=self.path.parent, prefix=f"{self.path.name}-")
        try:
            with os.fdopen(descriptor, "wb") as file:  # for this user alone, as mkstemp makes it
                file.write(msgspec.json.format(body))
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def _key(digits: str) -> bytes:
    key = bytes.fromhex(digits)
    if len(key) != len(new_key()):
        raise ValueError("a key has another length")
    return key
