"""Makes moto's S3 atomic, and its events those of AWS; applied by `moto_server`.

moto checks If-Match and If-None-Match without a lock, sends two events for a multipart upload where
S3 sends one, leaves the version and the sequencer out of its events, and says of every unfinished
upload that it was begun in 2010.
"""

import functools
import itertools
import threading
import uuid
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from moto.core.responses import ActionResult
from moto.s3 import models, notifications
from moto.s3.models import FakeKey, FakeMultipart, S3Backend
from moto.s3.responses import S3Response

LOCK = threading.RLock()
_sequence = itertools.count(1)


def apply() -> None:
    """Replace the parts of moto; call once, before the server starts."""
    # Both are entered after the request's body has been read: no one waits for a slow sender.
    for name in ("_key_response", "_bucket_response"):
        setattr(S3Response, name, _serialised(getattr(S3Response, name)))
    S3Backend.put_object = _put_object  # type: ignore[method-assign]
    FakeMultipart.__init__ = _begin  # type: ignore[method-assign]
    S3Response.list_multipart_uploads = _list_multipart_uploads  # type: ignore[method-assign]
    notifications._get_s3_event = _s3_event


def _serialised(respond: Any) -> Any:
    @functools.wraps(respond)
    def one_at_a_time(*arguments: Any, **named: Any) -> Any:
        with LOCK:
            return respond(*arguments, **named)

    return one_at_a_time


_plain_put_object = S3Backend.put_object


def _put_object(self: S3Backend, *arguments: Any, **named: Any) -> FakeKey:
    completes_a_multipart_upload = named.get("multipart") is not None
    if completes_a_multipart_upload:
        named["disable_notification"] = True  # CompleteMultipartUpload is announced by the caller
    return _plain_put_object(self, *arguments, **named)


_plain_begin = FakeMultipart.__init__


def _begin(self: FakeMultipart, *arguments: Any, **named: Any) -> None:
    _plain_begin(self, *arguments, **named)
    self.initiated = datetime.now(UTC)  # type: ignore[attr-defined]


def _list_multipart_uploads(self: S3Response) -> Any:
    prefix = self.querystring.get("prefix", [""])[0]
    pending: list[Any] = [*self.backend.list_multipart_uploads(self.bucket_name).values()]
    uploads = [
        {"Key": each.key_name, "UploadId": each.id, "Initiated": each.initiated}
        for each in sorted(pending, key=lambda each: (each.key_name, each.initiated))
        if each.key_name.startswith(prefix)
    ]
    self.data["Action"] = "ListMultipartUploads"
    return self.serialized(ActionResult({"Bucket": self.bucket_name, "Uploads": uploads}))


_plain_s3_event = notifications._get_s3_event


def _s3_event(event_name: str, bucket: Any, key: Any, notification_id: str) -> dict[str, Any]:
    event = _plain_s3_event(event_name, bucket, key, notification_id)
    for record in event["Records"]:
        described = record["s3"]["object"]
        described["sequencer"] = f"{next(_sequence):016X}"
        if bucket.is_versioned:
            described["versionId"] = key.version_id
    return dict(event)


# The contents of objects. moto holds up to 16 MB of each in memory, and an open file for each
# larger one. Here they are a file of their own in one folder, which is opened only to be read.


class StoredValue:
    """The contents of one object, as the file-like object that moto reads and writes."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._at = folder, 0
        self._file: Path | None = None

    def seek(self, offset: int) -> None:
        """Read from this byte next."""
        self._at = offset

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, at most `size`."""
        if self._file is None:
            return b""
        with self._file.open("rb") as file:
            file.seek(self._at)
            content = file.read(size)
        self._at += len(content)
        return content

    def truncate(self) -> None:
        """Delete the contents."""
        file, self._file = self._file, None
        if file is not None:
            file.unlink(missing_ok=True)

    close = truncate

    def write(self, content: bytes) -> None:
        """Put contents where there are none."""
        if not content:
            return
        file = self._folder / uuid.uuid4().hex
        try:
            file.write_bytes(content)
        except OSError:  # no room: a part of it must not take what is left
            file.unlink(missing_ok=True)
            raise
        self._file = file


def keep_in_files(folder: Path) -> None:
    """Have moto put the contents of objects into a folder; call once, before the server starts."""
    folder.mkdir(parents=True, exist_ok=True)
    module = SimpleNamespace(SpooledTemporaryFile=lambda *_, **__: StoredValue(folder))
    models.tempfile = module  # type: ignore[assignment, attr-defined]
