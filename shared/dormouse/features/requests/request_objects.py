"""Objects that are stored for a request beside its table: put once, verified when read."""

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
    """A kind of object that is stored for a request, with the hint for a damaged one."""

    name: str
    form: type[_Body]
    hint: str

    def put(self, services: Services, path: str, body: _Body) -> bool:
        """Put the object; return False if there is one already, which stays."""
        return services.storage.put(path, encode_stored(self.name, FORMAT, path, body))

    def get(self, services: Services, path: str) -> _Body | None:
        """Return the object at a path; None if there is none.

        Raises:
            CorruptDataError: the object is damaged.
        """
        try:
            stored = services.storage.get(path)
        except NotFoundError:
            return None
        with raise_corrupt(f"{path} is not {self.name}", hint=self.hint):
            return decode_stored(self.name, FORMAT, path, stored, self.form)
