"""How AWS's services say that they are busy, or that a part of a batch was not taken; pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from xml.etree import ElementTree

_S3 = "{http://s3.amazonaws.com/doc/2006-03-01/}"
_JSON = (("Content-Type", "application/x-amz-json-1.0"),)
_XML = (("Content-Type", "application/xml"),)
_BUSY: Mapping[str, tuple[tuple[int, str], ...]] = {
    "s3": ((503, "SlowDown"), (503, "ServiceUnavailable")),
    "dynamodb": (
        (400, "ProvisionedThroughputExceededException"),
        (400, "ThrottlingException"),
        (400, "RequestLimitExceeded"),
    ),
    "sqs": ((400, "RequestThrottled"), (503, "ServiceUnavailable")),
}
_BROKEN = {"s3": "InternalError", "dynamodb": "InternalServerError", "sqs": "InternalFailure"}
SERVICES = tuple(_BUSY)


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came, its headers by lower-case name."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def service(self) -> str:
        """The service it is for, by the scope of the credentials that signed it."""
        found = re.search(
            r"Credential=[^/]+/\d+/[^/]+/([^/]+)/", self.headers.get("authorization", "")
        )
        return found[1] if found else "unknown"

    @property
    def operation(self) -> str:
        """What it asks for, as far as its head says."""
        return self.headers.get("x-amz-target", "").rpartition(".")[2] or self.method

    @property
    def attempt(self) -> int:
        """Which try of the SDK it is, from 1 on."""
        found = re.search(r"attempt=(\d+)", self.headers.get("amz-sdk-request", ""))
        return int(found[1]) if found else 1


@dataclass(frozen=True, slots=True)
class Answer:
    """A response. `headers` keep their order and may repeat."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


def busy(service: str, share: float) -> Answer:
    """Refuse a request for now, in one of the service's ways."""
    ways = _BUSY[service]
    status, code = ways[int(share * len(ways))]
    return _error(service, status, code, "Please reduce your request rate.")


def broken(service: str) -> Answer:
    """Say that the service has failed, at whatever it did."""
    return _error(service, 500, _BROKEN[service], "We encountered an internal error.")


def _error(service: str, status: int, code: str, message: str) -> Answer:
    if service == "s3":
        text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
        return Answer(status, _XML, f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'.encode())
    body = {"__type": f"com.amazonaws.{service}#{code}", "message": message}
    return Answer(status, _JSON, json.dumps(body).encode())


@dataclass(frozen=True, slots=True)
class Held:
    """What was taken out of a batch: the body that is left, and what the answer says of it."""

    body: bytes
    entry: object

    def recorded(self, request: Request, answer: Answer) -> Answer:
        """Return the service's answer to the rest, with what it says of the one not taken."""
        if answer.status != 200:
            return answer
        if request.service == "s3":
            root = ElementTree.fromstring(answer.body)
            error = ElementTree.SubElement(root, f"{_S3}Error")
            for name, text in (("Key", str(self.entry)), ("Code", "SlowDown"), ("Message", "busy")):
                ElementTree.SubElement(error, f"{_S3}{name}").text = text
            body = ElementTree.tostring(root, xml_declaration=True, encoding="UTF-8")
        else:
            parsed = json.loads(answer.body)
            if request.service == "sqs":
                failed = {"Id": self.entry, "Code": "InternalError", "SenderFault": False}
                parsed.setdefault("Failed", []).append(failed)
            else:
                for table, items in dict(self.entry).items():  # type: ignore[call-overload]
                    parsed.setdefault("UnprocessedItems", {}).setdefault(table, []).extend(items)
            body = json.dumps(parsed).encode()
        headers = tuple(h for h in answer.headers if h[0].lower() != "x-amz-crc32")
        return Answer(answer.status, headers, body)


def hold_back(request: Request, share: float) -> Held | None:
    """Take one entry out of a batch of at least two; None if the request is no such batch."""
    if request.service == "s3" and request.method == "POST" and "?delete" in request.target:
        return _hold_object(request.body, share)
    if request.operation == "SendMessageBatch":
        parsed = json.loads(request.body)
        entries = parsed["Entries"]
        if len(entries) < 2:
            return None
        held = entries.pop(int(share * len(entries)))
        return Held(json.dumps(parsed).encode(), held["Id"])
    if request.operation == "BatchWriteItem":
        parsed = json.loads(request.body)
        table = min(parsed["RequestItems"])
        items = parsed["RequestItems"][table]
        if len(items) < 2:
            return None
        held = items.pop(int(share * len(items)))
        return Held(json.dumps(parsed).encode(), {table: [held]})
    return None


def _hold_object(body: bytes, share: float) -> Held | None:
    root = ElementTree.fromstring(body)
    objects = [child for child in root if child.tag.endswith("Object")]
    if len(objects) < 2:
        return None
    held = objects[int(share * len(objects))]
    root.remove(held)
    key = next(child.text for child in held if child.tag.endswith("Key"))
    return Held(ElementTree.tostring(root), key)
