"""Objects that are stored for a request beside its table: put once, verified when read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from dormouse.errors import NotFoundError
from dormouse.ports.services import Services
from dormouse.stored.decoding import raise_corrupt
from dormouse.stored.json_objects import decode_stored, encode_stored

FORMAT = 1
_Form = TypeVar("_Form", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class RequestObject(Generic[_Form]):
    """A kind of object stored for a request: its name in messages, its form, and the hint for a
    damaged one.
    """

    name: str
    form: type[_Form]
    hint: str

    def put(self, services: Services, path: str, body: _Form) -> bool:
        """Put the object; return False if there is one already, which stays."""
        return services.storage.put(path, encode_stored(self.name, FORMAT, path, body))

    def get(self, services: Services, path: str) -> _Form | None:
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
