"""A database of AWS Glue in which published tables have entries: `publications.Mirror`."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from dormouse.aws.clients import code_of, reading, writing
from dormouse.ports import MirroredTable, MirrorEntry

TABLE_ID = "dormouse.table-id"
"""The parameter of an entry that says which table it is of."""
_METADATA, _PREVIOUS = "metadata_location", "previous_metadata_location"
_MISSING = "EntityNotFoundException"
_CONFLICTS = (
    _MISSING,
    "AlreadyExistsException",
    "ConcurrentModificationException",
    "VersionMismatchException",
)


class GlueMirror:
    """`Mirror` over the low-level client; safe for many threads, as the client is."""

    def __init__(self, client: Any, database: str) -> None:
        """Use a database, which must exist; none if its name is empty."""
        self._client, self._database = client, database

    @property
    def database(self) -> str:
        """The name of the database."""
        return self._database

    def get(self, name: str) -> MirrorEntry | None:
        """Return an entry; None if there is none."""
        with reading("Glue"):
            try:
                found = self._client.get_table(DatabaseName=self._database, Name=name)["Table"]
            except ClientError as error:
                if code_of(error) != _MISSING:
                    raise
                return None
        parameters = found.get("Parameters", {})
        return MirrorEntry(
            parameters.get(TABLE_ID, ""), parameters.get(_METADATA, ""), found.get("VersionId", "")
        )

    def put(self, name: str, table: MirroredTable, old: MirrorEntry | None) -> bool:
        """Put an entry in the place of another, or of none; return False if that is not there."""
        wanted = _table_input(name, table, old)
        if old is None:
            return self._change("create_table", TableInput=wanted)
        return self._change(
            "update_table", TableInput=wanted, VersionId=old.version, SkipArchive=True
        )

    def delete(self, name: str) -> None:
        """Delete an entry; none is no error."""
        self._change("delete_table", Name=name)

    def _change(self, call: str, **request: Any) -> bool:
        """Make a change; return False if it did nothing, because things are not as it wants them.

        Raises:
            UnavailableError: Glue refused it.
            OutcomeUnknownError: Glue did not answer, or failed.
        """
        with writing("Glue"):
            try:
                getattr(self._client, call)(DatabaseName=self._database, **request)
            except ClientError as error:
                if code_of(error) not in _CONFLICTS:
                    raise
                return False
        return True


def _table_input(name: str, table: MirroredTable, old: MirrorEntry | None) -> dict[str, Any]:
    previous = {_PREVIOUS: old.metadata} if old is not None and old.metadata else {}
    return {
        "Name": name,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {
            "table_type": "ICEBERG",
            _METADATA: table.metadata,
            **previous,
            TABLE_ID: table.table_id,
        },
        "StorageDescriptor": {
            "Location": table.location,
            "Columns": [{"Name": column, "Type": kind} for column, kind in table.columns],
        },
    }
