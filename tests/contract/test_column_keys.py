"""Who keeps the keys of encrypted columns: KMS, or a file beside a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from dormouse.aws.keys import KmsKeys
from dormouse.aws.storage import S3Sources
from dormouse.client.deployment import instance_of
from dormouse.encryption import KeyService, NoKeys, new_key
from dormouse.errors import DormouseError, ForbiddenError
from dormouse.folder.wiring import FileKeys
from dormouse.items.records import ItemSubjects
from dormouse.messages.requests import CompactTable, CreateTable, SetProperties
from dormouse.messages.stages import encode
from dormouse.schema.schema import parse_schema
from dormouse.state.sources import Source
from tests.contract.mocked_aws import REGION, mocked_aws, s3_bucket
from tests.support.memory_items import MemoryItems
from tests.support.plaintext import bodies_of
from tests.template.conftest import NAMES
from tests.template.flow import Flow, deployed

Opened = Callable[[], KeyService]
SUBJECTS = ItemSubjects(MemoryItems())


@pytest.fixture(params=["kms", "file"])
def service(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Opened]:
    """Open the keys as a new process does."""
    if request.param == "file":
        yield lambda: FileKeys(tmp_path / "mice.keys", tmp_path, SUBJECTS)
        return
    with mocked_aws(monkeypatch):
        client = boto3.client("kms", region_name=REGION)
        for name in ("default", "other"):
            key = client.create_key()["KeyMetadata"]["KeyId"]
            client.create_alias(AliasName=f"alias/dormouse/mice/{name}", TargetKeyId=key)
        yield lambda: KmsKeys(client, "mice", SUBJECTS)


def test_what_is_wrapped_is_unwrapped_by_the_same_key_for_the_same_table(service: Opened) -> None:
    key = new_key()
    wrapped = service().wrap("default", key, "table-1")
    assert key not in wrapped
    assert service().unwrap("default", wrapped, "table-1") == key
    service().wrap("other", key, "table-1")
    for name, table in (("default", "table-2"), ("other", "table-1")):
        with pytest.raises(ForbiddenError):
            service().unwrap(name, wrapped, table)
    with pytest.raises(ForbiddenError):
        service().unwrap("default", wrapped[:-1] + bytes([wrapped[-1] ^ 1]), "table-1")


def test_a_key_that_is_not_there_is_said(service: Opened) -> None:
    with pytest.raises(ForbiddenError, match="nobody"):
        service().unwrap("nobody", b"0" * 60, "table-1")


def test_kms_is_asked_once_for_a_data_key_and_says_no_to_who_may_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    class Client:
        def decrypt(self, **request: Any) -> dict[str, bytes]:
            asked.append(request)
            if request["CiphertextBlob"] == b"no":
                said = {"Error": {"Code": "AccessDeniedException", "Message": "not you"}}
                raise ClientError(said, "Decrypt")
            return {"Plaintext": b"k" * 32}

    keys = KmsKeys(Client(), "mice", SUBJECTS)
    assert keys.unwrap("a", b"yes", "t") == keys.unwrap("a", b"yes", "t") == b"k" * 32
    assert asked == [
        {
            "KeyId": "alias/dormouse/mice/a",
            "CiphertextBlob": b"yes",
            "EncryptionContext": {"dormouse-table": "t"},
        }
    ]
    with pytest.raises(ForbiddenError, match="alias/dormouse/mice/a"):
        keys.unwrap("a", b"no", "t")
    assert "k" * 32 not in repr(keys)


def test_who_has_no_keys_is_told_so() -> None:
    with pytest.raises(ForbiddenError, match="because"):
        NoKeys("because").unwrap("a", b"", "t")
    with pytest.raises(ForbiddenError, match="because"):
        _ = NoKeys("because").subjects


def test_a_file_that_was_ingested_is_removed_with_its_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with mocked_aws(monkeypatch):
        client = s3_bucket("ingest", versioned=True)
        first = client.put_object(Bucket="ingest", Key="a/1.csv", Body=b"secret")
        second = client.put_object(Bucket="ingest", Key="a/1.csv", Body=b"other")
        sources = S3Sources(client, "ingest")
        for put, version in ((first, first["VersionId"]), (second, "")):
            source = Source("ingest", "a/1.csv", put["ETag"].strip('"'), 6, version)
            sources.remove(source)
            sources.remove(source)
        listed = client.list_object_versions(Bucket="ingest")
        assert not listed.get("Versions") and not listed.get("DeleteMarkers")
        kept = client.put_object(Bucket="ingest", Key="a/1.csv", Body=b"a later file")
        sources.remove(Source("ingest", "a/1.csv", first["ETag"].strip('"'), 6))
        assert client.head_object(Bucket="ingest", Key="a/1.csv")["ETag"] == kept["ETag"]


SECRET = b"Quokka"


def test_a_table_on_aws_has_data_keys_of_kms() -> None:
    """By the real functions; no object, item or message has a value, nor has a log."""
    with deployed(Flow) as flow:
        kms = boto3.client("kms")
        key = kms.create_key()["KeyMetadata"]["KeyId"]
        schema = parse_schema("id:long, ssn:string?, name:string?", ["id"])
        body = schema.to_json()
        settings: dict[str, object] = {"encrypted_columns": "ssn", "compaction_files": 99}
        flow.send("admin", encode(CreateTable("0", "people", body, settings)))
        services = flow.wiring().services
        assert services.tables.named("people") is None  # KMS has no such key yet
        kms.create_alias(AliasName=f"alias/dormouse/{NAMES.instance}/default", TargetKeyId=key)
        flow.send("admin", encode(CreateTable("1", "people", body, settings)))
        for number in range(3):
            flow.drop(f"people/{number}.csv", f"id,ssn,name\n{number},Quokka{number},a\n".encode())
            flow.settle()
        table = instance_of(flow.wiring()).table("people")
        wanted = [{"id": n, "ssn": f"Quokka{n}", "name": "a"} for n in range(3)]
        assert table.query().to_arrow().to_pylist() == wanted
        flow.send("admin", encode(SetProperties("2", "people", {"data_key": 2})))
        flow.send("admin", encode(CompactTable("3", "people", all=True)))
        flow.settle()
        flow.wirings.clear()
        table = instance_of(flow.wiring()).table("people")
        assert len(table.shards()) == 1
        assert table.query().to_arrow().to_pylist() == wanted
        assert places() == []
        kms.delete_alias(AliasName=f"alias/dormouse/{NAMES.instance}/default")
        flow.wirings.clear()
        table = instance_of(flow.wiring()).table("people")
        with pytest.raises(ForbiddenError, match="column 'ssn' is encrypted by the key 'default'"):
            table.query()
        assert table.query(columns=["name"]).to_arrow().num_rows == 3
        flow.drop("people/late.csv", b"id,ssn,name\n9,Quokka9,a\n")
        with pytest.raises((DormouseError, AssertionError)):
            flow.settle()
        assert table.count() == 3


def places() -> list[str]:
    """Return where on S3 and in DynamoDB the secret is."""
    found, s3, dynamodb = [], boto3.client("s3"), boto3.client("dynamodb")
    for bucket in (each["Name"] for each in s3.list_buckets()["Buckets"]):
        for item in s3.list_object_versions(Bucket=bucket).get("Versions", ()):
            body = s3.get_object(Bucket=bucket, Key=item["Key"], VersionId=item["VersionId"])
            found += [
                f"{bucket}/{item['Key']}: {what}"
                for what, part in bodies_of(body["Body"].read())
                if SECRET in part
            ]
    for name in dynamodb.list_tables()["TableNames"]:
        if SECRET.decode() in repr(dynamodb.scan(TableName=name)["Items"]):
            found.append(name)
    return found
