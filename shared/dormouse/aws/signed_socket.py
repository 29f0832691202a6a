"""Addresses of the WebSocket of a deployment, signed with the credentials of this process.

A browser cannot send headers with a request for a WebSocket, so the signature is in the address. It
can be used for a short time, to connect; the connection outlives it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import urlsplit

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import NoCredentialsError, NoRegionError

from dormouse.aws.base.clients import session
from dormouse.errors import InvalidRequestError

SECONDS = 60
_REGION = re.compile(r"\.execute-api\.([a-z0-9-]+)\.amazonaws\.com(\.cn)?$")


def signing(uri: str, **parameters: str) -> Callable[[], str]:
    """Return what signs the address of a WebSocket API, for one connection each time. The signature
    covers the parameters, too.

    Raises:
        InvalidRequestError: it is none, or could be read on its way.
    """
    parts = urlsplit(uri)
    if parts.scheme != "wss" or not parts.hostname or parts.query:
        raise InvalidRequestError(
            f"{uri!r} is not the address of a WebSocket API",
            hint="it is the output WebSocketUri of the stack: wss://, a name and /live",
        )
    found = _REGION.search(parts.hostname)
    region = found[1] if found else session().get_config_variable("region")
    if region is None:
        raise NoRegionError()

    def signed() -> str:
        credentials = session().get_credentials()
        if credentials is None:
            raise NoCredentialsError()
        asked = AWSRequest("GET", f"https://{parts.netloc}{parts.path}", params=parameters)
        frozen = credentials.get_frozen_credentials()
        SigV4QueryAuth(frozen, "execute-api", region, expires=SECONDS).add_auth(asked)
        return str(asked.url).replace("https://", "wss://", 1)

    return signed
