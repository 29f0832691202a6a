"""Signatures of AWS's version 4, verified by botocore's own signer."""

from __future__ import annotations

import re
from typing import Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from dormouse.http.messages import HttpRequest

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/]+)/(?P<scope>[^,]+), ?"
    r"SignedHeaders=(?P<headers>[^,]+), ?Signature=(?P<signature>[0-9a-f]+)"
)


def is_signed(request: HttpRequest, url: str, key: tuple[str, str], region: str) -> bool:
    """Return whether a request to `url` is signed by a key, for an API on AWS."""
    given = _AUTHORIZATION.fullmatch(request.headers.get("authorization", ""))
    if given is None or given["key"] != key[0]:
        return False
    timestamp = request.headers["x-amz-date"]
    if given["scope"] != f"{timestamp[:8]}/{region}/execute-api/aws4_request":
        return False
    signed = AWSRequest(
        request.method,
        f"{url}{request.path}",
        {name: request.headers[name] for name in given["headers"].split(";")},
        request.body,
        params=dict(request.query),
    )
    signed.context["timestamp"] = timestamp
    signer: Any = SigV4Auth(Credentials(*key), "execute-api", region)
    text = signer.string_to_sign(signed, signer.canonical_request(signed))
    return bool(signer.signature(text, signed) == given["signature"])
