"""A bucket that takes parts of a few bytes, and the storage over it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from moto.s3 import models as moto_models

from dormouse.aws.storage import S3Storage
from tests.contract.mocked_aws import mocked_aws, s3_bucket
from tests.support.memory_storage import PART_BYTES

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Client]:
    monkeypatch.setattr(moto_models, "S3_UPLOAD_PART_MIN_SIZE", 1)
    with mocked_aws(monkeypatch):
        yield s3_bucket("data")


@pytest.fixture
def on_s3(client: S3Client, monkeypatch: pytest.MonkeyPatch) -> S3Storage:
    monkeypatch.setattr("dormouse.aws.uploads.PART_BYTES", PART_BYTES)
    return S3Storage(client, "data")
