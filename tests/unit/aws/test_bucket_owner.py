"""A bucket of another account is not read, written or listed, whatever it is called."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from dormouse.aws import clients, uploads, wiring
from dormouse.aws.uploads import S3IngestBucket
from dormouse.settings import Settings
from dormouse.state.sources import Source
from dormouse.stored.paths import InstanceNames

ACCOUNT = "123456789012"
LIBRARY = Path(clients.__file__).parents[2]


class Sent(Exception):
    """A request was about to be sent; nothing goes out."""


@pytest.fixture
def owners(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """Return the owners that requests to S3 name, which are cut off there."""
    found: list[str | None] = []

    def cut_off(request: Any, **_: object) -> None:
        found.append(header(request.headers))
        raise Sent

    def header(headers: Mapping[str, Any]) -> str | None:
        value = headers.get("x-amz-expected-bucket-owner")
        return value.decode() if isinstance(value, bytes) else value

    def made(*arguments: Any, **options: Any) -> Any:
        client: Any = clients.client(*arguments, **options)
        client.meta.events.register("before-send", cut_off)
        return client

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-2")
    for module in (wiring, uploads):
        monkeypatch.setattr(module, "client", made)
    return found


def requests(folder: Path) -> list[Callable[[], object]]:
    """Return one request for each operation of S3 that the library calls."""
    services = wiring.wire(Settings("dev", ACCOUNT, folder)).services
    names = InstanceNames("dev", ACCOUNT)
    local = folder / "local"
    local.write_bytes(b"rows")
    in_parts = S3IngestBucket(S3IngestBucket.of(names)._client, "ingest", single_bytes=0)
    return [
        lambda: services.storage.get("t/data/a"),
        lambda: services.storage.put("t/data/a", b"rows"),
        lambda: services.storage.upload("t/data/a", local),
        lambda: services.storage.open("t/data/a", 4).read(),
        lambda: list(services.storage.list("t/")),
        lambda: list(services.storage.folders()),
        lambda: services.storage.delete(["t/data/a"]),
        lambda: services.results.put("a", b"rows"),
        lambda: list(services.sources.list("t/", since_ms=0)),
        lambda: services.sources.download(
            Source(names.ingest_bucket, "t/a", "etag", 4), folder / "copy"
        ),
        lambda: S3IngestBucket.of(names).drop("t/a", local),
        lambda: in_parts.drop("t/a", local),
        lambda: in_parts._client.upload_part(
            Bucket="b", Key="t/a", UploadId="u", PartNumber=1, Body=b"rows"
        ),
        lambda: in_parts._client.complete_multipart_upload(Bucket="b", Key="t/a", UploadId="u"),
        lambda: in_parts._client.abort_multipart_upload(Bucket="b", Key="t/a", UploadId="u"),
    ]


def test_every_request_to_s3_names_the_account_that_the_bucket_is_to_belong_to(
    owners: list[str | None], tmp_path: Path
) -> None:
    asked = requests(tmp_path)
    for request in asked:
        with pytest.raises(Sent):
            request()
    assert owners == [ACCOUNT] * len(asked)


def test_a_presigned_url_is_of_the_region_and_asks_for_no_header(
    owners: list[str | None], tmp_path: Path
) -> None:
    """Who PUTs to it with no header but the host's would be refused by S3 otherwise."""
    names = InstanceNames("dev", ACCOUNT)
    url = urlsplit(S3IngestBucket.of(names).upload_url("t/a b.csv", 60))
    assert url.netloc == f"{names.ingest_bucket}.s3.eu-west-2.amazonaws.com"
    assert url.path == "/t/a%20b.csv"
    assert parse_qs(url.query)["X-Amz-SignedHeaders"] == ["host"]
    assert owners == []


def test_no_client_of_s3_is_made_without_an_owner() -> None:
    for path in LIBRARY.rglob("*.py"):
        if path != Path(clients.__file__):
            for made in re.findall(r'\bclient\(\s*"s3"[^)]*\)', path.read_text()):
                assert "bucket_owner=names.account" in made, path
