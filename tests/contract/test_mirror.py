"""What entries of Glue promise, in Glue as moto plays it, and in memory.

moto replaces an entry whatever its version is, so what Glue says of a conflict is put in its mouth.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from moto import mock_aws

from dormouse.aws.keys import GlueMirror
from dormouse.errors import OutcomeUnknownError, UnavailableError
from dormouse.ports import Mirror, MirroredTable, MirrorEntry
from tests.support.memory_mirror import MemoryMirror

COLUMNS = [("k", "bigint"), ("tags", "array<string>")]


def table_of(metadata: str, table_id: str = "t") -> MirroredTable:
    return MirroredTable(table_id, metadata, "s3://b/t/iceberg", COLUMNS)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with mock_aws():
        made = boto3.client("glue", region_name="eu-west-2")
        made.create_database(DatabaseInput={"Name": "lake"})
        yield made


@pytest.fixture(params=["memory", "glue"])
def mirror(request: pytest.FixtureRequest) -> Mirror:
    if request.param == "memory":
        return MemoryMirror()
    return GlueMirror(request.getfixturevalue("client"), "lake")


def test_an_entry_is_read_as_it_was_put(mirror: Mirror) -> None:
    assert mirror.get("users") is None
    assert mirror.put("users", table_of("m1"), None)
    first = mirror.get("users")
    assert first is not None
    assert (first.table_id, first.metadata) == ("t", "m1")
    assert mirror.put("users", table_of("m2"), first)
    second = mirror.get("users")
    assert second is not None
    assert second.metadata == "m2"
    assert second.version != first.version


def test_an_entry_is_not_put_over_one_that_was_not_there(mirror: Mirror) -> None:
    assert mirror.put("users", table_of("m1"), None)
    assert not mirror.put("users", table_of("m2"), None)
    found = mirror.get("users")
    assert found is not None and found.metadata == "m1"


def test_an_entry_that_was_deleted_is_not_replaced(mirror: Mirror) -> None:
    assert mirror.put("users", table_of("m1"), None)
    old = mirror.get("users")
    mirror.delete("users")
    assert mirror.get("users") is None
    assert not mirror.put("users", table_of("m2"), old)
    mirror.delete("users")


def test_engines_find_in_an_entry_what_they_look_for(client: Any) -> None:
    mirror = GlueMirror(client, "lake")
    mirror.put("users", table_of("m1"), None)
    mirror.put("users", table_of("m2"), mirror.get("users"))
    found = client.get_table(DatabaseName="lake", Name="users")["Table"]
    assert found["TableType"] == "EXTERNAL_TABLE"
    assert found["Parameters"] == {
        "table_type": "ICEBERG",
        "metadata_location": "m2",
        "previous_metadata_location": "m1",
        "dormouse.table-id": "t",
    }
    assert found["StorageDescriptor"]["Location"] == "s3://b/t/iceberg"
    columns = found["StorageDescriptor"]["Columns"]
    assert [(each["Name"], each["Type"]) for each in columns] == COLUMNS


def test_an_entry_of_somebody_else_has_no_table(client: Any) -> None:
    client.create_table(DatabaseName="lake", TableInput={"Name": "users"})
    found = GlueMirror(client, "lake").get("users")
    assert found is not None
    assert (found.table_id, found.metadata) == ("", "")


class Refusing:
    """A client of Glue that answers each change with one error, and keeps what it was asked."""

    def __init__(self, error: Exception) -> None:
        self.error, self.asked = error, {}

    def __getattr__(self, call: str) -> Any:
        def asked(**request: Any) -> None:
            self.asked = {"call": call, **request}
            raise self.error

        return asked


def refused(code: str, status: int) -> ClientError:
    body: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(body, "UpdateTable")


OLD = MirrorEntry("t", "m1", "7")


@pytest.mark.parametrize("code", ["ConcurrentModificationException", "VersionMismatchException"])
def test_a_change_names_the_version_that_was_read_and_loses_to_another(code: str) -> None:
    client = Refusing(refused(code, 400))
    assert not GlueMirror(client, "lake").put("users", table_of("m2"), OLD)
    assert client.asked["call"] == "update_table"
    assert (client.asked["VersionId"], client.asked["SkipArchive"]) == ("7", True)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (refused("AccessDeniedException", 400), UnavailableError),
        (refused("InternalServiceException", 500), OutcomeUnknownError),
        (EndpointConnectionError(endpoint_url="https://glue"), OutcomeUnknownError),
    ],
)
def test_a_change_that_fails_says_what_is_known_of_it(
    error: Exception, kind: type[Exception]
) -> None:
    mirror = GlueMirror(Refusing(error), "lake")
    with pytest.raises(kind):
        mirror.put("users", table_of("m2"), OLD)
    with pytest.raises(kind):
        mirror.delete("users")
    with pytest.raises(UnavailableError):
        mirror.get("users")
