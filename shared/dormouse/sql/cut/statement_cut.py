"""What a statement is cut into, in the form in which a query stores it."""

from __future__ import annotations

from typing import Any

import msgspec


class StatementCut(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """The parts of a statement, or why it is computed whole.

    `partial` reads a piece of the table; only rows for which `where` is true matter. If `final` is
    empty, the rows of pieces, one after the other, are the result, or their first `limit` rows.
    Else it reads what the partial statements return, whose columns are the JSON form of a schema.
    `names` are those of the parameters of each. `schema` is that of the result: an Arrow schema as
    a message of Arrow's, in base64. With `whole_because`, the statement is not cut.
    """

    partial: str = ""
    partial_names: tuple[str, ...] = ()
    where: str = ""
    final: str = ""
    final_names: tuple[str, ...] = ()
    limit: int | None = None
    columns: dict[str, Any] = {}
    schema: str = ""
    whole_because: str = ""
