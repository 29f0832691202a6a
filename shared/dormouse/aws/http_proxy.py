"""Requests to the HTTP API of a deployment, signed with the credentials of this process.

A page in a browser cannot sign requests. A server of this machine does so for the console, and
sends on what the API needs: no cookie, no origin, and not the token of that server.
"""

import re
from urllib.parse import urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError, HTTPClientError, NoCredentialsError, NoRegionError
from botocore.httpsession import URLLib3Session

from dormouse.aws.clients import client, reading, session
from dormouse.errors import InvalidRequestError, NotFoundError
from dormouse.http.messages import HttpRequest, HttpResponse, json_response

_SERVICE = "execute-api"
_REGION = re.compile(r"\.execute-api\.([a-z0-9-]+)\.amazonaws\.com(\.cn)?$")
_SENT = ("accept", "content-type", "idempotency-key", "prefer")
_RETURNED = (
    *("content-type", "cache-control", "dormouse-next", "dormouse-version", "location"),
    *("allow", "retry-after", "preference-applied"),
)
_SECONDS = 35
"""An HTTP API answers within thirty seconds."""


class SigningProxy:
    """Answers requests by those of an HTTP API on AWS."""

    def __init__(self, url: str) -> None:
        """`url` is where the API is, without a path.
        Raises InvalidRequestError: it is none, or could be read on its way.
        """
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.hostname or parts.path.strip("/") or parts.query:
            raise InvalidRequestError(
                f"{url!r} is not the address of an HTTP API",
                hint="it is the output ApiUri of the stack: https:// and a name, without a path",
            )
        self._url = f"https://{parts.netloc}"
        region = _REGION.search(parts.hostname)
        self._region = region[1] if region else session().get_config_variable("region")
        if self._region is None:
            raise NoRegionError()

    def answer(self, request: HttpRequest) -> HttpResponse:
        """Answer a request as the API does; 502 if that does not answer."""
        query = f"?{request.query_string}" if request.query_string else ""
        headers = {name: request.headers[name] for name in _SENT if name in request.headers}
        outgoing = AWSRequest(
            request.method, f"{self._url}{request.path}{query}", headers, request.body or None
        )
        credentials = session().get_credentials()
        if credentials is None:
            raise NoCredentialsError()
        SigV4Auth(credentials.get_frozen_credentials(), _SERVICE, self._region).add_auth(outgoing)
        try:
            status, fields, body = _send(outgoing)
        except (HTTPClientError, BotoCoreError) as error:
            return json_response(502, {"detail": f"the API does not answer: {error}"})
        returned = {name: fields[name] for name in _RETURNED if name in fields}
        return HttpResponse(status, returned, body)


def api_uri(instance: str) -> str:
    """Return where the HTTP API of a deployment is.

    Raises:
        NotFoundError: there is none of that name.
        UnavailableError: API Gateway does not answer, or the caller may not ask it.
    """
    name, token = f"dormouse-{instance}", ""
    gateway = client("apigatewayv2")
    while True:
        with reading("API Gateway"):
            page = gateway.get_apis(**({"NextToken": token} if token else {}))
        for each in page.get("Items", ()):
            if each["Name"] == name:
                return str(each["ApiEndpoint"])
        token = page.get("NextToken", "")
        if not token:
            raise NotFoundError(
                f"there is no API {name!r}",
                hint="name it by --api, as the output ApiUri of the stack says",
            )


def _send(request: AWSRequest) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers by their names in lower case, and body of the answer."""
    response = URLLib3Session(timeout=_SECONDS).send(request.prepare())
    headers = {str(name).lower(): str(value) for name, value in response.headers.items()}
    return response.status_code, headers, response.content
