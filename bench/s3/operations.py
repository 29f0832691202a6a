"""The operations of S3 that Dormouse uses, each from a request to its answer.

Left out is what an instance does not need to move its rows: versions, copies, tags, access control.
They are answered with 501, so that nothing is measured that S3 would have done otherwise.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import formatdate
from pathlib import Path
from urllib.parse import quote
from xml.sax.saxutils import escape, unescape

from bench.s3.messages import Answer, Refusal, Request
from bench.s3.objects import Found, Objects

Operation = Callable[[Objects, Request, Path], Answer]
"""Answers a request whose body, if it has one, is in a file."""
KEYS_PER_PAGE = 1000
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_PART = re.compile(r"<Part>(.*?)</Part>", re.DOTALL)


def operation_of(request: Request) -> str:
    """Return S3's name of what is asked.

    Raises:
        Refusal: it is none of `OPERATIONS`.
    """
    of_object, query = bool(request.key), request.query
    match request.method:
        case "GET" if of_object and not {"uploadId", "tagging", "versionId"} & set(query):
            return "GetObject"
        case "GET" if query.get("list-type") == "2":
            return "ListObjectsV2"
        case "HEAD" if of_object:
            return "HeadObject"
        case "PUT" if not of_object and not query:
            return "CreateBucket"
        case "PUT" if of_object and "x-amz-copy-source" not in request.headers:
            return "UploadPart" if "partNumber" in query else "PutObject"
        case "POST" if of_object and "uploads" in query:
            return "CreateMultipartUpload"
        case "POST" if of_object and "uploadId" in query:
            return "CompleteMultipartUpload"
        case "POST" if "delete" in query:
            return "DeleteObjects"
        case "DELETE" if of_object:
            return "AbortMultipartUpload" if "uploadId" in query else "DeleteObject"
    raise Refusal(501, "NotImplemented")


def refused(refusal: Refusal) -> Answer:
    """Return the answer to a request that is not fulfilled."""
    return _xml("Error", f"<Code>{refusal.code}</Code><Message>as S3</Message>", refusal.status)


def _get(objects: Objects, request: Request, body: Path) -> Answer:
    found = objects.find(request.bucket, request.key)
    if request.headers.get("if-match", found.etag) != found.etag:
        raise Refusal(412, "PreconditionFailed")
    headers = _headers(found)
    if "range" not in request.headers:
        return Answer(200, headers, file=found.file, length=found.size_bytes)
    start, end = _range(request.headers["range"], found.size_bytes)
    headers["Content-Range"] = f"bytes {start}-{end - 1}/{found.size_bytes}"
    return Answer(206, headers, file=found.file, start=start, length=end - start)


def _range(asked: str, size_bytes: int) -> tuple[int, int]:
    """Return where a range begins and ends, in bytes.

    Raises:
        Refusal: the object has nothing there.
    """
    match = _RANGE.fullmatch(asked)
    first, last = match.groups() if match else ("", "")
    if first:
        start, end = int(first), min(int(last or size_bytes) + 1, size_bytes)
    else:
        start, end = max(0, size_bytes - int(last or 0)), size_bytes
    if start >= end:
        raise Refusal(416, "InvalidRange")
    return start, end


def _list(objects: Objects, request: Request, body: Path) -> Answer:
    prefix, delimiter = request.query.get("prefix", ""), request.query.get("delimiter", "")
    limit = int(request.query.get("max-keys", KEYS_PER_PAGE))
    after = request.query.get("continuation-token", request.query.get("start-after", ""))
    entries, folders, last = [], [], ""
    found = objects.list(request.bucket, prefix, after)
    for each in itertools.islice(found, limit):
        last = each.key
        before, cut, _ = each.key[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
        if cut:
            folders.append(f"{prefix}{before}{cut}")
        else:
            entries.append(each)
    more = next(found, None) is not None
    text = "<EncodingType>url</EncodingType>" + "".join(map(_entry, entries))
    for folder in dict.fromkeys(folders):
        text += f"<CommonPrefixes><Prefix>{quote(folder)}</Prefix></CommonPrefixes>"
    if more:
        text += f"<NextContinuationToken>{escape(last)}</NextContinuationToken>"
    return _xml("ListBucketResult", f"{text}<IsTruncated>{str(more).lower()}</IsTruncated>")


def _entry(found: Found) -> str:
    modified = datetime.fromtimestamp(found.modified_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    return (
        f"<Contents><Key>{quote(found.key)}</Key><LastModified>{modified}</LastModified>"
        f"<ETag>{escape(found.etag)}</ETag><Size>{found.size_bytes}</Size></Contents>"
    )


def _head(objects: Objects, request: Request, body: Path) -> Answer:
    found = objects.find(request.bucket, request.key)
    return Answer(200, _headers(found), file=found.file, length=found.size_bytes)


def _create_bucket(objects: Objects, request: Request, body: Path) -> Answer:
    objects.create_bucket(request.bucket)
    return Answer()


def _put(objects: Objects, request: Request, body: Path) -> Answer:
    found = objects.put(request.bucket, request.key, body, once=_once(request))
    return Answer(200, {"ETag": found.etag, **_checksums(request)})


def _put_part(objects: Objects, request: Request, body: Path) -> Answer:
    number = int(request.query["partNumber"])
    found = objects.put_part(request.query["uploadId"], number, body)
    return Answer(200, {"ETag": found.etag, **_checksums(request)})


def _begin(objects: Objects, request: Request, body: Path) -> Answer:
    upload = objects.begin(request.bucket)
    return _xml("InitiateMultipartUploadResult", f"<UploadId>{upload}</UploadId>")


def _complete(objects: Objects, request: Request, body: Path) -> Answer:
    parts = [
        (int(_element(part, "PartNumber")), unescape(_element(part, "ETag"), {"&quot;": '"'}))
        for part in _PART.findall(body.read_text())
    ]
    upload = request.query["uploadId"]
    found = objects.complete(request.bucket, request.key, upload, parts, once=_once(request))
    return _xml("CompleteMultipartUploadResult", f"<ETag>{escape(found.etag)}</ETag>")


def _abort(objects: Objects, request: Request, body: Path) -> Answer:
    objects.abort(request.query["uploadId"])
    return Answer(204)


def _delete(objects: Objects, request: Request, body: Path) -> Answer:
    objects.delete(request.bucket, request.key)
    return Answer(204)


def _delete_many(objects: Objects, request: Request, body: Path) -> Answer:
    for key in re.findall("<Key>(.*?)</Key>", body.read_text(), re.DOTALL):
        objects.delete(request.bucket, unescape(key))
    return _xml("DeleteResult", "")


OPERATIONS: Mapping[str, Operation] = {
    "GetObject": _get,
    "ListObjectsV2": _list,
    "HeadObject": _head,
    "CreateBucket": _create_bucket,
    "PutObject": _put,
    "UploadPart": _put_part,
    "CreateMultipartUpload": _begin,
    "CompleteMultipartUpload": _complete,
    "AbortMultipartUpload": _abort,
    "DeleteObject": _delete,
    "DeleteObjects": _delete_many,
}


def _once(request: Request) -> bool:
    return request.headers.get("if-none-match") == "*"


def _headers(found: Found) -> dict[str, str]:
    modified = formatdate(found.modified_s, usegmt=True)
    return {"ETag": found.etag, "Last-Modified": modified, "Accept-Ranges": "bytes"}


def _checksums(request: Request) -> dict[str, str]:
    """Return the checksums that came with a body, which S3 repeats; they are not checked."""
    names = (name for name in request.headers if name.startswith("x-amz-checksum-"))
    return {name: request.headers[name] for name in names}


def _element(text: str, name: str) -> str:
    found = re.search(f"<{name}>(.*?)</{name}>", text, re.DOTALL)
    if found is None:
        raise Refusal(400, "MalformedXML")
    return found[1]


def _xml(name: str, inside: str, status: int = 200) -> Answer:
    return Answer(
        status, {"Content-Type": "application/xml"}, f"<{name}>{inside}</{name}>".encode()
    )
