"""Uploads of files about as large as a part, and of one that an audit aborts meanwhile."""

from __future__ import annotations

from concurrent.futures import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dormouse.aws.storage import S3Storage
from tests.contract.test_uploads import FILE, answering, finish, on_its_way, unfinished
from tests.support.memory_storage import PART_BYTES

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1, 2 * PART_BYTES])
def test_files_of_every_size_about_that_of_a_part_are_stored_whole(
    on_s3: S3Storage, tmp_path: Path, size: int
) -> None:
    local = tmp_path / "local"
    local.write_bytes(FILE[:size])
    upload = on_s3.start_upload("t/a", local)
    for final_bytes in (0, size // 2, size):
        upload.advance(final_bytes)
    assert upload.complete()
    assert on_s3.get("t/a") == FILE[:size]
    assert unfinished(on_s3) == []


def test_an_upload_that_an_audit_aborts_while_it_is_written_is_begun_once_more(
    client: S3Client, on_s3: S3Storage, tmp_path: Path
) -> None:
    """The audit takes what has been written for a day for what a crash has left."""
    local = tmp_path / "local"
    upload: Any = on_its_way(on_s3, local)
    wait(upload._parts._sent)
    answering(client, "UploadPart", (404, "NoSuchUpload"))
    finish(local)
    upload.advance(len(FILE))  # sends parts that nobody wants any more
    while (parts := upload._parts) is not None:
        wait(parts._sent)
        upload.advance(len(FILE))
    upload.advance(len(FILE))
    assert upload.complete()
    assert on_s3.get("t/a") == FILE
    assert unfinished(on_s3) == []
