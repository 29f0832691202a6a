"""Objects that are kept of a request beside its table: put once, and read with care."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from dormouse.errors import NotFoundError
from dormouse.ports import Services
from dormouse.stored.decoding import raise_corrupt
from dormouse.stored.json_objects import decode_stored, encode_stored

FORMAT = 3
_Body = TypeVar("_Body", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Kept(Generic[_Body]):
    """A kind of object that is kept of a request, and what to do about a damaged one."""

    name: str
    form: type[_Body]
    hint: str

    def put(self, services: Services, path: str, body: _Body) -> bool:
        """Return whether it was put: what is there stays."""
        return services.storage.put(path, encode_stored(self.name, FORMAT, path, body))

    def get(self, services: Services, path: str) -> _Body | None:
        """Return what is kept there; None if nothing is.

        Raises:
            CorruptDataError: it is damaged.
        """
        try:
            stored = services.storage.get(path)
        except NotFoundError:
            return None
        with raise_corrupt(f"{path} is not {self.name}", hint=self.hint):
            return decode_stored(self.name, FORMAT, path, stored, self.form)
