"""The connections of a WebSocket API: `connections.Connections` on API Gateway."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError

from dormouse.access import is_token
from dormouse.aws.clients import code_of, session, unavailable
from dormouse.errors import InvalidRequestError, InvariantError, UnavailableError
from dormouse.http.connections import ConnectionGoneError

# Addresses of the WebSocket of a deployment, signed with the credentials of this process.
#
# A browser cannot send headers with a request for a WebSocket, so the signature is in the address.
# It can be used for a short time, to connect; the connection outlives it.

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


_GONE = ("GoneException", "410", "BadRequestException", "400")
"""What is answered for a connection that is closed, and for an id that never was one."""
_TOO_LONG = ("PayloadTooLargeException", "413")
_SLOW = ("LimitExceededException", "429")


class ApiGatewayConnections:
    """Connections of one API; thread-safe, like its client."""

    def __init__(self, client: Any, uri: str) -> None:
        """Send by a client of ``apigatewaymanagementapi`` whose endpoint is `uri`, a stage of the
        API.
        """
        self._client, self._uri = client, uri

    def address_for(self, principal: str) -> str:
        """Return where a caller can connect. The signature of this process covers the name of one
        who has a token, and IAM lets nobody else connect for others.
        """
        parts = urlsplit(self._uri)
        uri = f"wss://{parts.netloc}{parts.path}"
        return signing(uri, caller=principal)() if is_token(principal) else uri

    def send(self, connection: str, text: str) -> None:
        """Send a message. A connection whose other side takes none, though that was tried again and
        again, is closed.
        """
        try:
            self._client.post_to_connection(ConnectionId=connection, Data=text.encode())
        except ClientError as error:
            code = code_of(error)
            if code in _SLOW:
                self.close(connection)
            if code in _GONE or code in _SLOW:
                raise ConnectionGoneError("the connection is closed") from error
            if code in _TOO_LONG:
                raise InvariantError("a frame is longer than API Gateway takes") from error
            raise _unavailable(error) from error
        except BotoCoreError as error:
            raise _unavailable(error) from error

    def close(self, connection: str) -> None:
        """Close a connection, unless it is closed."""
        try:
            self._client.delete_connection(ConnectionId=connection)
        except ClientError as error:
            if code_of(error) not in _GONE:
                raise _unavailable(error) from error
        except BotoCoreError as error:
            raise _unavailable(error) from error


def _unavailable(error: BotoCoreError | ClientError) -> UnavailableError:
    return unavailable("API Gateway does not send on connections", error)
