"""The connections of a WebSocket API: `connections.Connections` on API Gateway."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from dormouse.access.principals import is_token
from dormouse.aws.base.failures import code_of, unavailable
from dormouse.aws.signed_socket import signing
from dormouse.errors import InvariantError, UnavailableError
from dormouse.ports.connections import ConnectionGoneError

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
