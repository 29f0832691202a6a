"""Makes moto forget what it holds no more; applied by `moto_server`.

moto lists every message, item and object that it ever made, for a dashboard; so none of them is
ever freed, deleted or not.
"""

from typing import Any

from moto.core.common_models import BaseModel


def apply() -> None:
    """Replace the parts of moto; call once, before the server starts."""
    BaseModel.__new__ = _new  # type: ignore[method-assign]


def _new(cls: type, *_: Any, **__: Any) -> Any:
    return object.__new__(cls)
