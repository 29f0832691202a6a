"""The port of what readers of Iceberg need to open the objects of a table themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class ReaderAccess(Protocol):
    """What readers need, as properties that Iceberg's clients of storage know."""

    def settings(self) -> Mapping[str, str]:
        """Return what is the same for all tables, and no secret."""

    def credentials(self, table_id: str) -> Mapping[str, str]:
        """Return credentials, for a while, to read the objects of one table that readers open;
        nothing if this instance lends none.

        Raises:
            UnavailableError: there are none now.
        """
